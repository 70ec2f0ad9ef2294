"""How a module of `handlers/` declares what it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from protocol_lib.api import ApiKey

from gateway_svc.clients.pipeline import Kind
from gateway_svc.requests.call import Call, Services


@dataclass(frozen=True, slots=True)
class InlineHandler:
    """Answers by `call.answer`, now or from a callback: no task per request."""

    api_key: ApiKey
    min_version: int
    max_version: int
    serve: Callable[[Call, Any, Services], None]
    kind: Kind = Kind.CONTROL
    #: Whether answers may take minutes, so that an orderly stop does not wait for them.
    may_park: bool = False
    #: Versions below this one are worked on alone, whatever the kind: their order could be lost otherwise.
    alone_below: int = 0


@dataclass(frozen=True, slots=True)
class TaskHandler:
    """Runs as a task and returns (response, its first error code or 0)."""

    api_key: ApiKey
    min_version: int
    max_version: int
    handle: Callable[[Call, Any, Services], Awaitable[tuple[Any, int]]]
    kind: Kind = Kind.CONTROL
    may_park: bool = False
    alone_below: int = 0


Handler = InlineHandler | TaskHandler
