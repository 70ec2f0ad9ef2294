"""Which requests a browser may make: those for a host name of ours, from pages of ours, or from no page at all.

A page of another site can make a visitor's browser send requests to this API, at localhost for example. It can also
give its own host name this API's address (DNS rebinding), and is then of the same origin. Hence the three checks:

    Host             one of the allowed names; no page can choose an IP address as its name, so /metrics allows these,
                     and so does every path of a server that other machines reach
    Origin           if present: the host of the request
    Sec-Fetch-Site   if present: same-origin or none; links from elsewhere may lead to a page (Fetch Metadata, W3C)
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from service_chassis import address
from service_chassis.http import errors
from service_chassis.http.settings import HttpSettings

#: Paths that a kubelet requests by the pod's address, under any host name.
PROBES = ("/healthz", "/readyz")
_METRICS = "/metrics"
_OWN_SITES = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The host names to serve; lower case, without ports. None allows any."""

    allowed: frozenset[str] | None
    #: Whether every path is served under any IP address.
    addresses: bool = False
    #: The setting that adds a name.
    variable: str = "the settings"

    @classmethod
    def of(cls, settings: HttpSettings) -> Hosts:
        """Return the names that the settings allow. Only this machine reaches a loopback address, by its own names."""
        named = {name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip()}
        host, variable = settings.listens_at.host, f"{settings.prefix}ALLOWED_HOSTS"
        if named:
            return cls(frozenset(named), addresses=not address.is_loopback(host), variable=variable)
        own = frozenset({"localhost", "127.0.0.1", "[::1]", host}) if address.is_loopback(host) else None
        return cls(own, variable=variable)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise ApiError if a browser must not make this request."""
        if path in PROBES:
            return
        host = headers.get("host", "")
        name = _name(host)
        by_address = (self.addresses or path == _METRICS) and _is_address(name)
        if self.allowed is not None and name not in self.allowed and not by_address:
            message = f"This host name is not served; {self.variable} can add it."
            raise errors.of_status(421, message, {"connection": "close"})
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        # mutant: foreign-origin-refused
        if (origin is not None and _host_of(origin) != host.lower()) or (
            site not in _OWN_SITES and not _follows_link(method, headers)
        ):
            raise errors.of_status(403, "Requests from pages of other sites are refused.", {"connection": "close"})


def _follows_link(method: str, headers: Headers) -> bool:
    """Return whether the browser navigates to this address, and shows the answer to its user alone."""
    return (
        method == "GET" and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )


def _name(host: str) -> str:
    name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _host_of(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
