"""The transaction coordinator: hosts the machine of every transactional id, on the topic `__transaction_state`.

A transactional id lives in the partition that it hashes to. Partitions load one after the other at the start, and calls
are answered COORDINATOR_LOAD_IN_PROGRESS until theirs is loaded. A client learns of a transition once its record is
durable. Markers of prepared transactions are written until every partition has one, also after a crash.

Everything runs on one event loop, and every call decides synchronously before it waits: no lock is needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.transaction_log import TransactionState
from protocol_lib.records.record import write_tail
from service_chassis import logs as service_logs

from storage_svc.coordinator.hosting.load_order import LoadOrder
from storage_svc.coordinator.hosting.served_partitions import ServedPartitions
from storage_svc.coordinator.stored.internal_log import InternalLog
from storage_svc.coordinator.stored.partition_loader import load
from storage_svc.coordinator.stored.records import STRING_BYTES_MAX, group_error
from storage_svc.coordinator.transactions import machine
from storage_svc.coordinator.transactions.events import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    Event,
    Expire,
    InitProducer,
    MarkersWritten,
    Recover,
    Stored,
    TransactionAnswer,
    TransactionOutcome,
)
from storage_svc.coordinator.transactions.loaded_transactions import LoadedTransactions
from storage_svc.coordinator.transactions.marker_delivery import RETRY_S, MarkerDelivery
from storage_svc.coordinator.transactions.records import encode_key, encode_value
from storage_svc.coordinator.transactions.settings import TransactionSettings
from storage_svc.coordinator.transactions.transaction import EPOCH_BUMP_VERSION, STATE_NAMES, Entry, Transaction
from storage_svc.coordinator.transactions.waiting_additions import Done, WaitingAdditions
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.producer_ids import ProducerIds
from storage_svc.transaction_ports import Marker, MarkerWriter

log = service_logs.get(__name__)

#: Partitions in all transactions together: each takes some 150 bytes of memory until it has its marker.
_PARTITIONS_MAX: Final = 1_000_000
#: Transactional ids that a sweep checks without a turn for others.
_SWEPT_PIECE: Final = 200


class TransactionCoordinator:
    """All transactional ids, and `OngoingTransactions` for the logs."""

    def __init__(
        self,
        transactions_log: InternalLog,
        settings: TransactionSettings,
        producer_ids: ProducerIds,
        # wall clock: the begin and the last change of a transaction, which are stored
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._log = transactions_log
        self._settings = settings
        self._producer_ids = producer_ids
        self._now_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._entries: dict[str, Entry] = {}
        #: Transactional ids with an ongoing transaction.
        self._ongoing: set[str] = set()
        #: The number of partitions in all transactions.
        self._partition_count = 0
        self._delivery = MarkerDelivery(self._markers_written)
        self._additions = WaitingAdditions()
        self._partitions = ServedPartitions(transactions_log.topic)
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        transactions_log.on_offline = self._on_offline

    # --- life -----------------------------------------------------------------------------------------------------

    @property
    def fault_of_service(self) -> str | None:
        """A reason why some transactional ids cannot be served; None when all can, or will be."""
        return self._partitions.fault

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def start(self, markers: MarkerWriter, order: LoadOrder | None = None) -> asyncio.Task[None]:
        """Begin to load in an order shared with the groups; the returned task ends when all is loaded, or failed."""
        self._delivery.start(markers)
        logs = self._log.to_load()
        self._partitions.begin_loading({each.partition: each.segments.size_bytes for each in logs})
        loading = asyncio.create_task(self._load(order or LoadOrder(), logs), name="load transactions")
        self._tasks = [
            loading,
            asyncio.create_task(self._abort_for_ever(), name="abort transactions"),
            asyncio.create_task(self._expire_for_ever(), name="expire transactional ids"),
        ]
        return loading

    async def stop(self) -> None:
        """Refuse later calls, answer those that wait, and write no more markers: the next start does."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._delivery.close()
        self._additions.end(TransactionAnswer(ErrorCode.NOT_COORDINATOR))
        await self._log.finish()

    async def _load(self, order: LoadOrder, logs: Sequence[PartitionLog]) -> None:
        async def load_transactions(each: PartitionLog) -> None:
            await self._install(each.partition, await load(each, LoadedTransactions))

        await order.load(self._partitions, logs, load_transactions)
        if logs:
            log.info("transactions loaded", transactional_ids=len(self._entries), partitions=len(logs))

    async def _install(self, partition: int, loaded: LoadedTransactions) -> None:
        """Hold the transactional ids of a partition, some in a turn; no more of them once it is lost."""
        for piece in _pieces(list(loaded.transactions)):
            if self._partitions.is_lost(partition):
                return
            for transactional_id in piece:
                self._set(transactional_id, Entry(loaded.transactions[transactional_id]))
                self._send(transactional_id, Recover())  # mutant: prepared-recovered
            await asyncio.sleep(0)

    def _on_offline(self, partition: int, reason: str) -> None:
        """Stop serving the ids of a partition: it is unknown which of its last records are on the disk."""
        if self._partitions.lost(partition, reason):
            self._loop.call_soon(self._unload, partition)

    def _unload(self, partition: int) -> None:
        lost = [each for each in self._entries if self._log.partition_of(each) == partition]
        for transactional_id in lost:
            self._delivery.forget(transactional_id)
            self._set(transactional_id, None)
            for _, callers in self._additions.take(transactional_id):
                for done in callers:
                    done(TransactionAnswer(ErrorCode.NOT_COORDINATOR))
        log.error("transactional ids are not served any more", partition=partition, transactional_ids=len(lost))

    # --- calls ----------------------------------------------------------------------------------------------------

    async def init_producer(self, transactional_id: str, init: InitProducer) -> TransactionAnswer:
        """Return the producer id and epoch of a transactional producer, once they are durable."""
        if not 0 < init.timeout_ms <= self._settings.max_timeout_ms and transactional_id:
            return TransactionAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transactional_id not in self._entries and len(self._entries) >= self._settings.ids_max:
            log.warning("too many transactional ids", transactional_ids=len(self._entries))
            return TransactionAnswer(ErrorCode.POLICY_VIOLATION)
        return await self._answered(transactional_id, init)

    async def add_partitions(self, transactional_id: str, add: AddPartitions) -> ErrorCode:
        """Add partitions to the transaction, and return NONE once they are durable."""
        return (await self._answered(transactional_id, add)).error

    async def end(self, transactional_id: str, end: EndTransaction) -> TransactionAnswer:
        """Commit or abort; return once that is decided for good. The markers follow."""
        answer = await self._answered(transactional_id, end)
        if answer.error:
            log.info("transaction does not end", transactional_id=transactional_id, error_code=answer.error)
        return answer

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        done: Callable[[Sequence[ErrorCode]], None],
    ) -> None:
        done(self.faults(transactional_id, producer_id, producer_epoch, partitions))

    def faults(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        """Return the code of each partition, as `verify` gives it to its caller."""
        if error := self._id_fault(transactional_id):
            return [error] * len(partitions)
        entry = self._entries.get(transactional_id)
        return [machine.fault(entry, producer_id, producer_epoch, each) for each in partitions]

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode], None],
    ) -> None:
        event = AddPartitions(producer_id, producer_epoch, frozenset(partitions), EPOCH_BUMP_VERSION)
        self._ask(transactional_id, event, lambda answer: done(answer.error))

    def find(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """Return the durable state of a transactional id, or None for an unknown one."""
        error = self._id_fault(transactional_id)
        entry = None if error else self._entries.get(transactional_id)
        stored = None if entry is None else entry.stored
        expires = entry is not None and entry.pending is not None and entry.pending.state is TransactionState.DEAD
        return error, None if expires else stored

    def listing_fault(self) -> ErrorCode:
        """Return the reason why the transactional ids cannot be listed."""
        if self._stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._partitions.is_loading else ErrorCode.NONE

    def counts(self) -> dict[str, int]:
        """Return the number of transactional ids by Kafka's name of their state."""
        counts = dict.fromkeys(STATE_NAMES.values(), 0)
        for entry in list(self._entries.values()):  # a copy: metrics are collected by another thread
            if entry.stored is not None:
                counts[STATE_NAMES[entry.stored.state]] += 1
        return counts

    def _id_fault(self, transactional_id: str) -> ErrorCode:
        if self._stopping:
            return ErrorCode.NOT_COORDINATOR
        if not transactional_id or len(transactional_id.encode(errors="surrogatepass")) > STRING_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        # The hash of a long id takes milliseconds.
        # mutant: hash-when-loaded
        return self._partitions.error(self._log.partition_of(transactional_id)) if self._partitions else ErrorCode.NONE

    async def _answered(self, transactional_id: str, event: Event) -> TransactionAnswer:
        answered: asyncio.Future[TransactionAnswer] = self._loop.create_future()

        def done(answer: TransactionAnswer) -> None:
            if not answered.done():  # or its client has left
                answered.set_result(answer)

        self._ask(transactional_id, event, done)
        return await answered

    def _ask(self, transactional_id: str, event: Event, done: Done) -> None:
        """Handle a call. An addition that a transition under way stands against waits for its end."""
        if error := self._id_fault(transactional_id):
            done(TransactionAnswer(error))
            return
        if isinstance(event, AddPartitions) and self._partition_count + len(event.partitions) > _PARTITIONS_MAX:
            log.warning("too many partitions in transactions", partitions=self._partition_count)
            done(TransactionAnswer(ErrorCode.POLICY_VIOLATION))
            return

        def answer(found: TransactionAnswer) -> None:
            entry = self._entries.get(transactional_id)
            if (
                found.error is ErrorCode.CONCURRENT_TRANSACTIONS
                and isinstance(event, AddPartitions)
                and entry is not None
                and entry.pending is not None
                and self._additions.add(transactional_id, event, found, done)
            ):
                return
            done(found)

        self._send(transactional_id, event, answer)

    # --- events ---------------------------------------------------------------------------------------------------

    def _send(self, transactional_id: str, event: Event, done: Done | None = None) -> None:
        """Have the machine handle an event, and perform its outcome."""
        entry = self._entries.get(transactional_id)
        # wall clock: the begin and the last change of a transaction, which are stored
        outcome = machine.handle(transactional_id, entry, event, self._now_ms(), self._producer_ids.spare)
        if outcome.needs_id:
            self._producer_ids.when_filled(partial(self._send_again, transactional_id, event, done))
            return
        if outcome.takes_id:
            self._producer_ids.take()
        self._perform(transactional_id, outcome, done)

    def _send_again(self, transactional_id: str, event: Event, done: Done | None, is_filled: bool) -> None:
        """Handle an event that needed a producer id, in the state that the transactional id has by now."""
        error = self._id_fault(transactional_id) or (
            ErrorCode.NONE if is_filled else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        if not error:
            self._send(transactional_id, event, done)
        elif done is not None:
            done(TransactionAnswer(error))

    def _perform(self, transactional_id: str, outcome: TransactionOutcome, done: Done | None) -> None:
        self._set(transactional_id, outcome.entry)
        if outcome.markers and not self._stopping:
            self._begin_markers(transactional_id, outcome)
        if outcome.must_recover:
            self._loop.call_later(RETRY_S, self._recover, transactional_id)
        if outcome.record is not None:
            tail = write_tail(encode_key(transactional_id), encode_value(outcome.record))
            stored = partial(self._stored, transactional_id, outcome, done)
            self._log.gather(self._log.partition_of(transactional_id), [tail], self._now_ms(), stored)
        elif done is not None and outcome.answer is not None:
            done(outcome.answer)

    def _begin_markers(self, transactional_id: str, outcome: TransactionOutcome) -> None:
        assert outcome.entry is not None
        stored = outcome.entry.stored
        assert stored is not None
        marker = Marker(
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            commit=stored.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self._log.leader_epoch(self._log.partition_of(transactional_id)),
            transaction_version=stored.client_version,
            is_own=True,
        )
        self._delivery.begin(transactional_id, marker, outcome.markers)

    def _stored(self, transactional_id: str, outcome: TransactionOutcome, done: Done | None, code: int) -> None:
        entry, error = self._entries.get(transactional_id), group_error(code)
        if entry is None or entry.pending is not outcome.record:  # its partition was lost
            error = error or ErrorCode.NOT_COORDINATOR
        else:
            self._send(transactional_id, Stored(error))
        if done is not None and outcome.answer is not None:
            done(TransactionAnswer(error) if error else outcome.answer)
        self._handle_waiting_additions(transactional_id)

    def _recover(self, transactional_id: str) -> None:
        if not self._stopping:
            self._send(transactional_id, Recover())

    def _markers_written(self, transactional_id: str, partitions: frozenset[TopicPartition]) -> None:
        self._send(transactional_id, MarkersWritten(partitions))

    def _handle_waiting_additions(self, transactional_id: str) -> None:
        """Handle the additions that waited, unless another transition is under way."""
        entry = self._entries.get(transactional_id)
        if entry is not None and entry.pending is not None:
            return
        for event, callers in self._additions.take(transactional_id):
            self._ask(transactional_id, event, partial(_call_all, callers))

    def _set(self, transactional_id: str, entry: Entry | None) -> None:
        self._partition_count += _held(entry) - _held(self._entries.get(transactional_id))  # mutant: partitions-bounded
        if entry is None:
            self._entries.pop(transactional_id, None)
        else:
            self._entries[transactional_id] = entry
        if entry is not None and entry.stored is not None and entry.stored.state is TransactionState.ONGOING:
            self._ongoing.add(transactional_id)
        else:
            self._ongoing.discard(transactional_id)

    # --- sweeps ---------------------------------------------------------------------------------------------------

    async def _abort_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.abort_interval_ms / 1000)
            await self.sweep(list(self._ongoing), AbortTimedOut())

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.expiration_interval_ms / 1000)
            await self.sweep(list(self._entries), Expire(self._settings.id_expiration_ms))

    async def sweep(self, transactional_ids: Sequence[str], event: Event) -> None:
        """Send an event to these transactional ids, some at a time: the next ones when the records of these are
        durable. One step does all that follows the records of a sync.
        """
        for piece in _pieces(transactional_ids):
            for each in piece:
                try:
                    self._send(each, event)
                except Exception:  # of one; the others must be swept
                    log.exception("sweep failed", transactional_id=each)
            await asyncio.sleep(0)  # their records are appended when this turn is over
            await self._log.durable()  # mutant: aborts-in-turn


def _pieces(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), _SWEPT_PIECE):
        yield items[start : start + _SWEPT_PIECE]


def _held(entry: Entry | None) -> int:
    """Return the number of partitions in a transaction."""
    return 0 if entry is None or entry.stored is None else len(entry.stored.partitions)


def _call_all(callers: Sequence[Done], answer: TransactionAnswer) -> None:
    for done in callers:
        done(answer)
