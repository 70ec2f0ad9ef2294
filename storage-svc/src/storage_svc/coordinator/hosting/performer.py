"""Performs the outcomes of all groups' machines: the one place where a decision becomes a record, a timer, an answer.

`machine.outcome` has the order. An event that another one leads to at once (the log refuses a write, a group of the
other protocol takes over) is handled after everything else of the outcome, but for answers that wait for a write.

No timer is lost: one whose event the log refuses, or which raises, is set again. After an exception the group gets
`Recover`, until that succeeds: the event may have changed a part of the group, and its timers were not set.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.coordinator.classic.events import Commit
from storage_svc.coordinator.hosting.group_write import GroupWrite
from storage_svc.coordinator.hosting.hosted_group import HostedGroup
from storage_svc.coordinator.hosting.timers import Timers
from storage_svc.coordinator.hosting.waiting_calls import AnswerT, Call, WaitingCalls
from storage_svc.coordinator.machine.events import RECOVERY, Recover, Timer, TimerFired
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, Outcome, Record, TimerChange
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason
from storage_svc.coordinator.stored.offsets_log import OffsetsLog
from storage_svc.coordinator.stored.records import encode, group_error
from storage_svc.topic_partition import TopicPartition

log = service_logs.get(__name__)

#: Milliseconds after which an event that had no effect is sent again (Kafka's coordinator waits as long).
RETRY_MS: Final = 500


class Machine(Protocol):
    """The machine of one kind of group, and the part of its host that knows this kind."""

    def handle(self, hosted: HostedGroup, event: Any, /) -> Outcome[Any]: ...

    def performed(self, hosted: HostedGroup, outcome: Any, /) -> None:
        """Do the rest that only this kind of group needs; the log has not refused the outcome."""
        ...

    def commit_fault(
        self, hosted: HostedGroup, commit: Commit, partitions: Iterable[TopicPartition], knows_epochs: bool, /
    ) -> ErrorCode:
        """Return why the group does not accept a commit of these partitions; `knows_epochs`: OffsetCommit 9 or newer.

        The group is not forgotten: its offsets follow.
        """
        ...

    def fetch_fault(self, hosted: HostedGroup, member_id: str | None, member_epoch: int, /) -> ErrorCode:
        """Return why a member does not get the group's offsets."""
        ...

    def deleted(self, hosted: HostedGroup, /) -> None:
        """Answer the calls that wait for a group that is hosted no more."""
        ...


