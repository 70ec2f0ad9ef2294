"""The first checks of the classic group: the caller, its generation, its protocol."""

from __future__ import annotations

import pytest
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import JOIN_TIMER, JoinAnswer, Leaver, SyncAnswer
from storage_svc.coordinator.machine.outcome import Answer

from tests.unit.storage_svc.coordinator.classic_driver import (
    RANGE,
    STABLE,
    Driver,
    E,
    answers,
    stable,
    static,
)


@pytest.mark.parametrize(
    ("member_id", "instance_id", "generation_id", "expected"),
    [
        ("s", "one", 1, E.NONE),
        ("s", None, 1, E.NONE),
        ("x", "one", 7, E.FENCED_INSTANCE_ID),
        ("s", "two", 7, E.UNKNOWN_MEMBER_ID),
        ("x", None, 7, E.UNKNOWN_MEMBER_ID),
        ("s", "one", 7, E.ILLEGAL_GENERATION),
        ("s", "one", 0, E.ILLEGAL_GENERATION),
    ],
)
def test_who_calls_is_checked_before_the_generation(
    member_id: str, instance_id: str | None, generation_id: int, expected: ErrorCode
) -> None:
    assert static().heartbeat(member_id, generation_id, instance_id=instance_id) == expected
    assert static().commit(member_id, generation_id, instance_id=instance_id) == expected
    driver = static()
    out = driver.sync(member_id, generation_id, instance_id=instance_id)
    answer = answers(out)[driver.request]
    assert isinstance(answer, SyncAnswer)
    assert answer.error == expected


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "expected"),
    [
        ("consumer", "range", E.NONE),
        (None, None, E.NONE),
        ("connect", "range", E.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_sync_must_name_the_chosen_protocol(
    protocol_type: str | None, protocol_name: str | None, expected: ErrorCode
) -> None:
    driver = stable()
    out = driver.sync("b", 1, protocol_type=protocol_type, protocol_name=protocol_name)
    answer = answers(out)[driver.request]
    assert isinstance(answer, SyncAnswer)
    assert answer.error == expected


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", RANGE), ("consumer", ()), ("connect", RANGE), ("consumer", (("sticky", b""),))],
)
def test_join_without_a_common_protocol(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
    driver = stable()
    out = driver.join(new="c", protocol_type=protocol_type, protocols=protocols)
    assert out == [Answer(driver.request, JoinAnswer(error=E.INCONSISTENT_GROUP_PROTOCOL))]
    assert driver.group.state is STABLE


def test_an_empty_group_takes_any_protocol_type() -> None:
    driver = stable()
    driver.leave(Leaver("a"), Leaver("b"))
    driver.join(new="c", protocol_type="connect", protocols=(("v1", b""),))
    assert driver.group.protocol_type == "connect"


def test_the_protocol_with_most_votes_among_the_common_ones_wins() -> None:
    driver = Driver()
    driver.join(new="a", protocols=(("x", b""), ("y", b"ya"), ("z", b"za")))
    driver.join(new="b", protocols=(("z", b"zb"), ("y", b"yb")))
    driver.join(new="c", protocols=(("z", b"zc"), ("y", b"yc"), ("x", b"")))
    driver.fire(JOIN_TIMER)
    out = driver.fire(JOIN_TIMER)
    leader = answers(out)[1]
    assert isinstance(leader, JoinAnswer)
    assert leader.protocol_name == "z"
    assert [each.metadata for each in leader.members] == [b"za", b"zb", b"zc"]
