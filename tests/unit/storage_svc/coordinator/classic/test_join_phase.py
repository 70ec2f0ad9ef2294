"""Static members of a classic group that come back, and are removed."""

from __future__ import annotations

import pytest
from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    JoinAnswer,
    JoinedMember,
    LeaveAnswer,
    Leaver,
    Stored,
    SyncAnswer,
    session_timer,
)
from storage_svc.coordinator.machine.outcome import CancelTimer

from tests.unit.storage_svc.coordinator.classic_driver import (
    COMPLETING,
    EMPTY,
    PREPARING,
    RANGE,
    STABLE,
    Driver,
    E,
    answers,
    static,
    stores,
)


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
