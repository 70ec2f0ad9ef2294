"""Assignments of a classic group on their way to the log."""

from __future__ import annotations

from storage_svc.coordinator.classic.events import Stored, SyncAnswer
from storage_svc.coordinator.machine.outcome import Answer

from tests.unit.storage_svc.coordinator.classic_driver import (
    PREPARING,
    E,
    answers,
    completing,
)


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
