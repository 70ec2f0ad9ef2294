"""The classic group as time passes: members that it waits for, how long, and the end of those that do not come."""

from __future__ import annotations

import pytest
from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Commit,
    GroupState,
    Heartbeat,
    JoinAnswer,
    LeaveAnswer,
    Leaver,
    Stored,
    session_timer,
)
from storage_svc.coordinator.classic.group import GroupLimits
from storage_svc.coordinator.machine.outcome import CancelTimer, SetTimer

from tests.unit.storage_svc.coordinator.classic_driver import (
    COMPLETING,
    EMPTY,
    PREPARING,
    REBALANCE,
    SESSION,
    STABLE,
    STATES,
    E,
    answers,
    completing,
    preparing,
    stable,
    static,
    stores,
)


def test_members_that_do_not_rejoin_in_time_are_out() -> None:
    driver = preparing()
    parked = driver.request
    out = driver.fire(JOIN_TIMER)
    assert driver.group.state is COMPLETING
    assert driver.group.members.ids() == ["b"]
    assert driver.group.members.leader_id == "b"
    answer = answers(out)[parked]
    assert isinstance(answer, JoinAnswer)
    assert answer.leader == "b"
    assert CancelTimer(session_timer("a")) in out


def test_static_members_stay_when_they_do_not_rejoin_in_time() -> None:
    driver = static()
    driver.join(new="d")
    out = driver.fire(JOIN_TIMER)
    assert driver.group.state is COMPLETING
    assert driver.group.members.ids() == ["s", "d"]
    assert driver.group.members.leader_id == "d"
    assert driver.group.pending_syncs == {"s", "d"}
    assert driver.group.generation_id == 2
    assert SetTimer(session_timer("s"), SESSION) in out


def test_when_only_absent_static_members_are_left_the_rebalance_waits_on() -> None:
    driver = static()
    driver.join(new="d")
    driver.leave(Leaver("d"))
    assert driver.fire(JOIN_TIMER) == [SetTimer(JOIN_TIMER, REBALANCE)]
    assert driver.group.state is PREPARING
    driver.fire(session_timer("s"))
    assert driver.group.state is EMPTY


def test_a_pending_member_holds_the_rebalance_up_until_its_session_ends() -> None:
    driver = stable()
    driver.join(new="c", require_known_member_id=True)
    driver.join("a")
    driver.join("b")
    assert driver.group.state is PREPARING
    driver.fire(session_timer("c"))
    assert driver.group.state is COMPLETING
    assert driver.group.members.ids() == ["a", "b"]


@pytest.mark.parametrize("state", [COMPLETING, STABLE])
def test_a_pending_member_that_falls_silent_does_not_disturb_the_members(state: GroupState) -> None:
    driver = STATES[state]()
    driver.join(new="c", require_known_member_id=True)
    assert driver.fire(session_timer("c")) == [CancelTimer(session_timer("c"))]
    driver.join(new="e", require_known_member_id=True)
    driver.group.limits = GroupLimits(size_max=2)
    refused = driver.join("e")
    assert answers(refused) == {driver.request: JoinAnswer(error=E.GROUP_MAX_SIZE_REACHED, member_id="e")}
    assert (driver.group.state, driver.group.generation_id, driver.group.members.pending) == (state, 1, set())


@pytest.mark.parametrize(("state", "then"), [(EMPTY, EMPTY), (COMPLETING, PREPARING), (STABLE, PREPARING)])
def test_a_pending_member_that_leaves_is_a_change_as_kafka_has_it(state: GroupState, then: GroupState) -> None:
    driver = STATES[state]()
    driver.join(new="d", require_known_member_id=True)
    left = driver.leave(Leaver("d", "some-name"))
    assert answers(left)[driver.request] == LeaveAnswer(E.NONE, (E.NONE,))
    assert driver.group.state is then


def test_silence_ends_a_membership() -> None:
    driver = stable()
    driver.fire(session_timer("b"))
    assert driver.group.state is PREPARING
    assert driver.group.members.ids() == ["a"]


def test_a_heartbeat_and_a_commit_restart_the_session() -> None:
    driver = stable()
    driver.request += 1
    out = driver.do(Heartbeat(request=driver.request, member_id="b", generation_id=1))
    assert SetTimer(session_timer("b"), SESSION) in out
    driver.request += 1
    out = driver.do(Commit(request=driver.request, member_id="b", generation_id=1))
    assert SetTimer(session_timer("b"), SESSION) in out


def test_the_session_of_a_member_whose_call_is_parked_does_not_end() -> None:
    driver = preparing()
    assert driver.fire(session_timer("b")) == []
    driver = completing()
    driver.sync("b", 1)
    assert driver.fire(session_timer("b")) == []


def test_a_new_member_whose_join_is_parked_for_too_long_is_out() -> None:
    driver = preparing()
    driver.join(new="c")
    parked = driver.request
    out = driver.fire(session_timer("c"))
    assert answers(out) == {parked: JoinAnswer(error=E.UNKNOWN_MEMBER_ID, member_id="c")}


@pytest.mark.parametrize("leader_synced", [False, True])
def test_members_that_do_not_sync_in_time_are_out(leader_synced: bool) -> None:
    driver = completing()
    if leader_synced:
        (store,) = stores(driver.sync("a", 1, assignments={}))
        driver.do(Stored(store.write, E.NONE))
    else:
        driver.sync("b", 1)
    driver.fire(SYNC_TIMER)
    assert driver.group.state is PREPARING
    assert driver.group.members.ids() == (["a"] if leader_synced else ["b"])
