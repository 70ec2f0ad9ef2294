"""Outcomes performed for a machine of the test: neither of groups nor of transactions, as another one would be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataKey
from storage_svc.coordinator.hosting.entity_write import EntityWrite
from storage_svc.coordinator.hosting.performer import Performer
from storage_svc.coordinator.machine.events import Timer, TimerKind
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, Outcome, SetTimer

E = ErrorCode
RECORDS = [(GroupMetadataKey(group="g"), None)]
SESSION = Timer(TimerKind.SESSION, "m")


@dataclass(eq=False)
class Entity:
    name: str
    kind: str = "kind"


@dataclass
class Place:
    """The place of an entity."""

    entity: Entity | None
    key: str = "g"
    write: EntityWrite | None = None


@dataclass
class Log:
    """A log that refuses, or accepts and ends each write when the test says so."""

    refuses: bool = False
    ends: list[Callable[[int], None]] = field(default_factory=list)
    written: list[Sequence[Any]] = field(default_factory=list)
    fault: Exception | None = None

    def append(self, _: Place, records: Sequence[Any], done: Callable[[int], None]) -> None:
        self.written.append(records)
        if self.fault is not None:
            raise self.fault
        if self.refuses:
            done(E.MESSAGE_TOO_LARGE)
        else:
            self.ends.append(done)


@dataclass
class Machine:
    """A machine whose events are the outcomes, or functions that make them."""

    seen: list[object] = field(default_factory=list)
    performed_for: list[str] = field(default_factory=list)

    def handle(self, hosted: Place, event: Any, /) -> Outcome[Any]:
        self.seen.append(event)
        return event if isinstance(event, Outcome) else Outcome(hosted.entity)

    def performed(self, _: Place, outcome: Any, /) -> None:
        self.performed_for.append(outcome.entity and outcome.entity.name)


class World:
    def __init__(self) -> None:
        self.log, self.machine = Log(), Machine()
        self.machines = {"kind": self.machine}
        self.by_id: dict[str, Place] = {}
        self.performer = Performer(self.by_id, lambda hosted: self.machines[hosted.entity.kind], self.log.append)
        self.entity = Entity("old")
        self.hosted = Place(self.entity)
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
    assert (world.hosted.entity, world.by_id, world.timer_runs) == (new, {"g": world.hosted}, True)
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
    assert (world.hosted.entity, world.by_id, world.timer_runs) == (world.entity, {}, False)
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


async def test_a_machine_learns_of_its_write_before_the_callers(world: World) -> None:
    seen_at_answer: list[list[object]] = []
    request = world.performer.calls.expect(lambda _: seen_at_answer.append(world.machine.seen[1:]))
    answer = Answer(request, "yes", lambda error: error)
    world.send(Outcome(world.entity, [answer], records=RECORDS, stored=lambda _: "stored"))
    world.log.ends[0](0)
    assert seen_at_answer == [["stored"]]


async def test_an_entity_that_was_replaced_gets_no_event_of_its_write(world: World) -> None:
    world.send(Outcome(world.entity, records=RECORDS, stored=lambda error: "stored"))
    world.send(Outcome(Entity("new"), records=RECORDS * 2))
    for end in world.log.ends:
        end(0)
    assert "stored" not in world.machine.seen
    assert world.log.written == [RECORDS, RECORDS * 2]


async def test_an_outcome_without_an_entity_forgets_it(world: World) -> None:
    world.send(Outcome(Entity("new")))
    assert world.by_id == {"g": world.hosted}
    world.send(Outcome(None, [world.answer("gone")]))
    assert (world.by_id, world.hosted.entity, world.answers) == ({}, None, ["gone"])


async def test_records_that_cannot_be_written_at_all_fail(world: World) -> None:
    world.log.fault = ValueError("broken")
    world.send(Outcome(Entity("new"), [world.answer("yes")], records=RECORDS))
    assert (world.answers, world.hosted.entity) == (["failed UNKNOWN_SERVER_ERROR"], world.entity)


async def test_the_replaced_and_the_new_entity_get_their_events_from_their_own_machines(world: World) -> None:
    others = Machine()
    world.machines["other"] = others
    world.send(Outcome(Entity("new", kind="other"), records=RECORDS, to_replaced="last", to_successor="first"))
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
