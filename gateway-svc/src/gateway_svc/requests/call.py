"""One request in service: its client, its subject, and its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final, Protocol

from protocol_lib.codec import encode, encode_parts
from protocol_lib.errors import ErrorCode
from service_chassis import logs

from gateway_svc.clients.pipeline import Pending
from gateway_svc.clients.slices import Part, RecordParts
from gateway_svc.errors import RequestRefused
from gateway_svc.request_memory import Share
from gateway_svc.requests.rights import Rights
from gateway_svc.requests.subject import Subject

_FRAME_HEAD: Final = Struct(">ii")

log = logs.get(__name__)


class Client(Protocol):
    """The connection that a request came from."""

    #: Unique among the connections of all gateways, with near certainty.
    connection_id: int
    #: "ip:port", for log lines.
    peer: str
    #: The address alone.
    host: str
    #: The address that the client counts under (`entrance.address_key`).
    address: str
    #: Name of the listener it connected to.
    listener: str
    #: The part of the memory for requests that its address has.
    share: Share
    #: The authenticated user, such as "User:ANONYMOUS".
    principal: str
    #: The state that handlers keep for this connection, by API key. Only the handler of an API knows its type.
    handler_states: dict[int, Any]

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers in memory that the client has not read."""
        ...

    def answered(self, pending: Pending, parts: Sequence[Part]) -> None: ...

    def close_refused(self, refusal: RequestRefused) -> None:
        """Log and count the refusal, and close."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...

    def mute(self, milliseconds: int) -> None:
        """Start no request of the client for so long: it is throttled."""
        ...

    def close_when_answered(self) -> None:
        """Start no more requests, and close once those in service are answered. Called before the last answer."""
        ...

    def start_held_frames(self) -> None:
        """Start the held requests that may start now."""
        ...

    def block_later_requests(self) -> None:
        """Start no further request of the connection until `unblock_later_requests`."""
        ...

    def unblock_later_requests(self) -> None:
        """Start requests again, beginning with the held ones."""
        ...

    def peer_is_open(self) -> bool:
        """Return whether the client still has its end of the connection open."""
        ...


class Ring(Protocol):
    """The part of `Admission` that a call uses."""

    @property
    def throttles(self) -> bool:
        """Whether `throttle_ms` may return anything but 0."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the access rules here are those in force."""
        ...

    def when_current(self, done: Callable[[Exception | None], None]) -> None: ...

    def renew(self, call: Call) -> None: ...

    def throttle_ms(self, call: Call, size: int) -> int: ...

    def fetch_bytes_max(self, call: Call) -> int | None:
        """Return the most bytes of an answer to Fetch that a quota allows, or None."""
        ...

    def finish(self, call: Call, error: int, size: int) -> None: ...


