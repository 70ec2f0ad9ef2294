"""The end of a transaction in one partition: its marker, and the entry of an aborted one in the transaction index."""

from __future__ import annotations

from protocol_lib.errors import ErrorCode
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch

from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.outcome import Appended, Origin, Retry
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.segment.transaction_index import AbortedTransaction

_MESSAGES: dict[int, str] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer's epoch is older than the newest one",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has written here",
}


def end_transaction(
    log: PartitionLog,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    transaction_version: int = 0,
    may_wait: bool = False,
) -> Appended | Retry:
    """Write the marker that commits or aborts the producer's transaction in this partition.

    With `may_wait` the result may be AFTER_SYNC: the log is unchanged, and the caller calls again after the sync.

    Error 47 means that the producer has a newer epoch, 52 that a newer coordinator has written a marker for it. Error
    56 leaves everything as it was. Without an open transaction the marker is written all the same: coordinators repeat
    themselves after a crash.
    """
    producers = log.producers
    error = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
    if log.offline is None and error:
        return Appended(error, error_message=_MESSAGES[error])
    log.write_staged()
    now_ms = log.now_ms()  # wall clock: the timestamp of a marker
    marker = EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
    batch = build_marker_batch(marker, timestamp=now_ms, producer_id=producer_id, producer_epoch=producer_epoch)
    appended = log.stage(memoryview(batch), Origin.COORDINATOR, now_ms, may_wait=may_wait)
    if isinstance(appended, Retry) or appended.error_code:
        return appended
    offset, first_offset = appended.base_offset, producers.open_since(producer_id)
    index = log.segments.active.transaction_index
    aborted = None
    if not commit and first_offset >= 0:
        stable_offset = producers.transactions.stable_without(producer_id, offset)
        aborted = AbortedTransaction(producer_id, first_offset, offset, stable_offset)
        try:
            # Before the marker: a reader that sees the marker must find the entry. If this fails, no state has changed.
            index.append(aborted)
        except StorageFailure as failure:
            log.drop_staged(failure)
            return appended
        log.sync_paths(index.file.path, log.folder)
    log.write_staged()
    if not appended.error_code:
        log.note_transaction_end(producer_id, producer_epoch, coordinator_epoch, offset, now_ms)
        producers.guards.end(producer_id, producer_epoch, transaction_version)  # mutant: marker-fells-guards
    elif aborted is not None:
        try:
            index.truncate(offset)
        except StorageFailure as failure:
            log.take_offline(str(failure))
    return appended
