"""The heartbeat that one connection sends again and again, as the bytes that come and go.

    request   = length i32, api key i16, version i16 | correlation id i32 | the rest, the same each time
    answer    = length i32 | correlation id i32 | the rest, the same as long as storage says so

So a member that lives on, to which nothing happens, is neither decoded nor encoded. Storage in the same process says it
at once (`storage.Repeat`); storage apart is asked (`AskedRepeat`), and if it says no the heartbeat is started
like any other, in the place that it has in its connection's order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from gateway_svc.asked_repeat import AskedRepeat
from gateway_svc.context import Call, Client
from gateway_svc.storage import Repeat

#: Longer ones (somebody names a thousand topics in each) are not kept.
KEPT_BYTES_MAX = 4096

_CORRELATION_ID_AT, _REST_AT = 4, 8


class _Kept:
    """The request's bytes."""

    __slots__ = ("_head", "_rest", "_route", "_size")

    def __init__(self, call: Call, frame: bytes | memoryview) -> None:
        self._head = bytes(frame[:_CORRELATION_ID_AT])
        self._rest = bytes(frame[_REST_AT:])
        self._size = len(frame)
        self._route = call.route

    def matches(self, store: bytes | bytearray, begin: int, end: int) -> bool:
        """Whether the request between these positions is this heartbeat."""
        return (
            end - begin == self._size
            and store.startswith(self._rest, begin + _REST_AT)
            and store.startswith(self._head, begin)
        )


class KnownHeartbeat(_Kept):
    """Made of a heartbeat that was answered and may be repeated. Owned by its connection."""

    __slots__ = ("_answer_head", "_answer_rest", "_repeat")

    def __init__(self, call: Call, repeat: Repeat, frame: bytes | memoryview) -> None:
        super().__init__(call, frame)
        answer = _answer(call)
        self._answer_head = answer[:4]
        self._answer_rest = answer[8:]
        self._repeat = repeat

    def answer(self, store: bytes | bytearray, begin: int) -> bytes | None:
        """To the heartbeat that begins here; None, from then on, when it has to be asked again."""
        started = time.perf_counter()
        if not self._repeat():
            return None
        correlation_id = bytes(store[begin + _CORRELATION_ID_AT : begin + _REST_AT])
        answer = self._answer_head + correlation_id + self._answer_rest
        route = self._route
        route.counts.count(route.version, "NONE", time.perf_counter() - started, self._size, len(answer) - 4)
        return answer


class AskedHeartbeat(_Kept):
    """Made of a heartbeat that was sent to storage. Owned by its connection, which has one heartbeat at a time."""

    __slots__ = ("_body", "_client_id", "_first", "_repeat")

    def __init__(self, call: Call, repeat: AskedRepeat, frame: bytes | memoryview) -> None:
        super().__init__(call, frame)
        self._client_id = call.client_id
        self._repeat = repeat
        #: Has the answer once there is one; then `_body` is what follows the response header in it.
        self._first: Call | None = call
        self._body = b""

    def open(self, client: Client, store: bytes | bytearray, begin: int) -> Call | None:
        """The call of the heartbeat that begins here; None when it has to come whole."""
        if not self._repeat.may_be_asked:
            return None
        if self._first is not None:
            self._body = _answer(self._first)[8 + len(self._route.header_tail) :]
            self._first = None
        correlation_id = int.from_bytes(store[begin + _CORRELATION_ID_AT : begin + _REST_AT], "big", signed=True)
        return Call(client, self._route, correlation_id, self._client_id, self._size)

    def ask(self, call: Call, whole: Callable[[Call, bytes], None]) -> None:
        """Answers it, or comes with the whole of it."""
        self._repeat.ask(partial(self._told, call, whole))

    def _told(self, call: Call, whole: Callable[[Call, bytes], None], holds: bool) -> None:
        if holds:
            call.answer_bytes(self._body)
        else:
            whole(call, self._head + call.correlation_id.to_bytes(4, "big", signed=True) + self._rest)

    def forget(self) -> None:
        self._repeat.forget()


def _answer(call: Call) -> bytes:
    assert call.parts is not None
    (answer,) = call.parts
    assert isinstance(answer, bytes)
    return answer


def known(call: Call, frame: bytes | memoryview) -> KnownHeartbeat | AskedHeartbeat | None:
    """What to keep of a heartbeat that was just served; None when it may not be repeated."""
    repeat = call.repeat
    if isinstance(repeat, AskedRepeat):
        if len(frame) <= KEPT_BYTES_MAX:
            return AskedHeartbeat(call, repeat, frame)
        repeat.forget()
        return None
    if repeat is None or call.parts is None or len(frame) > KEPT_BYTES_MAX:
        return None
    return KnownHeartbeat(call, repeat, frame)
