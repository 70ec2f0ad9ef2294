"""Appends of transactional producers: a batch begins a transaction in a log if the coordinator knows it (KIP-890).

    Produce    partition in the ongoing transaction    not in it
    below 11   appended                                48 INVALID_TXN_STATE
    11         appended                                120 TRANSACTION_ABORTABLE
    12 on      appended                                added to the transaction, durably, then appended

The request takes a guard (log/producers/guards.py), the coordinator is asked, and the batch is appended if the guard
stands. Nobody is asked for a partition in which the transaction of this producer and epoch is open. A batch that waits
for a thread or for the disk has a guard in any case.

While a request waits for the coordinator, later ones of its transactional id wait in its queue, and all others go on. A
coordinator in this process answers at once. Kafka: ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager,
UnifiedLog.maybeStartTransactionVerification.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeVar

from broker_contract.data import Append, AppendResponse, Buffer, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.records.header import HEADER_SIZE, MAGIC, MAGIC_AT, TRANSACTIONAL

from storage_svc.log.batch.header import RawHeader, unpack_header
from storage_svc.log.batch.rules import Refusal
from storage_svc.log.config import INTERNAL_TOPICS
from storage_svc.log.partition.partition_log import Admitted, Appended, Origin, PartitionLog, Retry
from storage_svc.log.producers.guards import Guard
from storage_svc.topic_partition import TopicPartition
from storage_svc.transaction_ports import Claim, OngoingTransactions

#: The first Produce versions whose clients know TRANSACTION_ABORTABLE, and whose partitions are added (KIP-890).
_ABORTABLE_VERSION: Final = 11
_ADDING_VERSION: Final = 12
#: Kafka's add.partitions.to.txn.retry.backoff.ms and .max.ms: the last transaction of a client is mostly still ending.
_RETRY_S: Final = 0.02
_RETRY_MAX_S: Final = 0.1

#: Codes of the coordinator that a client gets as NOT_ENOUGH_REPLICAS, which every client repeats without a look-up.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

_ENDED: Final = Refusal(ErrorCode.INVALID_TXN_STATE, "the transaction of these records has ended in this partition")

Done = Callable[[AppendResponse], None]
AppendT = TypeVar("AppendT", bound=Append)


@dataclass(slots=True)
class GuardedAppend(Append):
    """A request that waits or has waited, with a guard for each partition of its transaction, or with the refusal."""

    guards: dict[TopicPartition, Guard | Refusal] = field(default_factory=dict)
    #: Whether the coordinator is not to be asked, or not any more.
    is_answered: bool = False


class _Queue:
    """The requests of one transactional id, of which the first waits for the coordinator's answer."""

    __slots__ = ("calls", "started_s", "timer")

    def __init__(self, started_s: float, request: GuardedAppend, done: Done) -> None:
        self.calls: deque[tuple[GuardedAppend, Done]] = deque(((request, done),))
        self.started_s = started_s
        self.timer: asyncio.TimerHandle | None = None


