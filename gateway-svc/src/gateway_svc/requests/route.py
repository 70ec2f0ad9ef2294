"""One version of one API as this gateway serves it: everything that is the same for all of its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway_svc.clients.pipeline import Kind
from gateway_svc.metrics import ApiCounts


class Route:
    """A row of the table of routes. `Dispatcher` makes it when the first request of the version arrives."""

    __slots__ = (
        "api_key",
        "api_name",
        "by_parts",
        "counts",
        "decode",
        "has_throttle",
        "header_tail",
        "kind",
        "may_park",
        "version",
    )

    def __init__(
        self,
        *,
        api_key: int,
        api_name: str,
        version: int,
        kind: Kind,
        decode: Callable[..., Any],
        header_tail: bytes,
        by_parts: bool,
        may_park: bool,
        has_throttle: bool,
        counts: ApiCounts,
    ) -> None:
        self.api_key = api_key
        self.api_name = api_name
        self.version = version
        self.kind = kind
        self.decode = decode
        #: The bytes between the correlation id and the body of an answer.
        self.header_tail = header_tail
        #: Whether answers hold records by reference.
        self.by_parts = by_parts
        #: Whether answers may take minutes.
        self.may_park = may_park
        #: Whether the API's answers have a `throttle_time_ms`, in this version or a later one.
        self.has_throttle = has_throttle
        self.counts = counts
