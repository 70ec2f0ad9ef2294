"""The bytes of a heartbeat that comes again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gateway_svc.asked_repeat import AskedRepeat
from gateway_svc.context import Call, Route
from gateway_svc.known_heartbeat import KEPT_BYTES_MAX, AskedHeartbeat, KnownHeartbeat, known
from gateway_svc.metrics import ApiCounts
from gateway_svc.waiting import Kind
from protocol_lib.codec import decoder, encode
from protocol_lib.headers import RequestHeader, encode_request_header
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSION = 4


class Client:
    def answered(self, pending: Any, parts: Any) -> None:
        pending.parts = parts


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
    call.repeat = iter(holds).__next__
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


class Asked(AskedRepeat):
    """Storage that is asked, and told here what to say."""

    def __init__(self) -> None:
        self.allowed = False
        self.forgotten = False
        self.waiting: list[Callable[[bool], None]] = []

    @property
    def may_be_asked(self) -> bool:
        return self.allowed

    def ask(self, done: Callable[[bool], None]) -> None:
        self.waiting.append(done)

    def forget(self) -> None:
        self.forgotten = True


def asked() -> tuple[AskedHeartbeat, Call, Asked]:
    data = frame(7)
    call = served(data)
    call.repeat = repeat = Asked()
    first, call.parts = call.parts, None  # its answer comes later
    kept = known(call, data)
    assert isinstance(kept, AskedHeartbeat)
    assert kept.open(Client(), data, 0) is None  # type: ignore[arg-type]
    call.parts = first
    repeat.allowed = True
    return kept, call, repeat


def test_storage_that_is_asked_says_that_the_answer_holds() -> None:
    kept, first, repeat = asked()
    again = frame(0x01020304)
    assert kept.matches(again, 0, len(again))
    call = kept.open(Client(), b"before" + again, 6)  # type: ignore[arg-type]
    assert call is not None
    assert (call.correlation_id, call.client_id, call.size) == (0x01020304, "c", len(again))
    kept.ask(call, lambda *_: pytest.fail("it holds"))
    assert call.parts is None
    (done,) = repeat.waiting
    done(True)
    assert first.parts is not None
    assert call.parts is not None
    (answer,), (before,) = call.parts, first.parts
    assert isinstance(before, bytes)
    assert answer == before[:4] + b"\1\2\3\4" + before[8:]
    assert call.route.counts.answers == {(VERSION, "NONE"): 2}


@pytest.mark.parametrize("correlation_id", [0, 8, (1 << 31) - 1, -1])
def test_storage_that_is_asked_says_that_it_has_to_come_whole(correlation_id: int) -> None:
    kept, _, repeat = asked()
    again = frame(correlation_id)
    call = kept.open(Client(), again, 0)  # type: ignore[arg-type]
    assert call is not None
    started: list[tuple[Call, bytes]] = []
    kept.ask(call, lambda *given: started.append(given))
    repeat.waiting[0](False)
    assert started == [(call, again)]
    assert call.parts is None


def test_storage_is_not_asked_for_a_long_one() -> None:
    data = frame(7, "m" * KEPT_BYTES_MAX)
    call = served(data)
    call.repeat = repeat = Asked()
    assert known(call, data) is None
    assert repeat.forgotten