class TransactionalAppends:
    """The requests with a transactional id. The DataService owns it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transactions: OngoingTransactions,
        log_of: Callable[[TopicIdPartition], PartitionLog | None],
        append: Callable[[list[tuple[Append, Done]]], None],
        *,
        verifies: bool,
    ) -> None:
        """Append requests that have waited by `append`.

        Args:
            verifies: verify requests below version 12, too (transaction.partition.verification.enable).
        """
        self._loop = loop
        self._transactions = transactions
        self._log_of = log_of
        self._append = append
        self.verifies = verifies
        self._queues: dict[str, _Queue] = {}

    # -- before a request is staged -----------------------------------------------------------------------------------

    def admit(self, request: Append, done: Done) -> Append | None:
        """Return the request to stage now, or None: it waits, or is answered already."""
        if type(request) is GuardedAppend and request.is_answered:
            return request
        transactional_id = request.transactional_id or ""
        queue = self._queues.get(transactional_id)
        if queue is not None:  # mutant: producer-order
            queue.calls.append((self._guarded(_lasting(request)), done))
            return None
        producer: tuple[int, int] | None = None
        begins = type(request) is GuardedAppend
        for number, header in _transactional(request):
            if producer is not None and producer != (header[9], header[10]):
                message = "transactional records of more than one producer"
                refused = Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING, error_message=message)
                done(AppendResponse([refused for _ in request.batches]))
                return None
            producer = header[9], header[10]
            if not begins and (log := self._writable(request, number)) is not None:
                begins = not log.producers.is_open(*producer)
        if not begins or not self._verifies(request):
            return request
        guarded = self._guarded(request)
        queue = self._queues[transactional_id] = _Queue(self._loop.time(), guarded, done)
        if self._ask(transactional_id, queue):
            del self._queues[transactional_id]
            return guarded
        queue.calls[0] = _lasting(guarded), done
        return None

    def hold(self, request: Append, log: PartitionLog, view: memoryview) -> Append:
        """Return a request whose batch for this log has to wait before it is staged: with a guard for it."""
        if request.transactional_id is None or not _is_transactional(view) or not self._verifies(request):
            return request
        if type(request) is not GuardedAppend:
            request = _unguarded(request)
            request.is_answered = True
        self._guard(request, log, view)
        return request

    def _verifies(self, request: Append) -> bool:
        return self.verifies or request.version >= _ADDING_VERSION

    def _writable(self, request: Append, number: int) -> PartitionLog | None:
        """Return the log of a batch, unless it takes no records of clients."""
        log = self._log_of(request.partitions[number if len(request.partitions) > 1 else 0])
        return None if log is None or log.offline is not None or log.topic in INTERNAL_TOPICS else log

    def _guarded(self, request: Append) -> GuardedAppend:
        """Return the request with a guard for each partition of its transaction."""
        if type(request) is GuardedAppend:
            return request
        guarded = _unguarded(request)
        for number, _ in _transactional(request):
            if (log := self._writable(request, number)) is not None:
                self._guard(guarded, log, memoryview(request.batches[number]))
        return guarded

    @staticmethod
    def _guard(request: GuardedAppend, log: PartitionLog, view: memoryview) -> None:
        partition = log.topic, log.partition
        if partition not in request.guards:
            header = unpack_header(view)
            guard = request.guards[partition] = log.producers.guards.take(header[9], header[10], header[11])
            if log.producers.is_open(header[9], header[10]):
                guard.confirm()

    # -- the coordinator's answer -------------------------------------------------------------------------------------

    def _ask(self, transactional_id: str, queue: _Queue) -> bool:
        """Ask the coordinator for the queue's first request; return whether it is answered already."""
        request, _ = queue.calls[0]
        guards = self._to_confirm(request)
        if not guards:  # they were confirmed, have fallen or went offline while the request waited
            request.is_answered = True
            return True
        at_once: list[Sequence[ErrorCode]] = []
        is_later = False

        def answered(codes: Sequence[ErrorCode]) -> None:
            if not is_later:
                at_once.append(codes)
            elif self._queues.get(transactional_id) is queue and self._settle(transactional_id, queue, guards, codes):
                self._release(transactional_id, queue)

        (guard, *_) = guards.values()
        claim = Claim(transactional_id, guard.producer_id, guard.epoch, list(guards))
        if request.version >= _ADDING_VERSION:
            self._transactions.add(claim, lambda code: answered([code] * len(guards)))
        else:
            self._transactions.verify(claim, answered)
        is_later = True
        return bool(at_once) and self._settle(transactional_id, queue, guards, at_once[0])

    def _to_confirm(self, request: GuardedAppend) -> dict[TopicPartition, Guard]:
        found = {}
        for number, _ in _transactional(request):
            if (log := self._writable(request, number)) is not None:
                guard = request.guards.get((log.topic, log.partition))
                if isinstance(guard, Guard) and guard.stands_in(log.producers.guards) and not guard.is_confirmed:
                    found[log.topic, log.partition] = guard
        return found

    def _settle(
        self, transactional_id: str, queue: _Queue, guards: dict[TopicPartition, Guard], codes: Sequence[ErrorCode]
    ) -> bool:
        """Note the coordinator's answer; False if it is asked again, because the last transaction is ending."""
        request, _ = queue.calls[0]
        is_ending = request.version >= _ADDING_VERSION and ErrorCode.CONCURRENT_TRANSACTIONS in codes
        if is_ending and self._loop.time() - queue.started_s < _RETRY_MAX_S:
            queue.timer = self._loop.call_later(_RETRY_S, self._again, transactional_id, queue)
            return False
        for (partition, guard), code in zip(guards.items(), codes, strict=True):
            if not code:
                guard.confirm()
                continue
            refusal = request.guards[partition] = _refusal(code, request.version)
            guard.refuse(comes_again=refusal.error_code == ErrorCode.NOT_ENOUGH_REPLICAS)
        request.is_answered = True
        return True

    def _again(self, transactional_id: str, queue: _Queue) -> None:
        queue.timer = None
        if self._ask(transactional_id, queue):
            self._release(transactional_id, queue)

    def _release(self, transactional_id: str, queue: _Queue) -> None:
        """Append the requests of a queue, whose first one is answered."""
        del self._queues[transactional_id]
        for each in queue.calls:  # one that waits holds those after it
            self._append([each])

    def close(self) -> None:
        """Append the requests that wait; storage is stopping, and refuses them."""
        queues = list(self._queues.items())
        for transactional_id, queue in queues:
            if queue.timer is not None:
                queue.timer.cancel()
            queue.calls[0][0].is_answered = True
            self._release(transactional_id, queue)

    # -- while a batch is staged --------------------------------------------------------------------------------------

    def stage(
        self, request: Append, log: PartitionLog, view: memoryview, now_ms: int, admitted: Admitted | None = None
    ) -> Appended | Retry:
        """Stage a batch as `PartitionLog.stage` does, if its guard stands: never AFTER_VERIFY."""
        guard = request.guards.get((log.topic, log.partition)) if type(request) is GuardedAppend else None
        has_ended = isinstance(guard, Guard) and not guard.stands_in(log.producers.guards)
        # mutant: next-transaction-refused
        if has_ended and _is_transactional(view) and log.producers.is_open(*_producer(view)):
            return Appended.refused(_ENDED)  # its producer's next transaction is open, under the same epoch
        appended = log.stage(view, Origin.CLIENT, now_ms, admitted, may_wait=True, may_verify=True)
        if appended is not Retry.AFTER_VERIFY:
            return appended
        if (refusal := self._fault(request, log, unpack_header(view), guard)) is not None:  # mutant: transaction-known
            return Appended.refused(refusal)
        return log.stage(view, Origin.CLIENT, now_ms, admitted, may_wait=True, verified=True)

    def _fault(
        self, request: Append, log: PartitionLog, header: RawHeader, guard: Guard | Refusal | None
    ) -> Refusal | None:
        """Return why the batch cannot begin a transaction."""
        if isinstance(guard, Refusal):
            return guard
        if guard is None:
            return _ENDED if self._verifies(request) else None
        if not guard.stands_in(log.producers.guards):  # mutant: guard-stands
            return _ENDED
        # An unknown producer may begin anywhere, but not after a batch that was refused and comes again.
        lowest = 0 if request.version >= _ADDING_VERSION else guard.lowest_sequence
        if header[9] not in log.producers.producers and header[11] > lowest:
            message = f"the producer's first batch here has the sequence {lowest}"
            return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        return None


