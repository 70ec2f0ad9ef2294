"""The classic group: every cell of its table, then its limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataValue
from storage_svc.coordinator.classic import membership
from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    GroupState,
    JoinAnswer,
    JoinedMember,
    LeaveAnswer,
    Leaver,
    Stored,
    SyncAnswer,
    session_timer,
)
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.join_phase import NEW_MEMBER_JOIN_TIMEOUT_MS
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, SetTimer

from tests.unit.storage_svc.coordinator.classic_driver import (
    ALL,
    COMPLETING,
    DEAD,
    EMPTY,
    NOW,
    PREPARING,
    REBALANCE,
    SESSION,
    STABLE,
    STATES,
    Driver,
    E,
    Store,
    answers,
    completing,
    dead,
    empty,
    preparing,
    stable,
    stores,
    timers,
)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (EMPTY, E.UNKNOWN_MEMBER_ID),
        (PREPARING, E.REBALANCE_IN_PROGRESS),
        (COMPLETING, E.NONE),
        (STABLE, E.NONE),
        (DEAD, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_heartbeat_of_a_member(state: GroupState, expected: ErrorCode) -> None:
    assert STATES[state]().heartbeat("a", 1) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (EMPTY, E.UNKNOWN_MEMBER_ID),
        (PREPARING, E.NONE),
        (COMPLETING, E.REBALANCE_IN_PROGRESS),
        (STABLE, E.NONE),
        (DEAD, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_commit_of_a_member(state: GroupState, expected: ErrorCode) -> None:
    assert STATES[state]().commit("a", 1) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (EMPTY, E.NONE),
        (PREPARING, E.UNKNOWN_MEMBER_ID),
        (COMPLETING, E.UNKNOWN_MEMBER_ID),
        (STABLE, E.UNKNOWN_MEMBER_ID),
        (DEAD, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_commit_from_outside_the_group_protocol(state: GroupState, expected: ErrorCode) -> None:
    assert STATES[state]().commit("", -1) == expected


@pytest.mark.parametrize("state", ALL)
def test_join_with_an_unknown_id(state: GroupState) -> None:
    driver = STATES[state]()
    out = driver.join("nobody")
    expected = E.COORDINATOR_NOT_AVAILABLE if state is DEAD else E.UNKNOWN_MEMBER_ID
    assert out == [Answer(driver.request, JoinAnswer(error=expected, member_id="nobody"))]
    assert driver.group.state is state


@pytest.mark.parametrize("state", ALL)
def test_join_of_a_new_dynamic_member_is_given_its_id_first(state: GroupState) -> None:
    driver = STATES[state]()
    out = driver.join(new="c", require_known_member_id=True)
    if state is DEAD:
        assert answers(out) == {driver.request: JoinAnswer(error=E.COORDINATOR_NOT_AVAILABLE)}
        return
    assert out == [
        SetTimer(session_timer("c"), SESSION),
        Answer(driver.request, JoinAnswer(error=E.MEMBER_ID_REQUIRED, member_id="c")),
    ]
    assert driver.group.state is state
    assert driver.group.members.pending == {"c"}


@pytest.mark.parametrize(
    ("state", "entered"),
    [(EMPTY, PREPARING), (PREPARING, PREPARING), (COMPLETING, PREPARING), (STABLE, PREPARING)],
)
def test_join_of_a_pending_member_is_parked(state: GroupState, entered: GroupState) -> None:
    driver = STATES[state]()
    driver.join(new="c", require_known_member_id=True)
    out = driver.join("c")
    assert SetTimer(session_timer("c"), NEW_MEMBER_JOIN_TIMEOUT_MS) in out
    assert driver.request not in answers(out)
    assert driver.group.state is entered
    assert driver.group.members["c"].join_request == driver.request


def test_join_of_a_new_member_before_v4_is_parked_at_once() -> None:
    driver = empty()
    out = driver.join(new="a")
    assert out == [
        SetTimer(session_timer("a"), NEW_MEMBER_JOIN_TIMEOUT_MS),
        SetTimer(JOIN_TIMER, 0),
    ]
    assert driver.group.state is PREPARING


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


@pytest.mark.parametrize("member_id", ["a", "b"])
def test_join_with_the_same_metadata_while_completing_repeats_the_answer(member_id: str) -> None:
    driver = completing()
    out = driver.join(member_id)
    assert driver.group.state is COMPLETING
    (answer,) = out
    assert isinstance(answer, Answer)
    assert isinstance(answer.value, JoinAnswer)
    assert (answer.value.error, answer.value.generation_id, answer.value.leader) == (E.NONE, 1, "a")
    assert len(answer.value.members) == (2 if member_id == "a" else 0)


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


def test_join_of_a_follower_with_the_same_metadata_while_stable_changes_nothing() -> None:
    driver = stable()
    out = driver.join("b")
    assert out == [
        Answer(
            driver.request,
            JoinAnswer(member_id="b", generation_id=1, protocol_type="consumer", protocol_name="range", leader="a"),
        )
    ]
    assert driver.group.state is STABLE


@pytest.mark.parametrize(("member_id", "metadata"), [("a", b"r"), ("b", b"changed")])
def test_join_of_the_leader_or_with_other_metadata_while_stable_rebalances(member_id: str, metadata: bytes) -> None:
    driver = stable()
    out = driver.join(member_id, protocols=(("range", metadata),))
    assert out == [SetTimer(JOIN_TIMER, REBALANCE)]
    assert driver.group.state is PREPARING


def test_sync_in_an_empty_group() -> None:
    driver = empty()
    assert driver.sync("a", 0) == [Answer(driver.request, SyncAnswer(error=E.UNKNOWN_MEMBER_ID))]


def test_sync_while_preparing() -> None:
    driver = preparing()
    assert driver.sync("a", 1) == [Answer(driver.request, SyncAnswer(error=E.REBALANCE_IN_PROGRESS))]


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


def test_sync_while_stable_is_answered_at_once() -> None:
    driver = stable()
    out = driver.sync("b", 1)
    assert answers(out) == {
        driver.request: SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"B")
    }


def test_sync_when_dead() -> None:
    driver = dead()
    assert driver.sync("a", 1) == [Answer(driver.request, SyncAnswer(error=E.COORDINATOR_NOT_AVAILABLE))]


def test_leave_of_an_empty_group() -> None:
    driver = empty()
    out = driver.leave(Leaver("a"))
    assert out == [Answer(driver.request, LeaveAnswer(E.NONE, (E.UNKNOWN_MEMBER_ID,)))]


def test_leave_of_the_last_missing_member_completes_the_join() -> None:
    driver = preparing()
    parked = driver.request
    out = driver.leave(Leaver("a"))
    given = answers(out)
    assert given[driver.request] == LeaveAnswer(E.NONE, (E.NONE,))
    assert driver.group.state is COMPLETING
    answer = given[parked]
    assert isinstance(answer, JoinAnswer)
    assert (answer.leader, answer.generation_id, len(answer.members)) == ("b", 2, 1)


@pytest.mark.parametrize("state", [COMPLETING, STABLE])
def test_leave_rebalances_the_others(state: GroupState) -> None:
    driver = STATES[state]()
    out = driver.leave(Leaver("a"), Leaver("nobody"))
    assert answers(out)[driver.request] == LeaveAnswer(E.NONE, (E.NONE, E.UNKNOWN_MEMBER_ID))
    assert CancelTimer(session_timer("a")) in out
    assert driver.group.state is PREPARING
    assert driver.group.members.leader_id == "b"


def test_leave_of_everybody_empties_the_group_and_stores_that() -> None:
    driver = stable()
    out = driver.leave(Leaver("a"), Leaver("b"))
    assert driver.group.state is EMPTY
    assert stores(out)[0].group == GroupMetadataValue(
        protocol_type="consumer", generation=2, protocol=None, leader=None, current_state_timestamp=NOW, members=()
    )


def test_leave_when_dead() -> None:
    driver = dead()
    out = driver.leave(Leaver("a"))
    assert out == [Answer(driver.request, LeaveAnswer(E.COORDINATOR_NOT_AVAILABLE, ()))]


def test_a_full_group_takes_nobody_new() -> None:
    driver = Driver(size_max=2)
    driver.join(new="a")
    driver.join(new="b", require_known_member_id=True)
    out = driver.join(new="c", require_known_member_id=True)
    assert answers(out) == {driver.request: JoinAnswer(error=E.MEMBER_ID_REQUIRED, member_id="c")}
    driver.join("b")
    out = driver.join("c")
    assert answers(out) == {driver.request: JoinAnswer(error=E.GROUP_MAX_SIZE_REACHED, member_id="c")}
    out = driver.join(new="d", require_known_member_id=True)
    assert answers(out) == {driver.request: JoinAnswer(error=E.GROUP_MAX_SIZE_REACHED)}
    driver.fire(JOIN_TIMER)
    driver.fire(JOIN_TIMER)
    assert driver.group.members.ids() == ["a", "b"]


def test_ids_that_were_handed_out_take_no_place_and_push_no_member_out() -> None:
    """Kafka counts members alone: any number of first JoinGroups costs nobody else a place."""
    driver = Driver(size_max=2)
    for number in range(3):
        out = driver.join(new=f"nobody{number}", require_known_member_id=True)
        assert answers(out)[driver.request].error == E.MEMBER_ID_REQUIRED  # type: ignore[union-attr]
    driver.join(new="a")
    driver.join(new="b")
    driver.fire(JOIN_TIMER)
    assert driver.group.members.ids() == ["a", "b"]
    driver.join("a", protocols=(("range", b"changed"),))
    driver.join("b")
    assert driver.group.members.ids() == ["a", "b"]


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


def test_a_member_that_asks_again_replaces_its_parked_join() -> None:
    driver = preparing()
    first = driver.request
    out = driver.join("b", protocols=(("range", b"changed"),))
    assert answers(out) == {first: JoinAnswer(error=E.REBALANCE_IN_PROGRESS, member_id="b")}
    assert driver.group.members["b"].join_request == driver.request
