"""The transaction of a transactional id as a state machine: `handle` decides about an event, and performs nothing.

How each state answers. A transition whose record or markers are under way (pending) answers 51. Checks before the
state: unknown id or other producer id 49, other epoch 90.

    event                  Empty            Ongoing          Prepare*    CompleteCommit         CompleteAbort
    InitProducerId         raise epoch      abort, then 51   51          raise epoch            raise epoch
    AddPartitions          begin            add              51          begin                  begin
    EndTxn commit, v0-4    48               PrepareCommit    51          0                      48
    EndTxn abort, v0-4     48               PrepareAbort     51          48                     0
    EndTxn commit, v5      48               PrepareCommit    51          48; retry 0            48
    EndTxn abort, v5       PrepareAbort     PrepareAbort     51          PrepareAbort; retry 48 PrepareAbort; retry 0
    time-out               -                PrepareAbort     -           -                      -
    expiration             Dead             -                -           Dead                   Dead

A retry of EndTxn v5 has the epoch before the raise, or the producer id before an exhausted one was replaced. EndTxn
v0-4 checks id and epoch before it answers 51; v5 and AddPartitions answer 51 first.

An entry never changes: an outcome has the same one, or a new one. Owner: the host, on the event loop. Kafka:
TransactionCoordinator.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.transaction_log import TransactionState

from storage_svc.coordinator.machine.events import RECOVERY, Recover
from storage_svc.coordinator.machine.outcome import SetTimer
from storage_svc.coordinator.transactions.end_txn import on_end
from storage_svc.coordinator.transactions.events import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    Event,
    Expire,
    InitProducer,
    MarkersWritten,
    Stored,
    TransactionAnswer,
    TransactionOutcome,
    answered,
    written,
)
from storage_svc.coordinator.transactions.transaction import (
    COMPLETE,
    EPOCH_BUMP_VERSION,
    EPOCH_EXHAUSTED,
    NONE,
    PREPARED,
    Entry,
    Transaction,
)
from storage_svc.topic_partition import TopicPartition

#: Milliseconds until the record of a complete transaction is written again that was refused.
RECOVERY_MS: Final = 500

_S = TransactionState
_CONCURRENT: Final = TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED: Final = TransactionAnswer(ErrorCode.PRODUCER_FENCED)
_UNMAPPED: Final = TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def handle(
    transactional_id: str, entry: Entry | None, event: Event, now_ms: int, spare_id: int | None
) -> TransactionOutcome:
    """Return the outcome of an event. `now_ms` is wall clock time; `spare_id` is a producer id that no producer has."""
    match event:
        case InitProducer():
            return _on_init(transactional_id, entry, event, now_ms, spare_id)
        case AddPartitions():
            return _on_add(entry, event, now_ms)
        case EndTransaction():
            return on_end(entry, event, now_ms, spare_id)
        case Stored():
            return _on_stored(entry, event.error, now_ms)
        case MarkersWritten():
            return _on_markers_written(entry, event)
        case Recover():
            return _on_recover(entry, now_ms)
        case AbortTimedOut():
            if entry is None or entry.stored is None or entry.pending or not entry.stored.timed_out(now_ms):
                return TransactionOutcome(entry)
            return _fence(entry.stored, now_ms, spare_id)
        case Expire():
            stored = None if entry is None or entry.pending else entry.stored
            if stored is None or not stored.expired(now_ms, event.expiration_ms):
                return TransactionOutcome(entry)
            return written(stored, stored.dead())


def fault(entry: Entry | None, producer_id: int, producer_epoch: int, partition: TopicPartition) -> ErrorCode:
    """Return NONE if the producer may write to the partition now (`OngoingTransactions.fault`).

    Kafka ignores pending transitions here, and checks again when it appends. Here a transaction ends as soon as the
    record of its EndTxn is being written: no batch may come between that record and the markers.
    """
    stored = None if entry is None else entry.stored
    if entry is None or stored is None or stored.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if stored.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    # mutant: nothing-after-prepare
    if stored.state in PREPARED or (entry.pending is not None and entry.pending.state in PREPARED):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if stored.state is _S.ONGOING and partition in stored.partitions:
        return ErrorCode.NONE
    return ErrorCode.TRANSACTION_ABORTABLE


# --- InitProducerId ---------------------------------------------------------------------------------------------------


def _on_init(
    transactional_id: str, entry: Entry | None, init: InitProducer, now_ms: int, spare_id: int | None
) -> TransactionOutcome:
    if entry is None:
        if spare_id is None:
            return TransactionOutcome(None, needs_id=True)
        first = Transaction(
            transactional_id=transactional_id,
            producer_id=spare_id,
            producer_epoch=0,
            timeout_ms=init.timeout_ms,
            state=_S.EMPTY,
            update_ms=now_ms,
            previous_producer_id=spare_id,
        )
        answer = TransactionAnswer(producer_id=spare_id, producer_epoch=0)
        return written(None, first, init, answer, takes_id=True)
    stored = entry.stored
    if stored is None or entry.pending is not None:
        return answered(entry, init, _CONCURRENT)
    if init.expected is not None and not _is_known(stored, *init.expected):
        return answered(entry, init, _FENCED)
    if stored.state is _S.ONGOING:
        # The raised epoch is never sent to a client: the next call raises it again.
        return _fence(stored, now_ms, spare_id, init)
    return _raise_epoch(entry, stored, init, now_ms, spare_id)


def _is_known(stored: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return whether this can be the producer that was initialized last: also before its exhausted id was replaced."""
    return producer_id == stored.producer_id or (
        producer_id == stored.previous_producer_id and producer_epoch >= EPOCH_EXHAUSTED
    )


