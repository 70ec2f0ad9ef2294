"""The rules that the ring asks a service for: its roles and its error codes.

Roles ascend: 0 needs no token, 1 reads, and those above it may change something. Each includes those below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from starlette.responses import Response

from service_chassis.http.errors import ApiError

PUBLIC, READ = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one service."""

    roles: type[IntEnum]
    #: (method, path of a request or of a route) -> the lowest role that may make the request.
    required: Callable[[str, str], IntEnum]
    #: The answer to an error. Its body has the service's shape.
    render: Callable[[ApiError], Response]
    #: The cookie in which pages keep a token; empty: they cannot.
    cookie: str = ""
    #: Whether the service has its own users, who log in.
    has_users: bool = False
    #: The logger of changes. Its child `refused` gets those of senders without a token.
    audit: str
    #: Status -> the service's error code for a refusal of the ring; without one, the status is the code.
    codes: Mapping[int, int] = field(default_factory=dict)
    #: (method, path) -> the kind of requests whose endpoint reads the body as it arrives, with limits for it alone;
    #: empty: the body is read first.
    reads_in_parts: Callable[[str, str], str] = lambda _method, _path: ""
    #: The most requests of each of these kinds at once; of one client, half as many.
    places: Mapping[str, int] = field(default_factory=dict)
    #: path -> the beginning of it that links keep and routes do not have.
    root_path: Callable[[str], str] = lambda _path: ""

    def refusal(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> ApiError:
        """Return an error with the service's code for this status."""
        return ApiError(status, self.codes.get(status, status), message, headers)
