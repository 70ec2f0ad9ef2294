"""Which requests of browsers are served: by host name, by origin, by the site of the page."""

from __future__ import annotations

import pytest
from service_chassis.http.errors import ApiError
from service_chassis.http.origins import Hosts
from starlette.datastructures import Headers

PATH = "/v3/clusters"
ANY, NAMED = Hosts(None), Hosts(frozenset({"localhost", "admin-api"}))


def _status(hosts: Hosts, method: str = "GET", path: str = PATH, **headers: str) -> int:
    """Return the status of the refusal, 200 if there is none. Keywords are headers, with underscores for hyphens."""
    given = {"host": "localhost:8082"} | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        hosts.check(method, path, Headers(given))
    except ApiError as error:
        return error.status_code
    return 200


@pytest.mark.parametrize("hosts", [ANY, NAMED])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8082"}, 200),
        ({"origin": "https://LOCALHOST:8082"}, 200),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "http://localhost"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://evil.example:8082"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://[localhost:8082"}, 403),
        ({"origin": "file://localhost:8082"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "image"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"}, 403),
        ({"sec_fetch_site": "same-origin", "origin": "http://evil.example"}, 403),
    ],
)
def test_pages_of_other_sites(hosts: Hosts, method: str, headers: dict[str, str], status: int) -> None:
    assert _status(hosts, method, **headers) == status


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("POST", 403), ("DELETE", 403)])
def test_a_link_to_the_documentation_can_be_followed(method: str, status: int) -> None:
    followed = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert _status(NAMED, method, "/docs", **followed) == status


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("admin-api", PATH, 200),
        ("ADMIN-API:1", PATH, 200),
        ("rebound.evil.example", PATH, 421),
        ("10.1.2.3:8082", PATH, 421),
        ("10.1.2.3:8082", "/metrics", 200),
        ("[fd00::7]:8082", "/metrics", 200),
        ("rebound.evil.example", "/metrics", 421),
        ("10.1.2.3.evil.example", "/metrics", 421),
        ("rebound.evil.example", "/healthz", 200),
        ("rebound.evil.example", "/readyz", 200),
    ],
)
def test_host_names(host: str, path: str, status: int) -> None:
    assert _status(NAMED, path=path, host=host) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [("10.1.2.3:8082", 200), ("[fd00::7]:8082", 200), ("admin-api", 200), ("10.1.2.3.evil.example", 421), ("", 421)],
)
def test_a_server_that_others_reach_is_served_by_address(host: str, status: int) -> None:
    reached = Hosts(frozenset({"localhost", "admin-api"}), addresses=True)
    assert _status(reached, path=PATH, host=host) == status
