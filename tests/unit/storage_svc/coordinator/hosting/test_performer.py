"""Outcomes performed for a machine of the test: neither of the two protocols, as a third kind of group would be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataKey
from storage_svc.coordinator.hosting.hosted_group import HostedGroup
from storage_svc.coordinator.hosting.performer import Performer
from storage_svc.coordinator.machine.events import Timer, TimerKind
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, Outcome, SetTimer
from storage_svc.coordinator.stored.committed_offsets import CommittedOffsets

E = ErrorCode
RECORDS = [(GroupMetadataKey(group="g"), None)]
SESSION = Timer(TimerKind.SESSION, "m")


@dataclass(eq=False)
class Entity:
    name: str
    group_id: str = "g"
    members: tuple[str, ...] = ()


class Other(Entity):
    """An entity of another machine."""


@dataclass
class Log:
    """A log that refuses, or accepts and ends each write when the test says so."""

    refuses: bool = False
    ends: list[Callable[[int], None]] = field(default_factory=list)
    may_compress: list[bool] = field(default_factory=list)

    def write(self, partition: int, records: list[Any], now_ms: int, done: Any, *, may_compress: bool) -> None:
        self.may_compress.append(may_compress)
        if self.refuses:
            done(E.MESSAGE_TOO_LARGE)
        else:
            self.ends.append(done)


@dataclass
class Machine:
    """A machine whose events are the outcomes, or functions that make them."""

    seen: list[object] = field(default_factory=list)
    performed_for: list[str] = field(default_factory=list)

    def handle(self, hosted: HostedGroup, event: Any, /) -> Outcome[Any]:
        self.seen.append(event)
        return event if isinstance(event, Outcome) else Outcome(hosted.group)

    def performed(self, hosted: HostedGroup, outcome: Any, /) -> None:
        self.performed_for.append(outcome.entity.name)


class World:
    def __init__(self) -> None:
        self.log, self.machine, self.by_id = Log(), Machine(), {}  # type: ignore[var-annotated]
        self.performer = Performer(self.by_id, self.log, lambda: 0)  # type: ignore[arg-type]
        self.performer.add_machine(Entity, self.machine)
        self.entity = Entity("old")
        self.hosted = HostedGroup(self.entity, 0, CommittedOffsets({}))  # type: ignore[arg-type]
        self.answers: list[object] = []

    def answer(self, value: str, *, waits: bool = True) -> Answer:
        request = self.performer.calls.expect(self.answers.append)
        return Answer(request, value, (lambda error: f"failed {error.name}") if waits else None)

    def send(self, outcome: object) -> None:
        self.performer.send(self.hosted, outcome)

    @property
    def timer_runs(self) -> bool:
        return ("g", SESSION) in self.performer.timers


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.performer.close()


async def test_a_new_entity_counts_once_the_log_has_accepted_its_records_and_answers_wait_for_the_disk(
    world: World,
) -> None:
    new = Entity("new")
    outcome = Outcome(new, [world.answer("yes"), world.answer("now", waits=False)], [SetTimer(SESSION, 9_000)], RECORDS)
    world.send(outcome)
    assert (world.hosted.group, world.by_id, world.timer_runs) == (new, {"g": world.hosted}, True)
    assert world.answers == ["now"]
    world.send(Outcome(new, [world.answer("after that")]))  # without records, but a crash could undo the state
    assert world.answers == ["now"]
    world.log.ends[0](0)
    assert (world.answers, world.hosted.write) == (["now", "yes", "after that"], None)
    world.send(Outcome(new, [world.answer("at once")]))
    assert world.answers[-1] == "at once"


async def test_an_outcome_whose_records_are_refused_leaves_everything_as_it_was(world: World) -> None:
    world.log.refuses = True
    world.send(Outcome(Entity("new"), [world.answer("yes")], [SetTimer(SESSION, 9_000)], RECORDS))
    assert (world.hosted.group, world.by_id, world.timer_runs) == (world.entity, {}, False)
    assert (world.answers, world.machine.performed_for) == (["failed UNKNOWN_SERVER_ERROR"], [])


async def test_records_that_fail_later_fail_the_answers_that_wait(world: World) -> None:
    world.send(Outcome(Entity("new"), [world.answer("yes")], records=RECORDS))
    world.log.ends[0](E.KAFKA_STORAGE_ERROR)
    assert world.answers == ["failed NOT_COORDINATOR"]


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_machine_that_waits_for_its_write_gets_an_event(world: World, refuses: bool) -> None:
    world.log.refuses = refuses
    outcome: Outcome[Entity] = Outcome(
        world.entity,
        [world.answer("parked no more", waits=False)],
        [SetTimer(SESSION, 9_000)],
        RECORDS,
        stored=lambda error: f"stored {error.name}",
    )
    world.send(outcome)
    assert (world.answers, world.timer_runs) == (["parked no more"], True)
    if not refuses:
        assert world.machine.seen == [outcome]
        world.log.ends[0](0)
    assert world.machine.seen == [outcome, "stored UNKNOWN_SERVER_ERROR" if refuses else "stored NONE"]


async def test_an_entity_that_was_replaced_gets_no_event_of_its_write(world: World) -> None:
    world.send(Outcome(world.entity, records=RECORDS, stored=lambda error: "stored"))
    world.send(Outcome(Entity("new"), records=RECORDS * 2))
    for end in world.log.ends:
        end(0)
    assert "stored" not in world.machine.seen
    assert world.log.may_compress == [False, True]


async def test_the_replaced_and_the_new_entity_get_their_events_from_their_own_machines(world: World) -> None:
    others = Machine()
    world.performer.add_machine(Other, others)
    world.send(Outcome(Other("new"), records=RECORDS, to_replaced="last", to_successor="first"))
    assert world.machine.seen[1:] == ["last"]
    assert others.seen == ["first"]
    assert world.machine.performed_for == ["old", "new"]
    assert others.performed_for == ["new"]


async def test_timers_start_stop_and_stay_as_they_are(world: World) -> None:
    world.send(Outcome(world.entity, timers=[SetTimer(SESSION, 9_000)]))
    started = world.performer.timers.running(("g", SESSION))
    assert started is not None
    at = started.at
    world.send(Outcome(world.entity, timers=[SetTimer(SESSION, 99_000, if_absent=True)]))
    assert started.at == at
    world.send(Outcome(world.entity, timers=[SetTimer(SESSION, 99_000)]))
    assert started.at > at
    world.send(Outcome(world.entity, timers=[CancelTimer(SESSION)]))
    assert not world.timer_runs
    world.performer.close()
    world.send(Outcome(world.entity, timers=[SetTimer(SESSION, 9_000)]))
    assert not world.timer_runs
