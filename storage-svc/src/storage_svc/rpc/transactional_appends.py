"""Appends of transactional producers: a batch begins a transaction in a log if the coordinator knows it (KIP-890).

    Produce    partition in the ongoing transaction    not in it
    below 11   appended                                48 INVALID_TXN_STATE
    11         appended                                120 TRANSACTION_ABORTABLE
    12 on      appended                                added to the transaction, durably, then appended

The coordinator is asked in the step in which the batch is staged, so no transaction ends in between, and a log keeps no
record of verified batches. A log with an open transaction of the same producer and epoch does not ask.

While a request of version 12 waits for its partitions to be added, later ones of its transactional id wait in its
queue, and all others go on. Kafka: ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from broker_contract.data import Append, AppendResponse, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.records.header import HEADER_SIZE, MAGIC, MAGIC_AT, TRANSACTIONAL

from storage_svc.log.batch.header import RawHeader, unpack_header
from storage_svc.log.batch.rules import Refusal
from storage_svc.log.config import INTERNAL_TOPICS
from storage_svc.log.partition.partition_log import Admitted, Appended, Origin, PartitionLog, Retry
from storage_svc.topic_partition import TopicPartition
from storage_svc.transaction_ports import OngoingTransactions

#: The first Produce versions whose clients know TRANSACTION_ABORTABLE, and whose partitions are added (KIP-890).
_ABORTABLE_VERSION: Final = 11
_ADDING_VERSION: Final = 12
#: Kafka's add.partitions.to.txn.retry.backoff.ms and .max.ms: the last transaction of a client is mostly still ending.
_RETRY_S: Final = 0.02
_RETRY_MAX_S: Final = 0.1
#: Most producers whose first batch was refused and may come again.
_REFUSED_MAX: Final = 10_000

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

Done = Callable[[AppendResponse], None]


class _Queue:
    """The requests of one transactional id, of which the first waits for its partitions to be added."""

    __slots__ = ("calls", "started_s", "timer")

    def __init__(self, started_s: float) -> None:
        self.calls: deque[tuple[Append, Done]] = deque()
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
        #: The request being appended that has waited, and the coordinator's code for its partitions.
        self._passing: tuple[Append, ErrorCode] | None = None
        #: (log folder, producer id, epoch) -> the lowest sequence that a producer unknown there may begin with: its
        #: first batches were refused, and it sends them again.
        self._refused: dict[tuple[str, int, int], int] = {}

    # -- before a request is staged -----------------------------------------------------------------------------------

    def holds(self, request: Append, done: Done) -> bool:
        """Return whether the request is not to be staged now: it waits, or is answered already."""
        if self._passing is not None and self._passing[0] is request:
            return False
        transactional_id = request.transactional_id or ""
        queue = self._queues.get(transactional_id)
        if queue is not None:  # mutant: producer-order
            queue.calls.append((_lasting(request), done))
            return True
        producers = {(header[9], header[10]) for _, header in _transactional(request)}
        if len(producers) > 1:
            message = "transactional records of more than one producer"
            refused = Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING, error_message=message)
            done(AppendResponse([refused for _ in request.batches]))
            return True
        if request.version < _ADDING_VERSION or not self._to_add(request):
            return False
        queue = self._queues[transactional_id] = _Queue(self._loop.time())
        queue.calls.append((request, done))
        if self._add(transactional_id, queue) == ErrorCode.NONE:  # they are in it, although nothing is written there
            del self._queues[transactional_id]
            return False
        queue.calls[0] = _lasting(request), done
        return True

    def _to_add(self, request: Append) -> list[TopicPartition]:
        """Return the partitions in which the request begins a transaction."""
        found: dict[TopicPartition, None] = {}
        for number, header in _transactional(request):
            log = self._log_of(request.partitions[number if len(request.partitions) > 1 else 0])
            if log is None or log.offline is not None or log.topic in INTERNAL_TOPICS:
                continue
            if not log.producers.is_open(header[9], header[10]):
                found[log.topic, log.partition] = None
        return list(found)

    def _add(self, transactional_id: str, queue: _Queue) -> ErrorCode | None:
        """Have the partitions of the queue's first request added; return NONE if they are already, else None."""
        request, _ = queue.calls[0]
        partitions = self._to_add(request)
        if not partitions:  # they were added or went offline while the request waited
            return ErrorCode.NONE
        _, header = next(_transactional(request))
        codes: list[ErrorCode] = []
        is_later = False

        def done(code: ErrorCode) -> None:
            if is_later:
                self._added(transactional_id, queue, code)
            else:
                codes.append(code)

        self._transactions.add(transactional_id, header[9], header[10], partitions, done)
        is_later = True
        if codes and codes[0]:
            self._loop.call_soon(self._added, transactional_id, queue, codes[0])
            return None
        return codes[0] if codes else None

    def _again(self, transactional_id: str, queue: _Queue) -> None:
        queue.timer = None
        if self._add(transactional_id, queue) == ErrorCode.NONE:
            self._added(transactional_id, queue, ErrorCode.NONE)

    def _added(self, transactional_id: str, queue: _Queue, code: ErrorCode) -> None:
        """Go on with the queue of a transactional id: the coordinator has answered for its first request."""
        if self._queues.get(transactional_id) is not queue:
            return
        is_ending = code == ErrorCode.CONCURRENT_TRANSACTIONS
        if is_ending and self._loop.time() - queue.started_s < _RETRY_MAX_S:
            queue.timer = self._loop.call_later(_RETRY_S, self._again, transactional_id, queue)
            return
        del self._queues[transactional_id]
        first, *rest = queue.calls
        self._passing = first[0], code
        try:
            self._append([first])
        finally:
            self._passing = None
        for each in rest:  # one that waits holds those after it
            self._append([each])

    def close(self) -> None:
        """Append the requests that wait; storage is stopping, and refuses them."""
        queues = list(self._queues.items())
        for transactional_id, queue in queues:
            if queue.timer is not None:
                queue.timer.cancel()
            self._added(transactional_id, queue, ErrorCode.NOT_COORDINATOR)

    # -- while a batch is staged --------------------------------------------------------------------------------------

    def stage(
        self, request: Append, log: PartitionLog, view: memoryview, now_ms: int, admitted: Admitted | None = None
    ) -> Appended | Retry:
        """Stage a batch as `PartitionLog.stage` does, and verify it if it begins a transaction: never AFTER_VERIFY."""
        appended = log.stage(view, Origin.CLIENT, now_ms, admitted, may_wait=True, may_verify=True)
        if appended is not Retry.AFTER_VERIFY:
            return appended
        header = unpack_header(view)
        if (refusal := self._fault(request, log, header)) is not None:  # mutant: transaction-known
            return Appended.refused(refusal)
        appended = log.stage(view, Origin.CLIENT, now_ms, admitted, may_wait=True, verified=True)
        if self._refused and not isinstance(appended, Retry) and not appended.error_code:
            self._refused.pop((log.folder, header[9], header[10]), None)
        return appended

    def _fault(self, request: Append, log: PartitionLog, header: RawHeader) -> Refusal | None:
        """Return why the batch cannot begin a transaction."""
        producer_id, epoch, sequence = header[9], header[10], header[11]
        adds = request.version >= _ADDING_VERSION
        code = ErrorCode.NONE
        if self._passing is not None and self._passing[0] is request:
            code = self._passing[1]
        if not code and (adds or self.verifies):
            partition = log.topic, log.partition
            code = self._transactions.fault(request.transactional_id or "", producer_id, epoch, partition)
        is_known = producer_id in log.producers.producers
        refused = (log.folder, producer_id, epoch)
        if not code:
            # An unknown producer may begin anywhere, but not after a batch that was refused and comes again.
            lowest = 0 if adds else self._refused.get(refused, sequence)
            if not is_known and sequence > lowest:
                message = f"the producer's first batch here has the sequence {lowest}"
                return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
            return None
        refusal = _refusal(code, request.version)
        if refusal.error_code == ErrorCode.NOT_ENOUGH_REPLICAS and not is_known:
            if len(self._refused) >= _REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
            self._refused[refused] = min(sequence, self._refused.get(refused, sequence))
        return refusal


def _refusal(code: ErrorCode, version: int) -> Refusal:
    """Return the answer to a producer for a code of the coordinator."""
    if code == ErrorCode.PRODUCER_FENCED:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, "the producer's epoch is older than the newest one")
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return Refusal(ErrorCode.INVALID_TXN_STATE, "the partition is not in the transaction")
    if code in _RETRIABLE or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDING_VERSION):
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be verified now: {code.name}")
    return Refusal(code, f"the transaction cannot be verified: {code.name}")


def _transactional(request: Append) -> Iterator[tuple[int, RawHeader]]:
    """Yield number and header of the request's transactional batches of a producer."""
    for number, batch in enumerate(request.batches):
        if len(batch) >= HEADER_SIZE and batch[MAGIC_AT] == MAGIC:
            header = unpack_header(batch)
            if header[5] & TRANSACTIONAL and header[9] >= 0:
                yield number, header


def _lasting(request: Append) -> Append:
    """Return the request with copies of batches that lie in a gateway's AppendArea: the gateway reuses that memory."""
    batches = [
        batch.tobytes() if isinstance(batch, memoryview) and isinstance(batch.obj, mmap.mmap) else batch
        for batch in request.batches
    ]
    return replace(request, batches=batches)