def _refusal(code: ErrorCode, version: int) -> Refusal:
    """Return the answer to a producer for a code of the coordinator."""
    if code == ErrorCode.PRODUCER_FENCED:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, "the producer's epoch is older than the newest one")
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return Refusal(ErrorCode.INVALID_TXN_STATE, "the partition is not in the transaction")
    if code in _RETRIABLE or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDING_VERSION):
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be verified now: {code.name}")
    return Refusal(code, f"the transaction cannot be verified: {code.name}")


def _unguarded(request: Append) -> GuardedAppend:
    return GuardedAppend(*(getattr(request, each.name) for each in fields(Append)))


def _is_transactional(batch: Buffer) -> bool:
    """Return whether the batch is one of a transaction."""
    if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
        return False
    header = unpack_header(batch)
    return bool(header[5] & TRANSACTIONAL) and header[9] >= 0


def _producer(batch: Buffer) -> tuple[int, int]:
    """Return a batch's producer id and epoch."""
    header = unpack_header(batch)
    return header[9], header[10]


def _transactional(request: Append) -> Iterator[tuple[int, RawHeader]]:
    """Yield number and header of the request's transactional batches of a producer."""
    for number, batch in enumerate(request.batches):
        if len(batch) >= HEADER_SIZE and batch[MAGIC_AT] == MAGIC:
            header = unpack_header(batch)
            if header[5] & TRANSACTIONAL and header[9] >= 0:
                yield number, header


def _lasting(request: AppendT) -> AppendT:
    """Return the request with copies of batches that lie in a gateway's AppendArea: the gateway reuses that memory."""
    batches = [
        batch.tobytes() if isinstance(batch, memoryview) and isinstance(batch.obj, mmap.mmap) else batch
        for batch in request.batches
    ]
    return replace(request, batches=batches)