def _raise_epoch(
    entry: Entry, stored: Transaction, init: InitProducer, now_ms: int, spare_id: int | None
) -> TransactionOutcome:
    """Raise the epoch; replace the producer id when there are no more epochs; or repeat an answer that was lost."""
    producer_id, epoch = stored.producer_id, stored.producer_epoch
    expected = None if init.expected is None else init.expected[1]
    takes_id = False
    if expected in (None, epoch):
        last = NONE if expected is None else epoch
        if stored.is_exhausted:
            if spare_id is None:
                return TransactionOutcome(entry, needs_id=True)
            producer_id, epoch, takes_id = spare_id, 0, True
        else:
            epoch += 1
    elif expected == stored.last_producer_epoch:
        last = stored.last_producer_epoch
    else:
        return answered(entry, init, _FENCED)
    target = stored.initialized(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last,
        timeout_ms=init.timeout_ms,
        now_ms=now_ms,
    )
    answer = TransactionAnswer(producer_id=producer_id, producer_epoch=epoch)
    return written(stored, target, init, answer, takes_id=takes_id)


def _fence(
    stored: Transaction, now_ms: int, spare_id: int | None, init: InitProducer | None = None
) -> TransactionOutcome:
    """Abort an ongoing transaction with the next epoch, whichever transaction.version its client has."""
    next_id = spare_id if stored.is_exhausted else NONE
    if next_id is None:
        return TransactionOutcome(Entry(stored), needs_id=True)
    target = stored.prepared(commit=False, client_version=EPOCH_BUMP_VERSION, next_producer_id=next_id, now_ms=now_ms)
    return written(stored, target, init, _CONCURRENT, takes_id=stored.is_exhausted)


# --- partitions -------------------------------------------------------------------------------------------------------


def _on_add(entry: Entry | None, add: AddPartitions, now_ms: int) -> TransactionOutcome:
    if entry is None:
        return answered(entry, add, _UNMAPPED)
    stored = entry.stored
    if stored is None or entry.pending is not None:
        # First: the producer may have the id and the epoch that are pending.
        return answered(entry, add, _CONCURRENT)
    if stored.producer_id != add.producer_id:
        return answered(entry, add, _UNMAPPED)
    if stored.producer_epoch != add.producer_epoch:
        return answered(entry, add, _FENCED)
    if stored.state is _S.ONGOING and add.partitions <= stored.partitions:
        return answered(entry, add, TransactionAnswer())
    target = stored.with_partitions(add.partitions, add.client_version, now_ms)
    return written(stored, target, add, TransactionAnswer())


# --- writes and markers -----------------------------------------------------------------------------------------------


def _on_stored(entry: Entry | None, error: ErrorCode, now_ms: int) -> TransactionOutcome:
    if entry is None or (target := entry.pending) is None:
        return TransactionOutcome(entry)
    if error:
        if target.state in COMPLETE:
            return TransactionOutcome(entry, timers=[SetTimer(RECOVERY, RECOVERY_MS)])
        return TransactionOutcome(None if entry.stored is None else Entry(entry.stored))
    if target.state is _S.DEAD:
        return TransactionOutcome(None)
    if target.state in PREPARED:
        return _on_recover(Entry(target), now_ms)
    return TransactionOutcome(Entry(target))


def _on_recover(entry: Entry | None, now_ms: int) -> TransactionOutcome:
    """Drive a prepared transaction to its end: write its markers, or its last record if all are written."""
    if entry is None or (stored := entry.stored) is None or stored.state not in PREPARED:
        return TransactionOutcome(entry)
    target = entry.pending or stored.completed(now_ms)
    if stored.partitions:
        return TransactionOutcome(Entry(stored, target), markers=stored.partitions)
    return written(stored, target)


def _on_markers_written(entry: Entry | None, event: MarkersWritten) -> TransactionOutcome:
    if entry is None or (stored := entry.stored) is None or stored.state not in PREPARED:
        return TransactionOutcome(entry)
    left = stored.without(event.partitions)
    if stored.partitions and not left.partitions and entry.pending is not None:
        return written(left, entry.pending)
    return TransactionOutcome(Entry(left, entry.pending))
