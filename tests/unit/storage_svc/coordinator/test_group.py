"""The classic group: every cell of its table, then what spans several events. Stimulus in, exact instructions out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataValue, MemberMetadata
from storage_svc.coordinator.group import Group, GroupLimits, InvalidTransitionError
from storage_svc.coordinator.group_events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    CancelTimer,
    Commit,
    ErrorAnswer,
    GroupState,
    Heartbeat,
    Instruction,
    Join,
    JoinAnswer,
    JoinedMember,
    Leave,
    LeaveAnswer,
    Leaver,
    Retire,
    SetTimer,
    Store,
    Stored,
    Sync,
    SyncAnswer,
    TimerFired,
    session_timer,
)
from storage_svc.coordinator.group_machine import handle
from storage_svc.coordinator.joining import NEW_MEMBER_JOIN_TIMEOUT_MS

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
NOW = 1_000_000
SESSION = 10_000
REBALANCE = 60_000
RANGE = (("range", b"r"),)


class Driver:
    """Sends events with fresh request numbers and checks the invariants after each."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 1000, group: Group | None = None) -> None:
        limits = GroupLimits(initial_rebalance_delay_ms=delay_ms, size_max=size_max)
        self.group = group or Group("g", limits, NOW)
        self.request = 0
        self.now_ms = NOW

    def do(self, event: object) -> list[Instruction]:
        out = handle(self.group, event, self.now_ms)  # type: ignore[arg-type]
        self.group.check_invariants()
        return out

    def join(self, member_id: str = "", new: str = "", **fields: object) -> list[Instruction]:
        self.request += 1
        given = {"session_timeout_ms": SESSION, "rebalance_timeout_ms": REBALANCE, "protocol_type": "consumer"}
        given |= {"protocols": RANGE, **fields}
        return self.do(Join(request=self.request, member_id=member_id, new_member_id=new, **given))  # type: ignore[arg-type]

    def sync(self, member_id: str, generation_id: int, **fields: object) -> list[Instruction]:
        self.request += 1
        return self.do(Sync(request=self.request, member_id=member_id, generation_id=generation_id, **fields))  # type: ignore[arg-type]

    def heartbeat(self, member_id: str, generation_id: int, **fields: object) -> ErrorCode:
        self.request += 1
        out = self.do(
            Heartbeat(request=self.request, member_id=member_id, generation_id=generation_id, **fields)  # type: ignore[arg-type]
        )
        return error_of(out, self.request)

    def commit(self, member_id: str, generation_id: int, **fields: object) -> ErrorCode:
        self.request += 1
        out = self.do(Commit(request=self.request, member_id=member_id, generation_id=generation_id, **fields))  # type: ignore[arg-type]
        return error_of(out, self.request)

    def leave(self, *members: Leaver) -> list[Instruction]:
        self.request += 1
        return self.do(Leave(request=self.request, members=members))

    def fire(self, timer: object) -> list[Instruction]:
        return self.do(TimerFired(timer))  # type: ignore[arg-type]


def answers(out: list[Instruction]) -> dict[int, object]:
    return {each.request: each.value for each in out if isinstance(each, Answer)}


def error_of(out: list[Instruction], request: int) -> ErrorCode:
    answer = answers(out)[request]
    assert isinstance(answer, ErrorAnswer)
    return answer.error


def stores(out: list[Instruction]) -> list[Store]:
    return [each for each in out if isinstance(each, Store)]


def timers(out: list[Instruction]) -> list[SetTimer | CancelTimer]:
    return [each for each in out if isinstance(each, SetTimer | CancelTimer)]


def empty() -> Driver:
    """Generation 0, no members."""
    return Driver()


def preparing() -> Driver:
    """Members a (leader, has not rejoined) and b (parked), generation 1."""
    driver = stable()
    driver.join("b", protocols=(("range", b"changed"),))
    assert driver.group.state is PREPARING
    return driver


def completing() -> Driver:
    """Members a (leader) and b, generation 1, nobody has synced."""
    driver = Driver()
    driver.join(new="a")
    driver.join(new="b")
    driver.fire(JOIN_TIMER)  # delayed once more: b came during the delay
    driver.fire(JOIN_TIMER)
    assert driver.group.state is COMPLETING
    return driver


