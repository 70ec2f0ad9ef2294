"""The transaction coordinator: hosts the machine of every transactional id, on the topic `__transaction_state`.

A transactional id lives in the partition that it hashes to. Partitions load one after the other at the start, and calls
are answered COORDINATOR_LOAD_IN_PROGRESS until theirs is loaded. A client learns of a transition once its record is
durable. Markers of prepared transactions are written until every partition has one, also after a crash.

Everything runs on one event loop, and every call decides synchronously before it waits: no lock is needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.transaction_log import TransactionState
from protocol_lib.records.record import write_tail
from service_chassis import logs as service_logs

from storage_svc.coordinator.hosting.entity_write import EntityWrite
from storage_svc.coordinator.hosting.load_order import LoadOrder
from storage_svc.coordinator.hosting.performer import Performer
from storage_svc.coordinator.hosting.served_partitions import ServedPartitions
from storage_svc.coordinator.machine.events import Recover
from storage_svc.coordinator.stored.internal_log import InternalLog
from storage_svc.coordinator.stored.partition_loader import load
from storage_svc.coordinator.stored.records import STRING_BYTES_MAX
from storage_svc.coordinator.transactions import machine
from storage_svc.coordinator.transactions.events import (
    AbortTimedOut,
    AddPartitions,
    Call,
    EndTransaction,
    Event,
    Expire,
    InitProducer,
    MarkersWritten,
    TransactionAnswer,
    TransactionOutcome,
)
from storage_svc.coordinator.transactions.loaded_transactions import LoadedTransactions
from storage_svc.coordinator.transactions.marker_delivery import MarkerDelivery
from storage_svc.coordinator.transactions.records import encode_key, encode_value
from storage_svc.coordinator.transactions.settings import TransactionSettings
from storage_svc.coordinator.transactions.transaction import EPOCH_BUMP_VERSION, STATE_NAMES, Entry, Transaction
from storage_svc.coordinator.transactions.waiting_additions import Done, WaitingAdditions
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.producer_ids import ProducerIds
from storage_svc.transaction_ports import Claim, Marker, MarkerWriter

log = service_logs.get(__name__)

#: Partitions in all transactions together: each takes some 150 bytes of memory until it has its marker.
_PARTITIONS_MAX: Final = 1_000_000
#: Transactional ids that a sweep checks without a turn for others.
_SWEPT_PIECE: Final = 200


@dataclass(slots=True)
class HostedTransaction:
    """A transactional id with its place among those that this broker hosts."""

    key: str
    #: The partition of the topic that holds its records.
    partition: int
    #: Replaced by the performer. None: it is not known, or not any more.
    entity: Entry | None = None
    #: The newest write of its records; None when all have ended.
    write: EntityWrite | None = None
    #: The partitions of its transaction, as they are counted among all.
    counted: int = 0


class TransactionCoordinator:
    """All transactional ids, and `OngoingTransactions` for the logs. It is the `performer.Machine` of its ids."""

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
        #: The transactional ids.
        self.hosted: dict[str, HostedTransaction] = {}
        self._performer: Performer[HostedTransaction, TransactionCoordinator] = Performer(
            self.hosted, lambda _: self, self._append
        )
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
        self._performer.close()
        self._delivery.close()
        self._additions.end(TransactionAnswer(ErrorCode.NOT_COORDINATOR))
        await self._log.finish()

    async def _load(self, order: LoadOrder, logs: Sequence[PartitionLog]) -> None:
        async def load_transactions(each: PartitionLog) -> None:
            await self._install(each.partition, await load(each, LoadedTransactions))

        await order.load(self._partitions, logs, load_transactions)
        if logs:
            log.info("transactions loaded", transactional_ids=len(self.hosted), partitions=len(logs))

    async def _install(self, partition: int, loaded: LoadedTransactions) -> None:
        """Hold the transactional ids of a partition, some in a turn; no more of them once it is lost."""
        for piece in _pieces(list(loaded.transactions)):
            if self._partitions.is_lost(partition):
                return
            for transactional_id in piece:
                entry = Entry(loaded.transactions[transactional_id])
                hosted = self.hosted[transactional_id] = HostedTransaction(transactional_id, partition, entry)
                self._performer.send(hosted, Recover())  # mutant: prepared-recovered
            await asyncio.sleep(0)

    def _on_offline(self, partition: int, reason: str) -> None:
        """Stop serving the ids of a partition: it is unknown which of its last records are on the disk."""
        if self._partitions.lost(partition, reason):
            self._loop.call_soon(self._unload, partition)

    def _unload(self, partition: int) -> None:
        lost = [each for each in self.hosted.values() if each.partition == partition]
        for hosted in lost:
            self._delivery.forget(hosted.key)
            del self.hosted[hosted.key]
            hosted.entity = None
            self._count(hosted)
            for _, callers in self._additions.take(hosted.key):
                _call_all(callers, TransactionAnswer(ErrorCode.NOT_COORDINATOR))
        log.error("transactional ids are not served any more", partition=partition, transactional_ids=len(lost))

    # --- calls ----------------------------------------------------------------------------------------------------

    async def init_producer(self, transactional_id: str, init: InitProducer) -> TransactionAnswer:
        """Return the producer id and epoch of a transactional producer, once they are durable."""
        if not 0 < init.timeout_ms <= self._settings.max_timeout_ms and transactional_id:
            return TransactionAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transactional_id not in self.hosted and len(self.hosted) >= self._settings.ids_max:
            log.warning("too many transactional ids", transactional_ids=len(self.hosted))
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

    def verify(self, claim: Claim, done: Callable[[Sequence[ErrorCode]], None]) -> None:
        done(self.faults(claim))

    def faults(self, claim: Claim) -> list[ErrorCode]:
        """Return the code of each partition, as `verify` gives it to its caller."""
        if error := self._id_fault(claim.transactional_id):
            return [error] * len(claim.partitions)
        entry = self._entry(claim.transactional_id)
        return [machine.fault(entry, claim.producer_id, claim.producer_epoch, each) for each in claim.partitions]

    def add(self, claim: Claim, done: Callable[[ErrorCode], None]) -> None:
        partitions = frozenset(claim.partitions)
        addition = AddPartitions(claim.producer_id, claim.producer_epoch, partitions, EPOCH_BUMP_VERSION)
        self._ask(claim.transactional_id, addition, lambda answer: done(answer.error))

    def find(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """Return the durable state of a transactional id, or None for an unknown one."""
        error = self._id_fault(transactional_id)
        entry = None if error else self._entry(transactional_id)
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
        for hosted in list(self.hosted.values()):  # a copy: metrics are collected by another thread
            if (entry := hosted.entity) is not None and entry.stored is not None:
                counts[STATE_NAMES[entry.stored.state]] += 1
        return counts

    def _entry(self, transactional_id: str) -> Entry | None:
        hosted = self.hosted.get(transactional_id)
        return None if hosted is None else hosted.entity

    def _id_fault(self, transactional_id: str) -> ErrorCode:
        if self._stopping:
            return ErrorCode.NOT_COORDINATOR
        if not transactional_id or len(transactional_id.encode(errors="surrogatepass")) > STRING_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        # The hash of a long id takes milliseconds.
        # mutant: hash-when-loaded
        return self._partitions.error(self._log.partition_of(transactional_id)) if self._partitions else ErrorCode.NONE

    async def _answered(self, transactional_id: str, call: Call) -> TransactionAnswer:
        answered: asyncio.Future[TransactionAnswer] = self._loop.create_future()

        def done(answer: TransactionAnswer) -> None:
            if not answered.done():  # or its client has left
                answered.set_result(answer)

        self._ask(transactional_id, call, done)
        return await answered

    def _ask(self, transactional_id: str, call: Call, done: Done) -> None:
        """Handle a call. An addition that a transition under way stands against waits for its end."""
        if error := self._id_fault(transactional_id):
            done(TransactionAnswer(error))
            return
        if isinstance(call, AddPartitions) and self._partition_count + len(call.partitions) > _PARTITIONS_MAX:
            log.warning("too many partitions in transactions", partitions=self._partition_count)
            done(TransactionAnswer(ErrorCode.POLICY_VIOLATION))
            return

        def answer(found: TransactionAnswer) -> None:
            entry = self._entry(transactional_id)
            if (
                found.error is ErrorCode.CONCURRENT_TRANSACTIONS
                and isinstance(call, AddPartitions)
                and entry is not None
                and entry.pending is not None
                and self._additions.add(transactional_id, call, found, done)
            ):
                return
            done(found)

        self._send(transactional_id, replace(call, request=self._performer.calls.expect(answer)))

    # --- events ---------------------------------------------------------------------------------------------------

    def _send(self, transactional_id: str, event: Event) -> None:
        hosted = self.hosted.get(transactional_id)
        if hosted is None:
            hosted = HostedTransaction(transactional_id, self._log.partition_of(transactional_id))
        self._performer.send(hosted, event)

    def handle(self, hosted: HostedTransaction, event: Event) -> TransactionOutcome:
        # wall clock: the begin and the last change of a transaction, which are stored
        outcome = machine.handle(hosted.key, hosted.entity, event, self._now_ms(), self._producer_ids.spare)
        if outcome.needs_id:
            self._producer_ids.when_filled(partial(self._send_again, hosted.key, event))
        elif outcome.takes_id:
            self._producer_ids.take()
        return outcome

    def _send_again(self, transactional_id: str, event: Event, is_filled: bool) -> None:
        """Handle an event that needed a producer id, in the state that the transactional id has by now."""
        error = self._id_fault(transactional_id) or (
            ErrorCode.NONE if is_filled else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        if not error:
            self._send(transactional_id, event)
        elif isinstance(event, Call):
            self._performer.calls.answer(event.request, TransactionAnswer(error))

    def _append(self, hosted: HostedTransaction, records: Sequence[Transaction], ended: Callable[[int], None]) -> None:
        tails = [write_tail(encode_key(hosted.key), encode_value(each)) for each in records]
        self._log.gather(hosted.partition, tails, self._now_ms(), ended)

    def performed(self, hosted: HostedTransaction, outcome: TransactionOutcome) -> None:
        self._count(hosted)
        entry = hosted.entity
        if outcome.markers and not self._stopping:
            self._begin_markers(hosted, outcome.markers)
        if entry is None or entry.pending is None:
            for addition, callers in self._additions.take(hosted.key):
                self._ask(hosted.key, addition, partial(_call_all, callers))

    def _count(self, hosted: HostedTransaction) -> None:
        """Count the partitions of its transaction among all, and whether it is ongoing."""
        stored = None if hosted.entity is None else hosted.entity.stored
        count = 0 if stored is None else len(stored.partitions)
        self._partition_count += count - hosted.counted  # mutant: partitions-bounded
        hosted.counted = count
        if stored is not None and stored.state is TransactionState.ONGOING:
            self._ongoing.add(hosted.key)
        else:
            self._ongoing.discard(hosted.key)

    def _begin_markers(self, hosted: HostedTransaction, partitions: frozenset[TopicPartition]) -> None:
        assert hosted.entity is not None
        stored = hosted.entity.stored
        assert stored is not None
        marker = Marker(
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            commit=stored.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self._log.leader_epoch(hosted.partition),
            transaction_version=stored.client_version,
            is_own=True,
        )
        self._delivery.begin(hosted.key, marker, partitions)

    def _markers_written(self, transactional_id: str, partitions: frozenset[TopicPartition]) -> None:
        self._send(transactional_id, MarkersWritten(partitions))

    # --- sweeps ---------------------------------------------------------------------------------------------------

    async def _abort_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.abort_interval_ms / 1000)
            await self.sweep(list(self._ongoing), AbortTimedOut())

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.expiration_interval_ms / 1000)
            await self.sweep(list(self.hosted), Expire(self._settings.id_expiration_ms))

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


def _call_all(callers: Sequence[Done], answer: TransactionAnswer) -> None:
    for done in callers:
        done(answer)
