"""Addresses of the REST API, and whether two of them are the same place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from millrace.cli.errors import USAGE, CliError

_HOST = re.compile(r"[^\x00-\x20.]+(\.[^\x00-\x20.]+)*\.?")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class RestAddress:
    """The parts of an address. Two equal ones are the same place, however they were written."""

    scheme: str
    host: str
    port: int
    #: Path before the operations', without a slash at its end.
    base: str

    @classmethod
    def parse(cls, given: str, source: str = "--rest") -> Self:
        """Return the parts of `host:port` or of a URL. Raises CliError for another text, with its source."""
        if not given:
            raise CliError(f"{source}: the address is empty; is a shell variable not set?", USAGE)
        try:
            url = urlsplit(given if "://" in given else f"http://{given}")
            port, host = url.port, url.hostname or ""
            host.encode("idna")
            if _HOST.fullmatch(host) and url.scheme in _PORTS and not url.query and url.username is None:
                return cls(url.scheme, host, port or _PORTS[url.scheme], url.path.rstrip("/"))
        except ValueError:
            pass
        raise CliError(f"{source}: {without_secrets(given)!r} is not host:port or a URL", USAGE)


def without_secrets(address: str) -> str:
    """Return an address for a message: without a user with a password, and without a query."""
    rest, at, place = address.rpartition("@")
    if not at:
        return address.partition("?")[0] + "?…" * ("?" in address)
    scheme, slashes, _ = rest.partition("://")
    return f"{scheme + slashes if slashes else ''}…@{place}"
