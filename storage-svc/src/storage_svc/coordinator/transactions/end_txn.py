"""EndTxn: the decision of the transaction machine about a commit or an abort (its table: `machine`)."""

from __future__ import annotations

from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.transaction_log import TransactionState

from storage_svc.coordinator.transactions.events import (
    EndTransaction,
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

_S = TransactionState
_CONCURRENT: Final = TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
_INVALID_STATE: Final = TransactionAnswer(ErrorCode.INVALID_TXN_STATE)
_FENCED: Final = TransactionAnswer(ErrorCode.PRODUCER_FENCED)
_UNMAPPED: Final = TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def on_end(entry: Entry | None, end: EndTransaction, now_ms: int, spare_id: int | None) -> TransactionOutcome:
    if entry is None:
        return answered(entry, end, _UNMAPPED)
    if end.client_version < EPOCH_BUMP_VERSION:
        return _end_of_version_1(entry, end, now_ms)
    return _end_of_version_2(entry, end, now_ms, spare_id)


def _end_of_version_1(entry: Entry, end: EndTransaction, now_ms: int) -> TransactionOutcome:
    stored = entry.stored
    if stored is None or stored.producer_id != end.producer_id:
        return answered(entry, end, _UNMAPPED)
    if stored.producer_epoch != end.producer_epoch:
        return answered(entry, end, _FENCED)
    if entry.pending is not None:
        return answered(entry, end, _CONCURRENT)
    if stored.state is _S.ONGOING:
        target = stored.prepared(commit=end.commit, client_version=0, next_producer_id=NONE, now_ms=now_ms)
        return written(stored, target, end, TransactionAnswer())
    # A prepared transaction always has a pending one.
    same = _S.COMPLETE_COMMIT if end.commit else _S.COMPLETE_ABORT
    return answered(entry, end, TransactionAnswer() if stored.state is same else _INVALID_STATE)


def _end_of_version_2(entry: Entry, end: EndTransaction, now_ms: int, spare_id: int | None) -> TransactionOutcome:
    stored = entry.stored
    if stored is None or entry.pending is not None:
        # First: the producer may have the id and the epoch that are pending.
        return answered(entry, end, _CONCURRENT)
    replaced = (
        stored.previous_producer_id == end.producer_id
        and end.producer_epoch == EPOCH_EXHAUSTED
        and stored.producer_epoch == 0
    )
    if stored.producer_id != end.producer_id and not replaced:
        return answered(entry, end, _UNMAPPED)
    is_retry = stored.state in COMPLETE and (replaced or stored.producer_epoch == end.producer_epoch + 1)
    if not is_retry and stored.producer_epoch != end.producer_epoch:  # mutant: late-end-refused
        return answered(entry, end, _FENCED)
    if is_retry:
        same = _S.COMPLETE_COMMIT if end.commit else _S.COMPLETE_ABORT
        known = TransactionAnswer(producer_id=stored.producer_id, producer_epoch=stored.producer_epoch)
        return answered(entry, end, known if stored.state is same else _INVALID_STATE)
    if stored.state is not _S.ONGOING and end.commit:
        return answered(entry, end, _INVALID_STATE)
    next_id = spare_id if stored.is_exhausted else NONE
    if next_id is None:
        return TransactionOutcome(entry, needs_id=True)
    target = stored.prepared(
        commit=end.commit, client_version=end.client_version, next_producer_id=next_id, now_ms=now_ms
    )
    return written(stored, target, end, _raised(target, now_ms), takes_id=stored.is_exhausted)


def _raised(prepared: Transaction, now_ms: int) -> TransactionAnswer:
    """Return the id and the epoch with which the client goes on once the transaction is complete."""
    assert prepared.state in PREPARED
    complete = prepared.completed(now_ms)
    return TransactionAnswer(producer_id=complete.producer_id, producer_epoch=complete.producer_epoch)
