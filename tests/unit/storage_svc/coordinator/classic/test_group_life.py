"""The beginning and the end of a classic group: from the log, from a consumer group, and out of the coordinator."""

from __future__ import annotations

import pytest
from protocol_lib.internal.group_metadata import GroupMetadataValue, MemberMetadata
from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    GroupState,
    JoinAnswer,
    Retire,
    SyncAnswer,
    session_timer,
)
from storage_svc.coordinator.classic.group import Group, GroupLimits, InvalidTransitionError
from storage_svc.coordinator.machine.events import RECOVERY, Installed, Removed
from storage_svc.coordinator.machine.outcome import CancelTimer, SetTimer

from tests.unit.storage_svc.coordinator.classic_driver import (
    COMPLETING,
    EMPTY,
    NOW,
    PREPARING,
    REBALANCE,
    SESSION,
    STABLE,
    STATES,
    Driver,
    E,
    answers,
    completing,
    preparing,
    stable,
    timers,
)


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
def test_only_an_empty_group_is_retired(state: GroupState) -> None:
    driver = STATES[state]()
    assert driver.do(Retire()) == []
    assert driver.group.state is state


@pytest.mark.parametrize(("rebalance", "state"), [(False, STABLE), (True, PREPARING)])
def test_a_group_that_was_a_consumer_group_rebalances_if_its_members_must_join_again(
    rebalance: bool, state: GroupState
) -> None:
    driver = stable()
    out = driver.do(Installed(rebalance=rebalance))
    sessions = [SetTimer(session_timer("a"), SESSION), SetTimer(session_timer("b"), SESSION)]
    assert out == [*sessions, *([SetTimer(JOIN_TIMER, REBALANCE)] if rebalance else [])]
    assert driver.group.state is state


def test_a_group_that_is_removed_answers_parked_calls_and_stops_its_timers() -> None:
    driver = preparing()
    parked = driver.request
    driver.join(new="c", require_known_member_id=True)
    out = driver.do(Removed(E.NOT_COORDINATOR))
    assert answers(out) == {parked: JoinAnswer(error=E.NOT_COORDINATOR, member_id="b")}
    assert timers(out) == [
        CancelTimer(session_timer("a")),
        CancelTimer(session_timer("b")),
        CancelTimer(session_timer("c")),
        CancelTimer(JOIN_TIMER),
        CancelTimer(SYNC_TIMER),
        CancelTimer(RECOVERY),
    ]
    driver = completing()
    driver.sync("b", 1)
    assert answers(driver.do(Removed(E.NOT_COORDINATOR))) == {driver.request: SyncAnswer(error=E.NOT_COORDINATOR)}


def test_a_stored_group_comes_back_stable_with_full_sessions() -> None:
    before = stable().group.stored({"a": b"A", "b": b"B"})
    group = Group.restore("g", before, GroupLimits(), NOW + 5)
    group.check_invariants()
    assert Driver(group=group).do(Installed()) == [
        SetTimer(session_timer("a"), SESSION),
        SetTimer(session_timer("b"), SESSION),
    ]
    assert (group.state, group.generation_id, group.protocol_name) == (STABLE, 1, "range")
    assert group.members.leader_id == "a"
    assert group.stored({"a": b"A", "b": b"B"}) == before
    driver = Driver(group=group)
    assert driver.heartbeat("b", 1) == E.NONE


def test_a_stored_group_without_members_comes_back_empty() -> None:
    stored = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol=None, leader=None, current_state_timestamp=77, members=()
    )
    group = Group.restore("g", stored, GroupLimits(), NOW)
    assert Driver(group=group).do(Installed()) == []
    assert (group.state, group.generation_id, group.state_timestamp_ms) == (EMPTY, 4, 77)


def test_a_stored_leader_that_is_no_member_is_replaced() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="one",
        client_id="c",
        client_host="/1.2.3.4",
        rebalance_timeout=5,
        session_timeout=6,
        subscription=b"",
        assignment=b"",
    )
    stored = GroupMetadataValue(
        protocol_type="p",
        generation=1,
        protocol="n",
        leader="gone",
        current_state_timestamp=0,
        members=(member,),
    )
    group = Group.restore("g", stored, GroupLimits(), NOW)
    group.check_invariants()
    assert group.members.leader_id == "m"


def test_an_illegal_transition_is_a_bug_that_tells_the_story() -> None:
    driver = stable()
    with pytest.raises(InvalidTransitionError, match="CompletingRebalance->Stable@1, Stable->Empty@1"):
        driver.group.enter(EMPTY, NOW)
