"""Performs the outcomes of all machines: the one place where a decision becomes a record, a timer, an answer.

`machine.outcome` has the order. An event that another one leads to at once (the log refuses a write, a group of the
other protocol takes over) is handled after everything else of the outcome, but for answers that wait for a write.

No timer is lost: one whose event the log refuses, or which raises, is set again. After an exception the entity gets
`Recover`, until that succeeds: the event may have changed a part of it, and its timers were not set.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.coordinator.hosting.entity_write import EntityWrite
from storage_svc.coordinator.hosting.timers import Timers
from storage_svc.coordinator.hosting.waiting_calls import AnswerT, Call, WaitingCalls
from storage_svc.coordinator.machine.events import RECOVERY, Recover, Timer, TimerFired
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, Outcome, TimerChange
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason
from storage_svc.coordinator.stored.records import group_error

log = service_logs.get(__name__)

#: Milliseconds after which an event that had no effect is sent again (Kafka's coordinator waits as long).
RETRY_MS: Final = 500


class Hosted(Protocol):
    """The place of one entity among those of its coordinator: of a group, or of a transactional id."""

    #: Replaced and never changed by the performer; None for a transactional id that is not known.
    entity: Any
    #: The id of the entity.
    key: str
    #: The newest write of its records; None when all have ended.
    write: EntityWrite | None


HostedT = TypeVar("HostedT", bound=Hosted)


class Machine(Protocol):
    """The machine of one kind of entity, and the part of its host that knows this kind."""

    def handle(self, hosted: Any, event: Any, /) -> Outcome[Any]: ...

    def performed(self, hosted: Any, outcome: Any, /) -> None:
        """Do the rest that only this kind needs; the log has not refused the outcome."""
        ...


MachineT = TypeVar("MachineT", bound=Machine)
#: A function that appends records of an entity as one batch, and calls with Kafka's code when they are durable, or
#: have failed.
Append = Callable[[HostedT, Sequence[Any], Callable[[int], None]], None]


class Performer(Generic[HostedT, MachineT]):
    """Owner: the coordinator, on the event loop."""

    def __init__(
        self, by_id: dict[str, HostedT], machine_of: Callable[[HostedT], MachineT], append: Append[HostedT]
    ) -> None:
        """Perform for the entities in `by_id`; one is added to them by its first outcome, and removed by one without
        an entity."""
        loop = asyncio.get_running_loop()
        self._by_id = by_id
        self.machine_of = machine_of
        self._append = append
        self._closed = False
        #: The number of rebalances by their cause.
        self.rebalances: Counter[RebalanceReason] = Counter()
        self.calls = WaitingCalls(loop)
        self.timers: Timers[tuple[str, Timer]] = Timers(loop, self._on_timer)

    def close(self) -> int:
        """End every parked call and return their number; no timer fires any more."""
        self._closed = True
        self.timers.close()
        return self.calls.end()

    # --- events ---------------------------------------------------------------------------------------------------

    def send(self, hosted: HostedT, event: Any) -> bool:
        """Have the entity's machine handle the event, and perform its outcome. False: the log has refused that, and
        nothing has changed."""
        machine = self.machine_of(hosted)
        try:
            outcome = machine.handle(hosted, event)
        except Exception:
            self._retry((hosted.key, RECOVERY))
            raise
        return self.perform(hosted, outcome, machine)

    async def ask(self, hosted: HostedT, call: Call, kind: type[AnswerT]) -> AnswerT:
        """Have the entity's machine handle a call, and return its answer.

        Raises:
            CallsEndedError: `close` was called before there was an answer.
        """
        return await self.calls.ask(call, kind, partial(self.send, hosted))

    def _on_timer(self, key: tuple[str, Timer]) -> None:
        entity_id, timer = key
        hosted = self._by_id.get(entity_id)
        if hosted is None:
            return
        try:
            is_done = self.send(hosted, Recover() if timer == RECOVERY else TimerFired(timer))
        except Exception:
            log.exception("timer failed", id=entity_id, timer=timer.kind.value, member=timer.member_id)
            is_done = False
        if not is_done:  # mutant: timer-survives-refusal
            self._retry(key)

    def _retry(self, key: tuple[str, Timer]) -> None:
        if not self._closed and key not in self.timers:
            self.timers.set(key, RETRY_MS)

    # --- outcomes -------------------------------------------------------------------------------------------------

    def perform(self, hosted: HostedT, outcome: Outcome[Any], machine: MachineT) -> bool:
        """Perform an outcome. False: the log has refused its records, and nothing has changed."""
        try:
            return self._perform(hosted, outcome, machine)
        except Exception:
            self._retry((hosted.key, RECOVERY))
            raise

    def _perform(self, hosted: HostedT, outcome: Outcome[Any], machine: MachineT) -> bool:
        write = hosted.write
        if outcome.records:
            write = self._write(hosted, outcome.records)
            # mutant: refused-change-undone
            if write.error and outcome.stored is None:  # refused: everything is as before
                self._answer(outcome.answers, write)
                return False
        if outcome.entity is not hosted.entity:
            self._replace(hosted, outcome)
        if outcome.rebalance is not None:
            self.rebalances[outcome.rebalance] += 1
        self.change_timers(hosted.key, outcome.timers)
        if outcome.to_successor is not None:
            self.send(hosted, outcome.to_successor)
        machine.performed(hosted, outcome)
        if outcome.stored is None or write is None:
            self._answer(outcome.answers, write)
        else:  # the machine learns of the end of the write before the callers that wait for it
            self._answer([each for each in outcome.answers if each.failed is None], write)
            write.when_ended(partial(self._stored, hosted, outcome.entity, outcome.stored))
            self._answer([each for each in outcome.answers if each.failed is not None], write)
        return True

    def _write(self, hosted: HostedT, records: Sequence[Any]) -> EntityWrite:
        write = EntityWrite()

        def ended(code: int) -> None:
            if hosted.write is write:
                hosted.write = None
            write.end(group_error(code))

        try:
            self._append(hosted, records, ended)
        except Exception:  # one that waits for its write would wait for ever
            if write.error is not None:
                raise
            log.exception("cannot write records", id=hosted.key)
            write.end(ErrorCode.UNKNOWN_SERVER_ERROR)
        if write.error is None:
            hosted.write = write
        return write

    def _replace(self, hosted: HostedT, outcome: Outcome[Any]) -> None:
        if outcome.to_replaced is not None:
            self.send(hosted, outcome.to_replaced)
        hosted.entity = outcome.entity  # not of a group: the place of a group
        if outcome.entity is None:
            self._by_id.pop(hosted.key, None)
        else:
            self._by_id[hosted.key] = hosted

    def change_timers(self, entity_id: str, changes: Sequence[TimerChange]) -> None:
        for change in changes:
            key = (entity_id, change.timer)
            if isinstance(change, CancelTimer):
                self.timers.cancel(key)
            elif not self._closed and not (change.if_absent and key in self.timers):
                self.timers.set(key, change.delay_ms)

    def _answer(self, answers: Sequence[Answer], write: EntityWrite | None) -> None:
        """Answer once `write`, the newest of the entity, is durable: a crash undoes no state that a client knows of."""
        for answer in answers:
            if write is None or answer.failed is None:  # mutant: answer-after-records
                self.calls.answer(answer.request, answer.value)
            else:
                write.when_ended(partial(_answer_stored, self.calls.detach(answer.request), answer))

    def _stored(self, hosted: HostedT, entity: object, stored: Callable[[ErrorCode], object], error: ErrorCode) -> None:
        if hosted.entity is entity:  # else another one has replaced it, and no caller waits
            self.send(hosted, stored(error))


def _answer_stored(done: Callable[[Any], None], answer: Answer, error: ErrorCode) -> None:
    done(answer.failed(error) if error and answer.failed is not None else answer.value)