def stable() -> Driver:
    """Members a (leader) and b, generation 1, assigned b"A" and b"B"."""
    driver = completing()
    (store,) = stores(driver.sync("a", 1, assignments={"a": b"A", "b": b"B"}))
    driver.sync("b", 1)
    driver.do(Stored(store.write, ErrorCode.NONE))
    assert driver.group.state is STABLE
    return driver


def dead() -> Driver:
    driver = Driver()
    driver.do(Retire())
    assert driver.group.state is DEAD
    return driver


STATES: dict[GroupState, Callable[[], Driver]] = {
    EMPTY: empty,
    PREPARING: preparing,
    COMPLETING: completing,
    STABLE: stable,
    DEAD: dead,
}
ALL = tuple(STATES)

E = ErrorCode


# --- the table ------------------------------------------------------------------------------------------------------


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
        Answer(leader, SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"A")),
        SetTimer(session_timer("a"), SESSION),
        Answer(follower, SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"B")),
        SetTimer(session_timer("b"), SESSION),
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


# --- order of the checks --------------------------------------------------------------------------------------------


def static() -> Driver:
    """Static member s (instance "one") alone and stable in generation 1."""
    driver = Driver()
    driver.join(new="s", instance_id="one")
    driver.fire(JOIN_TIMER)
    (store,) = stores(driver.sync("s", 1, assignments={"s": b"S"}))
    driver.do(Stored(store.write, E.NONE))
    assert driver.group.state is STABLE
    return driver


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


# --- timers ---------------------------------------------------------------------------------------------------------


def test_the_initial_delay_is_extended_while_members_arrive_up_to_the_rebalance_timeout() -> None:
    driver = Driver(delay_ms=3000)
    assert SetTimer(JOIN_TIMER, 3000) in driver.join(new="a", rebalance_timeout_ms=8000)
    driver.join(new="b", rebalance_timeout_ms=8000)
    assert driver.fire(JOIN_TIMER) == [SetTimer(JOIN_TIMER, 3000)]
    driver.join(new="c", rebalance_timeout_ms=8000)
    assert driver.fire(JOIN_TIMER) == [SetTimer(JOIN_TIMER, 2000)]
    driver.join(new="d", rebalance_timeout_ms=8000)
    driver.fire(JOIN_TIMER)
    assert driver.group.state is COMPLETING
    assert len(driver.group.members) == 4


def test_the_initial_delay_ends_when_nobody_new_came() -> None:
    driver = Driver(delay_ms=3000)
    driver.join(new="a")
    driver.fire(JOIN_TIMER)
    assert driver.group.state is COMPLETING


def test_leaving_during_the_initial_delay_does_not_end_it() -> None:
    driver = Driver(delay_ms=3000)
    driver.join(new="a")
    driver.join(new="b")
    driver.leave(Leaver("b"))
    assert driver.group.state is PREPARING


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
def test_a_pending_member_that_is_heard_of_no_more_does_not_disturb_the_members(state: GroupState) -> None:
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


# --- storing --------------------------------------------------------------------------------------------------------


def test_an_assignment_that_cannot_be_stored_is_refused_and_a_new_rebalance_begins() -> None:
    driver = completing()
    driver.sync("b", 1)
    follower = driver.request
    driver.sync("a", 1, assignments={"a": b"A"})
    leader = driver.request
    out = driver.do(Stored(1, E.NOT_COORDINATOR))
    assert answers(out) == {
        leader: SyncAnswer(error=E.NOT_COORDINATOR),
        follower: SyncAnswer(error=E.NOT_COORDINATOR),
    }
    assert driver.group.state is PREPARING


def test_an_assignment_that_becomes_durable_after_a_new_rebalance_began_is_ignored() -> None:
    driver = completing()
    driver.sync("a", 1, assignments={"a": b"A"})
    driver.join(new="c")
    assert driver.group.state is PREPARING
    assert driver.do(Stored(1, E.NONE)) == []
    assert driver.group.state is PREPARING


