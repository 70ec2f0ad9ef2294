"""The heartbeat that one connection sends again and again, as the bytes that come and go.

    request   = length i32, api key i16, version i16 | correlation id i32 | the rest, the same each time
    answer    = length i32 | correlation id i32 | the rest, the same as long as storage's `Repeat` says so

So a member that lives on, to which nothing happens, is neither decoded nor encoded.
"""

from __future__ import annotations

import time

from gateway_svc.context import Call

#: Longer ones (somebody names a thousand topics in each) are not kept.
KEPT_BYTES_MAX = 4096

_CORRELATION_ID_AT, _REST_AT = 4, 8


class KnownHeartbeat:
    """Made of a heartbeat that was answered and may be repeated. Owned by its connection."""

    __slots__ = ("_answer_head", "_answer_rest", "_head", "_repeat", "_rest", "_route", "_size")

    def __init__(self, call: Call, frame: bytes | memoryview) -> None:
        assert call.repeat is not None
        assert call.parts is not None
        (answer,) = call.parts
        assert isinstance(answer, bytes)
        self._head = bytes(frame[:_CORRELATION_ID_AT])
        self._rest = bytes(frame[_REST_AT:])
        self._size = len(frame)
        self._answer_head = answer[:4]
        self._answer_rest = answer[8:]
        self._repeat = call.repeat
        self._route = call.route

    def matches(self, store: bytes | bytearray, begin: int, end: int) -> bool:
        """Whether the request between these positions is this heartbeat."""
        return (
            end - begin == self._size
            and store.startswith(self._rest, begin + _REST_AT)
            and store.startswith(self._head, begin)
        )

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


def known(call: Call, frame: bytes | memoryview) -> KnownHeartbeat | None:
    """What to keep of a call that was just served; None when it was no heartbeat, or may not be repeated."""
    if call.repeat is None or call.parts is None or len(frame) > KEPT_BYTES_MAX:
        return None
    return KnownHeartbeat(call, frame)
