"""The classic group's instructions for its host, and its bounds. Its answers: tests/groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from protocol_lib.internal.group_metadata import GroupMetadataValue
from storage_svc.coordinator.classic import membership
from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    JoinAnswer,
    JoinedMember,
    LeaveAnswer,
    Leaver,
    Stored,
    SyncAnswer,
    session_timer,
)
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, SetTimer

from tests.unit.storage_svc.coordinator.classic_driver import (
    COMPLETING,
    DEAD,
    EMPTY,
    NOW,
    PREPARING,
    REBALANCE,
    SESSION,
    STABLE,
    Driver,
    E,
    Store,
    answers,
    completing,
    dead,
    preparing,
    stable,
    stores,
    timers,
)


def test_join_of_a_known_member_while_preparing_completes_when_all_are_in() -> None:
    driver = preparing()
    parked = driver.request
    out = driver.join("a")
    assert driver.group.state is COMPLETING
    assert driver.group.generation_id == 2
    given = answers(out)
    assert given[parked] == JoinAnswer(
        member_id="b", generation_id=2, protocol_type="consumer", protocol_name="range", leader="a"
    )
    assert given[driver.request] == JoinAnswer(
        member_id="a",
        generation_id=2,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        members=(JoinedMember("a", None, b"r"), JoinedMember("b", None, b"changed")),
    )
    assert timers(out) == [
        CancelTimer(JOIN_TIMER),
        SetTimer(session_timer("a"), SESSION),
        SetTimer(session_timer("b"), SESSION),
        SetTimer(SYNC_TIMER, REBALANCE),
    ]


def test_join_with_other_metadata_while_completing_rebalances() -> None:
    driver = completing()
    driver.sync("a", 1, assignments={})
    parked = driver.request
    out = driver.join("b", protocols=(("range", b"changed"),))
    assert driver.group.state is PREPARING
    assert answers(out) == {parked: SyncAnswer(error=E.REBALANCE_IN_PROGRESS)}
    assert timers(out) == [
        SetTimer(session_timer("a"), SESSION),
        CancelTimer(SYNC_TIMER),
        SetTimer(JOIN_TIMER, REBALANCE),
    ]


def test_sync_while_completing_is_parked_until_the_leaders_assignment_is_durable() -> None:
    driver = completing()
    assert driver.sync("b", 1) == []
    follower = driver.request
    out = driver.sync("a", 1, assignments={"a": b"A", "b": b"B", "stranger": b"S"})
    leader = driver.request
    assert out == [CancelTimer(SYNC_TIMER), Store(1, driver.group.stored({"a": b"A", "b": b"B"}))]
    stored = stores(out)[0].group
    assert [(each.member_id, each.assignment) for each in stored.members] == [("a", b"A"), ("b", b"B")]
    assert driver.group.state is COMPLETING
    out = driver.do(Stored(1, E.NONE))
    assert driver.group.state is STABLE
    assert out == [
        SetTimer(session_timer("a"), SESSION),
        SetTimer(session_timer("b"), SESSION),
        Answer(leader, SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"A")),
        Answer(follower, SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"B")),
    ]


def test_leave_of_everybody_empties_the_group_and_stores_that() -> None:
    driver = stable()
    out = driver.leave(Leaver("a"), Leaver("b"))
    assert driver.group.state is EMPTY
    assert stores(out)[0].group == GroupMetadataValue(
        protocol_type="consumer", generation=2, protocol=None, leader=None, current_state_timestamp=NOW, members=()
    )


def test_the_work_of_a_join_does_not_grow_with_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka keeps counters. Only the begin and the end of a rebalance go over all members."""
    walks = 0
    walk = membership.Membership.__iter__

    def counted(members: membership.Membership) -> Iterator[Member]:
        nonlocal walks
        walks += 1
        return walk(members)

    driver = Driver(delay_ms=3000)
    with monkeypatch.context() as patched:
        patched.setattr(membership.Membership, "__iter__", counted)
        patched.setattr(Group, "check_invariants", lambda _: None)
        for number in range(100):
            driver.join(new=f"m{number}", rebalance_timeout_ms=1)
        driver.fire(JOIN_TIMER)
        assert driver.group.state is COMPLETING
        for number in range(99):
            driver.join(f"m{number}", protocols=(("range", b"changed"),))
    assert driver.group.state is PREPARING
    assert walks < 20


def test_the_oldest_pending_id_goes_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "PENDING_MAX", 2)
    driver = Driver()
    for name in "abc":
        out = driver.join(new=name, require_known_member_id=True, session_timeout_ms=1_800_000)
        assert SetTimer(session_timer(name), 60_000) in out
    assert CancelTimer(session_timer("a")) in out
    assert driver.group.members.pending == {"b", "c"}
    out = driver.join("a")
    assert answers(out) == {driver.request: JoinAnswer(error=E.UNKNOWN_MEMBER_ID, member_id="a")}


def test_a_dead_group_sends_all_callers_to_look_for_their_coordinator() -> None:
    driver, gone = dead(), E.COORDINATOR_NOT_AVAILABLE
    assert (driver.heartbeat("a", 1), driver.commit("a", 1), driver.commit("", -1)) == (gone, gone, gone)
    assert driver.sync("a", 1) == [Answer(driver.request, SyncAnswer(error=gone))]
    assert driver.leave(Leaver("a")) == [Answer(driver.request, LeaveAnswer(gone, ()))]
    assert driver.join("a") == [Answer(driver.request, JoinAnswer(error=gone, member_id="a"))]
    assert driver.join(new="c", require_known_member_id=True) == [Answer(driver.request, JoinAnswer(error=gone))]
    assert driver.group.state is DEAD