def test_the_leader_that_syncs_again_while_its_assignment_is_stored_does_not_store_twice() -> None:
    driver = completing()
    driver.sync("a", 1, assignments={"a": b"A"})
    first = driver.request
    out = driver.sync("a", 1, assignments={"a": b"other"})
    assert out == [Answer(first, SyncAnswer(error=E.REBALANCE_IN_PROGRESS))]
    out = driver.do(Stored(1, E.NONE))
    assert answers(out) == {
        driver.request: SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"A")
    }


# --- static members -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("supports_skipping", "leader"), [(True, "s2"), (False, "s")])
def test_a_static_member_that_comes_back_while_stable_needs_no_rebalance(supports_skipping: bool, leader: str) -> None:
    driver = static()
    out = driver.join(new="s2", instance_id="one", supports_skipping_assignment=supports_skipping)
    (store,) = stores(out)
    assert [(each.member_id, each.assignment) for each in store.group.members] == [("s2", b"S")]
    assert store.group.leader == "s2"
    assert answers(out) == {}
    assert CancelTimer(session_timer("s")) in out
    out = driver.do(Stored(store.write, E.NONE))
    members = (JoinedMember("s2", "one", b"r"),) if supports_skipping else ()
    assert answers(out) == {
        driver.request: JoinAnswer(
            member_id="s2",
            generation_id=1,
            protocol_type="consumer",
            protocol_name="range",
            leader=leader,
            skip_assignment=supports_skipping,
            members=members,
        )
    }
    assert driver.group.state is STABLE
    assert driver.heartbeat("s", 1, instance_id="one") == E.FENCED_INSTANCE_ID
    assert driver.heartbeat("s2", 1, instance_id="one") == E.NONE


def test_a_static_follower_that_comes_back_has_nothing_to_skip() -> None:
    driver = Driver()
    driver.join(new="a")
    driver.join(new="s", instance_id="one")
    driver.fire(JOIN_TIMER)
    driver.fire(JOIN_TIMER)
    (store,) = stores(driver.sync("a", 1, assignments={"a": b"A", "s": b"S"}))
    driver.do(Stored(store.write, E.NONE))
    (store,) = stores(driver.join(new="s2", instance_id="one", supports_skipping_assignment=True))
    assert answers(driver.do(Stored(store.write, E.NONE))) == {
        driver.request: JoinAnswer(
            member_id="s2",
            generation_id=1,
            protocol_type="consumer",
            protocol_name="range",
            leader="a",
            skip_assignment=False,
        )
    }
    assert answers(driver.sync("s2", 1)) == {
        driver.request: SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"S")
    }


def test_a_static_member_whose_return_cannot_be_stored_keeps_its_old_id() -> None:
    driver = static()
    (store,) = stores(driver.join(new="s2", instance_id="one", protocols=(("range", b"new"),)))
    out = driver.do(Stored(store.write, E.NOT_COORDINATOR))
    assert answers(out) == {driver.request: JoinAnswer(error=E.NOT_COORDINATOR)}
    assert driver.heartbeat("s", 1, instance_id="one") == E.NONE
    assert driver.group.members["s"].protocols == RANGE
    assert driver.group.members.leader_id == "s"


def test_a_static_member_that_comes_back_with_another_choice_of_protocol_rebalances() -> None:
    driver = Driver()
    driver.join(new="s", instance_id="one", protocols=(("range", b"r"), ("sticky", b"s")))
    driver.fire(JOIN_TIMER)
    (store,) = stores(driver.sync("s", 1))
    driver.do(Stored(store.write, E.NONE))
    out = driver.join(new="s2", instance_id="one", protocols=(("sticky", b"s"), ("range", b"r")))
    assert driver.group.state is COMPLETING
    assert driver.group.generation_id == 2
    answer = answers(out)[driver.request]
    assert isinstance(answer, JoinAnswer)
    assert (answer.member_id, answer.protocol_name) == ("s2", "sticky")