class Call(Pending):
    """One request, or a run of `count` similar requests, and its position in its connection's order of answers.

    Every method that answers also finishes the call, so each request is finished exactly once.
    """

    __slots__ = (
        "client",
        "correlation_id",
        "finished",
        "loop_s",
        "owed_s",
        "recognised",
        "resumed_at",
        "ring",
        "route",
        "started_at",
        "subject",
    )

    def __init__(
        self, client: Client, ring: Ring, subject: Subject, correlation_id: int, size: int, count: int = 1
    ) -> None:
        """Start the clock. `size`: bytes of the request without its length, or of the whole run."""
        route = subject.route
        super().__init__(route.kind, size, may_park=route.may_park, count=count)
        self.client = client
        self.ring = ring
        self.subject = subject
        self.route = route
        #: The id of the first request, if this is a run.
        self.correlation_id = correlation_id
        #: Whether a pattern recognised the request by its bytes.
        self.recognised = False
        self.finished = False
        #: Seconds of the event loop that it took before `resumed_at`. Counted only while there are quotas.
        self.loop_s = 0.0
        #: Seconds that its client has to wait for what it has changed.
        self.owed_s = 0.0
        self.started_at = time.perf_counter()
        #: The time since which the event loop works on it; 0.0 while it waits.
        self.resumed_at = self.started_at

    @property
    def version(self) -> int:
        return self.route.version

    @property
    def rights(self) -> Rights:
        """The rights of the client. Handlers ask them for what they judge one by one, and for what they list."""
        return self.subject.rights

    @property
    def client_id(self) -> str | None:
        return self.subject.client_id

    @property
    def has_lasting_rights(self) -> bool:
        """Whether the rights by which the request was judged have not ended."""
        rights = self.subject.rights
        return rights.is_current and (not rights.may_lapse or self.ring.is_current)

    def renew_rights(self) -> None:
        """Give the request the rights that its client has now: its own have ended after it was judged."""
        self.ring.renew(self)

    @property
    def correlation_ids(self) -> Iterable[int]:
        """The correlation id of each request, in order."""
        return (self.correlation_id,)

    def answer(self, response: Any, error: int = 0) -> None:
        """Encode the response and send it in its turn. `error`: its first error code."""
        self.client.answered(self, self.encoded(response, error))

    async def answer_long(self, response: Any, error: int = 0) -> None:
        """Send a long answer as `answer` does, encoded in a thread, so that other requests do not wait."""
        if self.subject.complete is not None:
            response, error = self.subject.complete(response, error)
        body = await asyncio.to_thread(encode, response, self.route.version)
        size = 4 + len(self.route.header_tail) + len(body)
        throttle_ms = self.throttle(size)
        if throttle_ms and self.route.has_throttle:
            response.throttle_time_ms = throttle_ms
            body = await asyncio.to_thread(encode, response, self.route.version)
        self.finish(error, size)
        self.client.answered(self, (_FRAME_HEAD.pack(size, self.correlation_id) + self.route.header_tail, body))

    def answer_parts(self, fill: Callable[[int], Sequence[Part]], error: int = 0) -> None:
        """Send an answer in its turn. `fill` returns it for a throttle time, with its length in front."""
        if self.ring.throttles:
            self.resume()
        parts = fill(0)
        size = sum(map(len, parts)) - 4
        if self.ring.throttles and (throttle_ms := self.throttle(size)):
            parts = fill(throttle_ms)  # mutant: throttle-of-fetch
        self.finish(error, size)
        self.client.answered(self, parts)

    def answer_bytes(self, fill: Callable[[int], bytes], error: int = 0) -> None:
        """Send an answer in its turn. `fill` returns it for a throttle time, from a template."""
        if self.ring.throttles:
            self.resume()
        frame = fill(0)
        size = len(frame) - 4
        if self.ring.throttles and (throttle_ms := self.throttle(size)):
            frame = fill(throttle_ms)  # mutant: throttle-of-template
        self.finish(error, size)
        self.client.answered(self, (frame,))

    def throttle(self, size: int) -> int:
        """Return the throttle time of an answer of `size` bytes, for which the client is muted from now on.

        It depends on the bytes of the answer, in which it has a place of four bytes. So an answer is made with 0, and
        again if its client is throttled. To be called once, before the answer is sent.
        """
        if not self.ring.throttles:
            return 0
        throttle_ms = self.ring.throttle_ms(self, size)
        if throttle_ms:
            self.client.mute(throttle_ms)  # mutant: throttled-client-muted
        return throttle_ms

    def encoded(self, response: Any, error: int) -> list[Part]:
        """Return the answer's bytes and finish the request."""
        if self.ring.throttles:
            self.resume()
        if self.subject.complete is not None:
            response, error = self.subject.complete(response, error)
        parts, size = self._encode(response)
        throttle_ms = self.throttle(size)
        if throttle_ms and self.route.has_throttle:
            response.throttle_time_ms = throttle_ms
            parts, size = self._encode(response)  # mutant: throttle-of-encoded
        self.finish(error, size)
        return parts

    def _encode(self, response: Any) -> tuple[list[Part], int]:
        """Return the parts of an answer, and their bytes without the length in front."""
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
        return parts, size

    def unanswered(self, error: int) -> Sequence[Part] | None:
        """Finish a request that has no answer (acks=0), and return its parts for `send`.

        An error closes the connection in its place, also one of entries that are denied.
        """
        if self.subject.complete is not None:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not error:
            self.throttle(0)
        self.finish(error, 0)
        return None if error else ()

    def send(self, parts: Sequence[Part] | None) -> None:
        """Send the answer of a finished request in its turn; None closes the connection in its place.

        Requests before it are answered first, as in Kafka. None after it starts.
        """
        if parts is None:
            self.client.close_when_answered()  # mutant: answered-before-close
        self.client.answered(self, parts or ())

    def resume(self) -> None:
        """Count the time of the event loop for the request from now on."""
        if not self.resumed_at:
            self.resumed_at = time.perf_counter()

    def suspend(self) -> None:
        """Count no more time: the request waits."""
        if self.resumed_at:
            self.loop_s += time.perf_counter() - self.resumed_at
            self.resumed_at = 0.0

    @property
    def spent_s(self) -> float:
        """Seconds of the event loop that the request has taken up to now."""
        return self.loop_s + (time.perf_counter() - self.resumed_at if self.resumed_at else 0.0)

    def finish(self, error: int, size: int) -> None:
        """Count and log the request, once. `size`: bytes of its answer without its length."""
        if not self.finished:
            self.finished = True
            self.ring.finish(self, error, size)

    def lose(self) -> None:
        """End the work on the request if possible, and finish it. Other requests are finished by their answers."""
        if self.abandon is not None:
            self.abandon()
            self.finish(ErrorCode.NETWORK_EXCEPTION, 0)

    def close_refused(self, reason: str, detail: str = "") -> None:
        """Close the connection in place of an answer, and log the reason."""
        self.finish(ErrorCode.UNKNOWN_SERVER_ERROR, 0)
        self.client.close_refused(
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
        """Log an error of ours, or an answer of storage that the client's version cannot express, and close."""
        log.exception(
            "request failed",
            api=self.route.api_name,
            version=self.version,
            correlation_id=self.correlation_id,
            client_id=self.client_id,
            peer=self.client.peer,
        )
        self.close_refused("failed", type(error).__name__)
