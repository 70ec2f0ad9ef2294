"""A classic group whose clients, log and clock are played by the test: events in, exact instructions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataValue
from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    Commit,
    ErrorAnswer,
    GroupState,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    Retire,
    Stored,
    Sync,
)
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.classic.machine import handle
from storage_svc.coordinator.machine.events import TimerFired
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, Outcome, SetTimer

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
E = ErrorCode
NOW = 1_000_000
SESSION = 10_000
REBALANCE = 60_000
RANGE = (("range", b"r"),)


class Store(NamedTuple):
    """A write that an outcome asks for."""

    #: The number in the `Stored` that follows.
    write: int
    group: GroupMetadataValue


Instruction = SetTimer | CancelTimer | Answer | Store


def instructions(outcome: Outcome[Group]) -> list[Instruction]:
    """Return the outcome as one list: timers, answers, writes."""
    writes = []
    if outcome.stored is not None:
        stored = outcome.stored(E.NONE)
        assert isinstance(stored, Stored)
        ((key, value),) = outcome.records
        assert key.group == outcome.entity.group_id
        writes = [Store(stored.write, value)]
    assert bool(writes) == bool(outcome.records)
    return [*outcome.timers, *outcome.answers, *writes]


class Driver:
    """A test's hold on a group: sends events with fresh request numbers and checks the invariants after each."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 1000, group: Group | None = None) -> None:
        limits = GroupLimits(initial_rebalance_delay_ms=delay_ms, size_max=size_max)
        self.group = group or Group("g", limits, NOW)
        self.request = 0
        self.now_ms = NOW

    def do(self, event: object) -> list[Instruction]:
        outcome = handle(self.group, event, self.now_ms)  # type: ignore[arg-type]
        self.group.check_invariants()
        return instructions(outcome)

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
    """Return a group with generation 0 and no members."""
    return Driver()


def preparing() -> Driver:
    """Return a group with members a (leader, has not rejoined) and b (parked), generation 1."""
    driver = stable()
    driver.join("b", protocols=(("range", b"changed"),))
    assert driver.group.state is PREPARING
    return driver


def completing() -> Driver:
    """Return a group with members a (leader) and b, generation 1, none of which has synced."""
    driver = Driver()
    driver.join(new="a")
    driver.join(new="b")
    driver.fire(JOIN_TIMER)  # delayed once more: b came during the delay
    driver.fire(JOIN_TIMER)
    assert driver.group.state is COMPLETING
    return driver


def stable() -> Driver:
    """Return a group with members a (leader) and b, generation 1, assigned b"A" and b"B"."""
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


def static() -> Driver:
    """Return a group with static member s (instance "one") alone and stable in generation 1."""
    driver = Driver()
    driver.join(new="s", instance_id="one")
    driver.fire(JOIN_TIMER)
    (store,) = stores(driver.sync("s", 1, assignments={"s": b"S"}))
    driver.do(Stored(store.write, E.NONE))
    assert driver.group.state is STABLE
    return driver


STATES: dict[GroupState, Callable[[], Driver]] = {
    EMPTY: empty,
    PREPARING: preparing,
    COMPLETING: completing,
    STABLE: stable,
    DEAD: dead,
}