def test_a_static_member_that_comes_back_while_completing_rebalances_and_fences_the_old_one() -> None:
    driver = Driver()
    driver.join(new="a")
    driver.join(new="s", instance_id="one")
    driver.fire(JOIN_TIMER)
    driver.fire(JOIN_TIMER)
    driver.sync("s", 1, instance_id="one")
    parked = driver.request
    out = driver.join(new="s2", instance_id="one")
    assert answers(out) == {parked: SyncAnswer(error=E.FENCED_INSTANCE_ID)}
    assert driver.group.state is PREPARING
    assert driver.group.members.ids() == ["a", "s2"]


def test_a_static_member_that_comes_back_while_preparing_fences_the_parked_join() -> None:
    driver = Driver(delay_ms=3000)
    driver.join(new="s", instance_id="one")
    parked = driver.request
    out = driver.join(new="s2", instance_id="one")
    assert answers(out) == {parked: JoinAnswer(error=E.FENCED_INSTANCE_ID, member_id="s")}
    driver.fire(JOIN_TIMER)
    assert driver.group.members.ids() == ["s2"]


def test_an_operator_removes_a_static_member_by_its_name() -> None:
    driver = static()
    out = driver.leave(Leaver("", "two"), Leaver("", "one"))
    assert answers(out)[driver.request] == LeaveAnswer(E.NONE, (E.UNKNOWN_MEMBER_ID, E.NONE))
    assert driver.group.state is EMPTY


def test_a_pending_member_cannot_claim_a_static_name() -> None:
    driver = static()
    driver.join(new="c", require_known_member_id=True)
    for instance_id, expected in (("one", E.FENCED_INSTANCE_ID), ("two", E.UNKNOWN_MEMBER_ID)):
        out = driver.join("c", instance_id=instance_id)
        assert answers(out) == {driver.request: JoinAnswer(error=expected, member_id="c")}


# --- limits, retirement, restoring ----------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_new() -> None:
    driver = Driver(size_max=2)
    driver.join(new="a")
    driver.join(new="b", require_known_member_id=True)
    out = driver.join(new="c", require_known_member_id=True)
    assert answers(out) == {driver.request: JoinAnswer(error=E.GROUP_MAX_SIZE_REACHED)}
    driver.join("b")
    out = driver.join(new="c")
    assert answers(out) == {driver.request: JoinAnswer(error=E.GROUP_MAX_SIZE_REACHED)}
    driver.fire(JOIN_TIMER)
    driver.fire(JOIN_TIMER)
    assert driver.group.members.ids() == ["a", "b"]


def test_a_member_that_asks_again_replaces_its_parked_join() -> None:
    driver = preparing()
    first = driver.request
    out = driver.join("b", protocols=(("range", b"changed"),))
    assert answers(out) == {first: JoinAnswer(error=E.REBALANCE_IN_PROGRESS, member_id="b")}
    assert driver.group.members["b"].join_request == driver.request


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
def test_only_an_empty_group_is_retired(state: GroupState) -> None:
    driver = STATES[state]()
    assert driver.do(Retire()) == []
    assert driver.group.state is state


def test_a_stored_group_comes_back_stable_with_full_sessions() -> None:
    before = stable().group.stored({"a": b"A", "b": b"B"})
    group, out = Group.restore("g", before, GroupLimits(), NOW + 5)
    group.check_invariants()
    assert out == [SetTimer(session_timer("a"), SESSION), SetTimer(session_timer("b"), SESSION)]
    assert (group.state, group.generation_id, group.protocol_name) == (STABLE, 1, "range")
    assert group.members.leader_id == "a"
    assert group.stored({"a": b"A", "b": b"B"}) == before
    driver = Driver(group=group)
    assert driver.heartbeat("b", 1) == E.NONE


def test_a_stored_group_without_members_comes_back_empty() -> None:
    stored = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol=None, leader=None, current_state_timestamp=77, members=()
    )
    group, out = Group.restore("g", stored, GroupLimits(), NOW)
    assert out == []
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
    group, _ = Group.restore("g", stored, GroupLimits(), NOW)
    group.check_invariants()
    assert group.members.leader_id == "m"


def test_an_illegal_transition_is_a_bug_that_tells_the_story() -> None:
    driver = stable()
    with pytest.raises(InvalidTransitionError, match="CompletingRebalance->Stable@1, Stable->Empty@1"):
        driver.group.enter(EMPTY)
