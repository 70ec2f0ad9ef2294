"""Heartbeats that a connection repeats: answered as bytes while storage lets it, otherwise like decoded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_contract import groups_pb2
from gateway_svc.handlers.heartbeat_pattern import KEPT_BYTES_MAX
from protocol_lib.codec import decode
from protocol_lib.headers import decode_response_header
from protocol_lib.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from tests.unit.gateway_svc.rig import Rig, framed

#: Kafka's REBALANCE_IN_PROGRESS.
REBALANCE = 27


class Repeat:
    """A RepeatableHeartbeat; it holds until the test ends it, or gives it another answer."""

    def __init__(self) -> None:
        self.holds = True
        self.answer: Any = None
        self.repeated = 0
        self.forgotten = 0

    def __call__(self, done: Callable[[Any], None]) -> bool:
        self.repeated += self.holds
        if self.holds:
            done(self.answer)
        return self.holds

    def forget(self) -> None:
        self.forgotten += 1


class Groups:
    """Answers heartbeats with `error`, at once or when `answer` is called; offers to repeat them."""

    def __init__(self, *, later: bool = False, repeatable: bool = True) -> None:
        self.error = 0
        self.asked: list[Any] = []
        self.repeats: list[Repeat] = []
        self.waiting: list[Callable[[], None]] = []
        self._later = later
        self._repeatable = repeatable

    def heartbeat(self, request: Any, done: Callable[[Any], None]) -> Repeat | None:
        return self._beat(request, lambda: done(groups_pb2.HeartbeatResponse(error_code=self.error)))

    def consumer_group_heartbeat(self, request: Any, done: Callable[[Any], None]) -> Repeat | None:
        answer = groups_pb2.ConsumerGroupHeartbeatResponse(
            error_code=self.error, member_id="m", member_epoch=3, heartbeat_interval_ms=5000
        )
        return self._beat(request, lambda: done(answer))

    def _beat(self, request: Any, answer: Callable[[], None]) -> Repeat | None:
        self.asked.append(request)
        if self._later:
            self.waiting.append(answer)
        else:
            answer()
        if not self._repeatable:
            return None
        self.repeats.append(Repeat())
        return self.repeats[-1]


def beat(correlation_id: int, version: int = 4, member_id: str = "m") -> bytes:
    return framed(12, version, HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id), correlation_id)


def read(answer: bytes, version: int = 4) -> tuple[int, HeartbeatResponse]:
    correlation_id, position = decode_response_header(12, version, answer[4:])
    return correlation_id, decode(HeartbeatResponse, version, answer[4:], position)


@pytest.mark.parametrize("version", range(5))
def test_a_repeated_heartbeat_is_answered_like_the_first_one(version: int) -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    answers = [rig.receive(beat(number, version)) for number in (1, 2, 0x01020304)]
    assert [read(only, version) for (only,) in answers] == [
        (number, HeartbeatResponse(error_code=0)) for number in (1, 2, 0x01020304)
    ]
    assert len(groups.asked) == 1
    assert groups.repeats[0].repeated == 2
    assert rig.recognised("Heartbeat") == 2
    assert rig.finished("Heartbeat") == {(version, "NONE"): 3}
    counts = rig.parts.metrics.api("Heartbeat")
    assert counts.received_bytes == 3 * (len(beat(1, version)) - 4)
    assert counts.answered_bytes == sum(len(only) - 4 for (only,) in answers)


@pytest.mark.parametrize("version", [0, 1])
def test_a_repeated_heartbeat_of_a_consumer_group(version: int) -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    request = ConsumerGroupHeartbeatRequest(group_id="k", member_id="m", member_epoch=3)
    frames = [framed(68, version, request, number) for number in (1, 2)]
    (first,), (second,) = (rig.receive(frame) for frame in frames)
    assert second == first[:4] + b"\0\0\0\2" + first[8:]
    _, position = decode_response_header(68, version, first[4:])
    assert decode(ConsumerGroupHeartbeatResponse, version, first[4:], position).member_epoch == 3
    assert (len(groups.asked), rig.recognised("ConsumerGroupHeartbeat")) == (1, 1)


def test_every_other_byte_makes_it_another_request() -> None:
    rig = Rig(groups=Groups())
    first = beat(7)
    rig.receive(first)
    pattern = rig.path._by_api_and_version[12 << 16 | 4]
    for position in range(4, len(first)):
        changed = bytearray(first)
        changed[position] ^= 0x40
        opened = pattern.open(changed, 4, len(first), len(first))
        assert (opened is not None) == (8 <= position < 12), position
    assert pattern.open(first + b"\0", 4, len(first) + 1, len(first) + 1) is None
    assert pattern.open(first, 4, len(first) - 1, len(first)) is None


def test_one_that_storage_does_not_repeat_is_served_whole_and_repeated_again() -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    rig.receive(beat(1))
    rig.receive(beat(2))
    groups.repeats[0].holds = False
    groups.error = REBALANCE
    (answer,) = rig.receive(beat(3))
    assert read(answer) == (3, HeartbeatResponse(error_code=REBALANCE))
    assert (len(groups.asked), groups.asked[1].correlation_id) == (2, 3)
    assert groups.repeats[0].forgotten == 1
    (answer,) = rig.receive(beat(4))
    assert read(answer) == (4, HeartbeatResponse(error_code=REBALANCE))
    assert (len(groups.asked), groups.repeats[1].repeated) == (2, 1)
    assert rig.finished("Heartbeat") == {(4, "NONE"): 2, (4, "REBALANCE_IN_PROGRESS"): 2}


def test_another_answer_to_a_repeated_heartbeat_is_passed_on() -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    rig.receive(beat(1))
    rig.receive(beat(2))
    groups.repeats[0].answer = groups_pb2.HeartbeatResponse(error_code=REBALANCE)
    (answer,) = rig.receive(beat(3))
    assert read(answer) == (3, HeartbeatResponse(error_code=REBALANCE))
    assert (len(groups.asked), groups.repeats[0].forgotten) == (1, 1)
    for number in (4, 5):
        (answer,) = rig.receive(beat(number))
        assert read(answer) == (number, HeartbeatResponse(error_code=0))
    assert (len(groups.asked), groups.repeats[1].repeated) == (2, 1)
    assert rig.finished("Heartbeat") == {(4, "NONE"): 4, (4, "REBALANCE_IN_PROGRESS"): 1}


def test_the_first_answer_may_come_later() -> None:
    groups = Groups(later=True)
    rig = Rig(groups=groups)
    assert rig.receive(beat(1)) == []
    groups.waiting.pop()()
    (answer,) = rig.receive(beat(2))
    assert read(answer) == (2, HeartbeatResponse(error_code=0))


@pytest.mark.parametrize("length", [KEPT_BYTES_MAX - 26, KEPT_BYTES_MAX])
def test_long_ones_are_not_kept(length: int) -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    frame = beat(7, member_id="m" * length)
    rig.receive(frame)
    rig.receive(frame)
    is_kept = len(frame) - 4 <= KEPT_BYTES_MAX
    assert rig.recognised("Heartbeat") == is_kept
    assert [each.forgotten for each in groups.repeats] == ([0] if is_kept else [1, 1])


def test_only_heartbeats_that_may_be_repeated_are_kept() -> None:
    rig = Rig(groups=Groups(repeatable=False))
    rig.receive(beat(1))
    rig.receive(beat(2))
    assert rig.recognised("Heartbeat") == 0


def test_another_heartbeat_and_the_end_of_the_connection_forget_it() -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    for frame in (beat(1), beat(2, member_id="n"), beat(3, 3)):
        rig.receive(frame)
    assert [each.forgotten for each in groups.repeats] == [1, 1, 0]
    rig.path.close()
    assert groups.repeats[2].forgotten == 1
