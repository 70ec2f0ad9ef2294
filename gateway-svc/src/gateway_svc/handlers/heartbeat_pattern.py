"""The heartbeat that one connection sends again and again, as the bytes that come and go.

    request   = length i32, api key i16, version i16 | correlation id i32 | the rest, the same each time
    answer    = length i32 | correlation id i32 | the rest, the same as long as storage says so

So a member that lives on, to which nothing happens, is neither decoded nor encoded. Storage in the same process says so
each time; storage apart has promised it (`group_stream`).
"""

from __future__ import annotations

import time

from gateway_svc.requests.call import Call
from gateway_svc.storage.protocols import RepeatableHeartbeat

#: Longer ones (somebody names a thousand topics in each) are not kept.
KEPT_BYTES_MAX = 4096

_CORRELATION_ID_AT, _REST_AT = 4, 8


class KnownHeartbeat:
    """Made of a heartbeat that may be repeated. Owned by its connection, which has one heartbeat at a time."""

    __slots__ = ("_answer_head", "_answer_rest", "_first", "_head", "_repeat", "_rest", "_route", "_size")

    def __init__(self, call: Call, repeat: RepeatableHeartbeat, frame: bytes | memoryview) -> None:
        self._head = bytes(frame[:_CORRELATION_ID_AT])
        self._rest = bytes(frame[_REST_AT:])
        self._size = len(frame)
        self._route = call.route
        self._repeat = repeat
        #: Has the answer once there is one; then it is what stands below.
        self._first: Call | None = call
        self._answer_head = self._answer_rest = b""

    def matches(self, store: bytes | bytearray, begin: int, end: int) -> bool:
        """Whether the request between these positions is this heartbeat."""
        return (
            end - begin == self._size
            and store.startswith(self._rest, begin + _REST_AT)
            and store.startswith(self._head, begin)
        )

    def answer(self, store: bytes | bytearray, begin: int) -> bytes | None:
        """To the heartbeat that begins here; None, from then on, when it has to come whole."""
        started = time.perf_counter()
        if not self._repeat():
            return None
        if self._first is not None:
            self._learn_answer(self._first)
        correlation_id = bytes(store[begin + _CORRELATION_ID_AT : begin + _REST_AT])
        answer = self._answer_head + correlation_id + self._answer_rest
        route = self._route
        route.counts.count(route.version, "NONE", time.perf_counter() - started, self._size, len(answer) - 4)
        return answer

    def _learn_answer(self, call: Call) -> None:
        assert call.parts is not None, "it was answered, or it would not be repeated"
        (answer,) = call.parts
        assert isinstance(answer, bytes)
        self._answer_head, self._answer_rest = answer[:4], answer[8:]
        self._first = None

    def forget(self) -> None:
        self._repeat.forget()


def known(call: Call, frame: bytes | memoryview) -> KnownHeartbeat | None:
    """What to keep of a heartbeat that was just given to storage; None when it may not be repeated."""
    if call.repeat is None:
        return None
    if len(frame) > KEPT_BYTES_MAX:
        call.repeat.forget()
        return None
    return KnownHeartbeat(call, call.repeat, frame)
