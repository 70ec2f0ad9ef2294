"""What a handler is given: the request's call, and the services of its gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, Protocol

from protocol_lib.codec import encode, encode_parts
from protocol_lib.errors import ErrorCode
from service_chassis import logs

from gateway_svc.clients.idle_polling import IdlePolling
from gateway_svc.clients.pipeline import Kind, Pending
from gateway_svc.clients.slices import Part, RecordParts, SliceFiles
from gateway_svc.clients.socket_room import SocketRoom
from gateway_svc.errors import RequestRefused
from gateway_svc.fetching.answer_layout import AnswerLayouts
from gateway_svc.fetching.message_sets import Conversions
from gateway_svc.fetching.sessions import FetchSessions
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import ApiCounts, GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.membership import Membership
from gateway_svc.storage.protocols import RepeatableHeartbeat, Storage

_FRAME_HEAD: Final = Struct(">ii")

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Services:
    """Built once per gateway, in app.py."""

    storage: Storage
    cluster: Membership
    settings: GatewaySettings
    metrics: GatewayMetrics
    refusals: Refusals
    #: Requests received in part or being served.
    requests: MemoryBudget
    #: Answers not yet written, as far as they are held in memory.
    answers: MemoryBudget
    #: None when this gateway does not see storage's files.
    files: SliceFiles | None
    sessions: FetchSessions
    answer_layouts: AnswerLayouts
    conversions: Conversions
    #: Where answers wait for their sockets.
    room: SocketRoom
    polling: IdlePolling
    #: (API key, lowest, highest version) of everything served, as ApiVersions says it.
    api_ranges: tuple[tuple[int, int, int], ...]
    loop: asyncio.AbstractEventLoop


class Client(Protocol):
    """The connection a request came in on."""

    #: Another one for every connection to any gateway, as good as surely.
    connection_id: int
    #: "ip:port", for log lines.
    peer: str
    #: The address alone.
    host: str
    #: Name of the listener it connected to.
    listener: str
    #: What handlers remember of this connection, by API key. Only the handler of an API knows the type of its entry.
    handler_states: dict[int, Any]

    def answered(self, pending: Pending, parts: Sequence[Part]) -> None: ...

    def refuse(self, refusal: RequestRefused) -> None:
        """Log and count the refusal, and close."""
        ...

    def abort(self) -> None:
        """Closes at once."""
        ...

    def quieten(self) -> None:
        """It says the same again and again: what it says may wait a little (`quiet_connections`)."""
        ...

    def rouse(self) -> None:
        """It says something else."""
        ...


class Route:
    """One version of one API: everything that is the same for all of its requests."""

    __slots__ = (
        "api_key",
        "api_name",
        "by_parts",
        "counts",
        "decode",
        "handler",
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
        handler: Any,
        decode: Any,
        header_tail: bytes,
        by_parts: bool,
        may_park: bool,
        counts: ApiCounts,
    ) -> None:
        self.api_key = api_key
        self.api_name = api_name
        self.version = version
        self.kind = kind
        self.handler = handler
        self.decode = decode
        #: What follows the correlation id in the response header.
        self.header_tail = header_tail
        #: Whether answers hold records by reference.
        self.by_parts = by_parts
        #: Whether answers may take minutes.
        self.may_park = may_park
        self.counts = counts


class Call(Pending):
    """One request on its way: who sent it, its header, and its place in its connection's order of answers."""

    __slots__ = ("client", "client_id", "correlation_id", "repeat", "route", "started_at")

    def __init__(self, client: Client, route: Route, correlation_id: int, client_id: str | None, size: int) -> None:
        super().__init__(route.kind, size, may_park=route.may_park)
        self.client = client
        self.route = route
        self.correlation_id = correlation_id
        self.client_id = client_id
        #: Of a heartbeat.
        self.repeat: RepeatableHeartbeat | None = None
        self.started_at = time.perf_counter()

    @property
    def version(self) -> int:
        return self.route.version

    def answer(self, response: Any, error: int = 0) -> None:
        """Encodes the response and lets it leave in its turn. `error`: its first error code, for the metrics."""
        self.client.answered(self, self.encoded(response, error))

    def answer_parts(self, parts: list[Part]) -> None:
        """An answer that is encoded already, from its length on."""
        self._count(0, sum(map(len, parts)) - 4)
        self.client.answered(self, parts)

    def answer_bytes(self, body: bytes) -> None:
        """As `answer`, of a response without an error that is encoded already."""
        size = len(body) + 4 + len(self.route.header_tail)
        self._count(0, size)
        self.client.answered(self, (_FRAME_HEAD.pack(size, self.correlation_id) + self.route.header_tail + body,))

    def encoded(self, response: Any, error: int) -> list[Part]:
        """The answer's bytes; it is counted as given."""
        route = self.route
        tail = route.header_tail
        parts: list[Part]
        if route.by_parts:
            parts = []
            for part in encode_parts(response, route.version):
                if type(part) is RecordParts:
                    parts += part.parts
                else:
                    parts.append(part)  # type: ignore[arg-type]
            size = sum(map(len, parts)) + 4 + len(tail)
            parts.insert(0, _FRAME_HEAD.pack(size, self.correlation_id) + tail)
        else:
            body = encode(response, route.version)
            size = len(body) + 4 + len(tail)
            parts = [_FRAME_HEAD.pack(size, self.correlation_id) + tail + body]
        self._count(error, size)
        return parts

    def answer_nothing(self) -> None:
        """The request has no answer (acks=0)."""
        self._count(0, 0)
        self.client.answered(self, ())

    def refuse(self, reason: str, detail: str = "") -> None:
        """Closes the connection instead of an answer."""
        self.client.refuse(
            RequestRefused(
                reason,
                detail,
                client_id=self.client_id,
                api_key=self.route.api_key,
                version=self.version,
                correlation_id=self.correlation_id,
            )
        )

    def failed(self, error: Exception) -> None:
        """A bug of ours, or an answer of storage that this client cannot be told: logged whole, the client cut off."""
        log.exception(
            "request failed",
            api=self.route.api_name,
            version=self.version,
            correlation_id=self.correlation_id,
            client_id=self.client_id,
            peer=self.client.peer,
        )
        self.refuse("failed", type(error).__name__)

    def _count(self, error: int, size: int) -> None:
        route = self.route
        seconds = time.perf_counter() - self.started_at
        route.counts.count(route.version, error_name(error), seconds, self.size, size)
        if logs.debug_enabled():
            log.debug(
                "answer",
                api=route.api_name,
                version=route.version,
                correlation_id=self.correlation_id,
                client_id=self.client_id,
                peer=self.client.peer,
                error=error_name(error),
                bytes=size,
                milliseconds=round(seconds * 1000, 3),
            )


def error_name(code: int) -> str:
    """Kafka's name of an error code; codes this broker does not know come from no client and are shown as they are."""
    if code == 0:
        return "NONE"
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
