"""The bytes of a heartbeat that comes again and again."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_svc.clients.pipeline import Kind
from gateway_svc.handlers.heartbeat_pattern import KEPT_BYTES_MAX, KnownHeartbeat, known
from gateway_svc.metrics import ApiCounts
from gateway_svc.requests.call import Call, Route
from protocol_lib.codec import decoder, encode
from protocol_lib.headers import RequestHeader, encode_request_header
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSION = 4


class Client:
    def answered(self, pending: Any, parts: Any) -> None:
        pending.parts = parts


class Said:
    """What storage says of repetitions, one after the other."""

    def __init__(self, *holds: bool) -> None:
        self._holds = iter(holds)
        self.forgotten = False

    def __call__(self) -> bool:
        return next(self._holds)

    def forget(self) -> None:
        self.forgotten = True


def frame(correlation_id: int, member_id: str = "m") -> bytes:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    return encode_request_header(RequestHeader(12, VERSION, correlation_id, "c")) + encode(request, VERSION)


def served(data: bytes, *holds: bool) -> Call:
    """The call of a heartbeat that was answered; `holds`: what storage says of its repetitions."""
    route = Route(
        api_key=12,
        api_name="Heartbeat",
        version=VERSION,
        kind=Kind.CONTROL,
        handler=None,
        decode=decoder(HeartbeatRequest, VERSION),
        header_tail=b"\0",
        by_parts=False,
        may_park=False,
        counts=ApiCounts("Heartbeat"),
    )
    call = Call(Client(), route, int.from_bytes(data[4:8], "big"), "c", len(data))  # type: ignore[arg-type]
    call.repeat = Said(*holds)
    call.answer(HeartbeatResponse(error_code=0))
    return call


def made(*holds: bool) -> tuple[KnownHeartbeat, Call]:
    data = frame(7)
    call = served(data, *holds)
    kept = known(call, data)
    assert isinstance(kept, KnownHeartbeat)
    return kept, call


def test_the_answer_is_the_first_one_with_the_new_correlation_id() -> None:
    kept, call = made(True)
    again = frame(0x01020304)
    store = bytearray(b"before" + again + b"behind")
    assert kept.matches(store, 6, 6 + len(again))
    assert call.parts is not None
    (first,) = call.parts
    assert isinstance(first, bytes)
    assert kept.answer(store, 6) == first[:4] + b"\1\2\3\4" + first[8:]
    assert call.route.counts.answers == {(VERSION, "NONE"): 2}
    assert call.route.counts.received_bytes == 2 * len(again)
    assert call.route.counts.answered_bytes == 2 * (len(first) - 4)


def test_every_other_byte_makes_it_another_request() -> None:
    kept, _ = made()
    again = frame(7)
    for position in range(len(again)):
        changed = bytearray(again)
        changed[position] ^= 0x40
        assert kept.matches(changed, 0, len(again)) == (4 <= position < 8), position
    assert not kept.matches(again + b"\0", 0, len(again) + 1)
    assert not kept.matches(again, 0, len(again) - 1)


def test_what_storage_does_not_repeat_is_not_answered() -> None:
    kept, call = made(False)
    assert kept.answer(frame(8), 0) is None
    assert call.route.counts.answers == {(VERSION, "NONE"): 1}


@pytest.mark.parametrize("length", [KEPT_BYTES_MAX - 26, KEPT_BYTES_MAX])
def test_long_ones_are_not_kept(length: int) -> None:
    data = frame(7, "m" * length)
    assert (known(served(data), data) is None) == (len(data) > KEPT_BYTES_MAX)


def test_only_heartbeats_that_may_be_repeated_are_kept() -> None:
    data = frame(7)
    call = served(data)
    call.repeat = None
    assert known(call, data) is None


def test_the_answer_may_come_later() -> None:
    data = frame(7)
    call = served(data, False, True)
    answer, call.parts = call.parts, None
    kept = known(call, data)
    assert kept is not None
    assert kept.answer(data, 0) is None
    call.parts = answer
    assert answer is not None
    assert [kept.answer(data, 0)] == answer


def test_what_is_not_kept_is_forgotten() -> None:
    long = frame(7, "m" * KEPT_BYTES_MAX)
    call = served(long)
    assert known(call, long) is None
    assert isinstance(call.repeat, Said)
    assert call.repeat.forgotten
    kept, call = made(True)
    kept.forget()
    assert isinstance(call.repeat, Said)
    assert call.repeat.forgotten
