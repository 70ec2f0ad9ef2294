"""The parts around a connection: those that a gateway's connections share, and the way of its frames into service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from gateway_svc.clients.idle_polling import IdlePolling
from gateway_svc.clients.pipeline import Kind
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.refusals import Refusals
from gateway_svc.request_memory import RequestMemory
from gateway_svc.storage.append_window import AppendWindow


class Requests(Protocol):
    """The way of one connection's frames into service."""

    @property
    def frame_bytes_max(self) -> int | None:
        """Bytes of one frame at most; None for the gateway's own limit."""
        ...

    @property
    def deadline_s(self) -> float:
        """Seconds after which the connection is closed unless others serve it by then; infinity if it stays."""
        ...

    @property
    def is_login(self) -> bool:
        """Whether the client's user is not known yet, so that the connection counts as new."""
        ...

    def kind(self, store: bytes | bytearray, begin: int) -> Kind:
        """Return how the request at `begin` shares its connection."""
        ...

    def check_long(self, start: bytes | memoryview, size: int) -> None:
        """Check a request of `size` bytes by the first 8 of them; raise RequestRefused if it is not served."""
        ...

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        """Start the request between `begin` and `frame_end`, and maybe others up to `end`; return where the last ends.

        Raises:
            RequestRefused: it is not a request that can be answered.
        """
        ...

    def client_left(self) -> None:
        """Note that the client has closed its end. Requests that it sent before may still start."""
        ...

    def close(self) -> None:
        """Forget the connection: the client is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Resources:
    """The parts of a gateway that its connections share."""

    #: Bytes of one request at most.
    request_bytes_max: int
    #: Memory of requests that are received in part or in service.
    requests: RequestMemory
    #: Memory of answers that are not written yet.
    answers: MemoryBudget
    polling: IdlePolling
    #: Appends on their way to a separate storage; None with a storage in this process.
    window: AppendWindow | None
    refusals: Refusals
    loop: asyncio.AbstractEventLoop