class Performer:
    """Owner: the coordinator, on the event loop."""

    def __init__(
        self, by_id: dict[str, HostedGroup], offsets_log: OffsetsLog, wall_clock_ms: Callable[[], int]
    ) -> None:
        """Perform for the groups in `by_id`; a group is added to them by its first outcome."""
        loop = asyncio.get_running_loop()
        self._by_id = by_id
        self._offsets_log = offsets_log
        self._now_ms = wall_clock_ms
        self._machines: dict[type, Machine] = {}
        self._closed = False
        #: The number of rebalances by their cause.
        self.rebalances: Counter[RebalanceReason] = Counter()
        self.calls = WaitingCalls(loop)
        self.timers: Timers[tuple[str, Timer]] = Timers(loop, self._on_timer)

    def add_machine(self, kind: type, machine: Machine) -> None:
        """Send the events of groups of this class to this machine."""
        self._machines[kind] = machine

    def close(self) -> int:
        """End every parked call and return their number; no timer fires any more."""
        self._closed = True
        self.timers.close()
        return self.calls.end()

    # --- events ---------------------------------------------------------------------------------------------------

    def send(self, hosted: HostedGroup, event: Any) -> bool:
        """Have the group's machine handle the event, and perform its outcome. False: the log has refused that, and
        nothing has changed."""
        machine = self.machine_of(hosted)
        try:
            outcome = machine.handle(hosted, event)
        except Exception:
            self._retry((hosted.group.group_id, RECOVERY))
            raise
        return self.perform(hosted, outcome, machine)

    def machine_of(self, hosted: HostedGroup) -> Machine:
        """Return the machine of the group's kind."""
        return self._machines[type(hosted.group)]

    async def ask(self, hosted: HostedGroup, call: Call, kind: type[AnswerT]) -> AnswerT:
        """Have the group's machine handle a call, and return its answer.

        Raises:
            CallsEndedError: `close` was called before there was an answer.
        """
        return await self.calls.ask(call, kind, partial(self.send, hosted))

    def _on_timer(self, key: tuple[str, Timer]) -> None:
        group_id, timer = key
        hosted = self._by_id.get(group_id)
        if hosted is None:
            return
        try:
            is_done = self.send(hosted, Recover() if timer == RECOVERY else TimerFired(timer))
        except Exception:
            log.exception("timer failed", group=group_id, timer=timer.kind.value, member=timer.member_id)
            is_done = False
        if not is_done:  # mutant: timer-survives-refusal
            self._retry(key)

    def _retry(self, key: tuple[str, Timer]) -> None:
        if not self._closed and key not in self.timers:
            self.timers.set(key, RETRY_MS)

    # --- outcomes -------------------------------------------------------------------------------------------------

    def perform(self, hosted: HostedGroup, outcome: Outcome[Any], machine: Machine) -> bool:
        """Perform an outcome. False: the log has refused its records, and nothing has changed."""
        try:
            return self._perform(hosted, outcome, machine)
        except Exception:
            self._retry((hosted.group.group_id, RECOVERY))
            raise

    def _perform(self, hosted: HostedGroup, outcome: Outcome[Any], machine: Machine) -> bool:
        write = hosted.write
        if outcome.records:
            write = self._write(hosted, outcome.records)
            # mutant: refused-change-undone
            if write.error and outcome.stored is None:  # refused: everything is as before
                self._answer(outcome.answers, write)
                return False
        if outcome.entity is not hosted.group:
            self._replace(hosted, outcome)
        if outcome.rebalance is not None:
            self.rebalances[outcome.rebalance] += 1
        self.change_timers(outcome.entity.group_id, outcome.timers)
        if outcome.to_successor is not None:
            self.send(hosted, outcome.to_successor)
        machine.performed(hosted, outcome)
        self._answer(outcome.answers, write)
        if outcome.stored is not None and write is not None:
            write.when_ended(partial(self._stored, hosted, outcome.entity, outcome.stored))
        return True

    def _write(self, hosted: HostedGroup, records: Sequence[Record]) -> GroupWrite:
        write = GroupWrite()

        def ended(code: int) -> None:
            if hosted.write is write:
                hosted.write = None
            write.end(group_error(code))

        # A large group that changes its protocol, or whose members all get another target, has many records.
        try:
            encoded = [encode(record) for record in records]
            # wall clock: timestamps of records
            self._offsets_log.write(hosted.partition, encoded, self._now_ms(), ended, may_compress=len(encoded) > 1)
        except Exception:  # a group that waits for its write would wait for ever
            if write.error is not None:
                raise
            log.exception("cannot write a group", group=hosted.group.group_id)
            write.end(ErrorCode.UNKNOWN_SERVER_ERROR)
        if write.error is None:
            hosted.write = write
        return write

    def _replace(self, hosted: HostedGroup, outcome: Outcome[Any]) -> None:
        if outcome.to_replaced is not None:
            self.send(hosted, outcome.to_replaced)
        hosted.group = outcome.entity  # not of a group: the place of a group
        self._by_id[outcome.entity.group_id] = hosted

    def change_timers(self, group_id: str, changes: Sequence[TimerChange]) -> None:
        for change in changes:
            key = (group_id, change.timer)
            if isinstance(change, CancelTimer):
                self.timers.cancel(key)
            elif not self._closed and not (change.if_absent and key in self.timers):
                self.timers.set(key, change.delay_ms)

    def _answer(self, answers: Sequence[Answer], write: GroupWrite | None) -> None:
        """Answer once `write`, the newest of the group, is durable: a crash undoes no state that a client knows of."""
        for answer in answers:
            if write is None or answer.failed is None:  # mutant: answer-after-records
                self.calls.answer(answer.request, answer.value)
            else:
                write.when_ended(partial(_answer_stored, self.calls.detach(answer.request), answer))

    def _stored(
        self, hosted: HostedGroup, entity: object, stored: Callable[[ErrorCode], object], error: ErrorCode
    ) -> None:
        if hosted.group is entity:  # else another one has replaced it, and no caller waits
            self.send(hosted, stored(error))


def _answer_stored(done: Callable[[Any], None], answer: Answer, error: ErrorCode) -> None:
    done(answer.failed(error) if error and answer.failed is not None else answer.value)
