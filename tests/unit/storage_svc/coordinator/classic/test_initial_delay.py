"""The delay before the first rebalance of a classic group."""

from __future__ import annotations

from storage_svc.coordinator.classic.events import JOIN_TIMER, Leaver
from storage_svc.coordinator.machine.outcome import SetTimer

from tests.unit.storage_svc.coordinator.classic_driver import (
    COMPLETING,
    PREPARING,
    Driver,
)


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
