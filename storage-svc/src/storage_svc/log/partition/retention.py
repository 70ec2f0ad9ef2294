"""The choice of segments to delete: `retention.bytes`, `retention.ms`, and records below the log start offset.

Kafka's order:

1. segments wholly below the log start
2. the oldest while the log without it is still as large as `retention.bytes` allows
3. the oldest while its youngest record is older than `retention.ms`

No segment after the high watermark goes, and none while the log is compacted. When the active segment is due too,
another one is started first. Files are renamed `.deleted` at once and unlinked after `file.delete.delay.ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from service_chassis import logs

from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import Refused, StorageFailure
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.partition_log import PartitionLog

_log = logs.get(__name__)


async def retain(log: PartitionLog, now_ms: int, threads: Threads) -> None:
    """Do as `apply_retention` does, while the event loop goes on: one of these threads syncs.

    Raises:
        StorageFailure: the disk refused; the next call finds the remaining segments again.
    """
    if _due(log, now_ms) and (path := log.snapshots.to_sync(log.segments.bases)) is not None:
        await threads.run(log.files.sync_path, path)  # mutant: retention-off-loop
        if log.deleted:
            return
        log.snapshots.note_one_synced(path)
    apply_retention(log, now_ms)


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Delete the segments that the log's settings no longer keep; return the bytes they had.

    Raises:
        StorageFailure: the disk refused; the next call finds the remaining segments again.
    """
    reasons = _due(log, now_ms)
    if not reasons:
        return 0
    before = len(log.segments)
    freed = drop_oldest(log, reasons)
    if count := before - len(log.segments):
        _log.info(
            "segments deleted", log=log.folder, segments=count, bytes=freed, log_start_offset=log.log_start_offset
        )
    return freed


def _due(log: PartitionLog, now_ms: int) -> list[DeletionReason]:
    """Return the reason of each of the oldest segments that go. If all do, another one is started first.

    Raises:
        StorageFailure: the disk refused.
    """
    if log.deleted or log.offline is not None or log.compaction.running:
        return []
    reasons = [DeletionReason.LOG_START] * _below_start(log)
    if "delete" in log.config.cleanup_policy:
        reasons += [DeletionReason.SIZE] * (_too_much(log, len(reasons)) - len(reasons))
        # mutant: deletion-reason
        reasons += [DeletionReason.TIME] * (_too_old(log, len(reasons), now_ms) - len(reasons))
    if len(reasons) < len(log.segments):
        return reasons
    if log.roll_syncs:  # the active segment can wait until it is durable
        return reasons[:-1]
    try:
        log.roll(now_ms)
    except Refused as error:  # a full disk has no space for another segment; the older ones can go
        _log.warning("active segment kept", log=log.folder, reason=str(error))
        return reasons[:-1]
    return reasons


def drop_below_start(log: PartitionLog) -> int:
    """Delete the segments that lie wholly below the log start offset; return the bytes they had.

    Raises:
        StorageFailure: the disk refused; `apply_retention` finds the remaining segments again.
    """
    count = 0 if log.compaction.running else _below_start(log)
    return drop_oldest(log, [DeletionReason.LOG_START] * count) if count else 0


def drop_oldest(log: PartitionLog, reasons: Sequence[DeletionReason]) -> int:
    """Delete one of the oldest segments for each reason, at most, and never all; return the bytes they had.

    The producers with batches in them must be in the snapshot of a segment that stays. Without such a snapshot (it
    could not be written when the segment began) fewer segments are deleted, or none.

    The files are deleted first, which frees space on a full disk. The list of leader epochs, which needs some, is
    written last.

    Raises:
        StorageFailure: some files stay in the folder until the next start.
    """
    count = 0 if log.deleted else min(len(reasons), log.snapshots.newest(log.segments.bases))
    if count == 0:
        return 0
    dropped = log.take_oldest(reasons[:count])
    failure: StorageFailure | None = None
    for segment in dropped:
        try:
            log.set_aside(segment)
        except StorageFailure as error:  # the other segments are deleted all the same
            failure = failure or error
    log.raise_log_start(log.segments.bases[0])
    if failure is not None:
        raise failure
    return sum(segment.size for segment in dropped)


def _below_start(log: PartitionLog) -> int:
    count = 0
    while count + 1 < len(log.segments) and log.segments.bases[count + 1] <= log.log_start_offset:
        count += 1
    return count


def _too_much(log: PartitionLog, count: int) -> int:
    """Return how many of the oldest segments go, at least `count`, until the others are no larger than allowed."""
    if log.config.retention_bytes < 0:
        return count
    surplus = sum(segment.size for segment in list(log.segments)[count:]) - log.config.retention_bytes
    while _may_go(log, count) and surplus >= log.segments[count].size:
        surplus -= log.segments[count].size
        count += 1
    return count


def _too_old(log: PartitionLog, count: int, now_ms: int) -> int:
    """Return how many of the oldest segments go, at least `count`, until the next one is young enough."""
    if log.config.retention_ms < 0:
        return count
    while _may_go(log, count) and _expired(log, count, now_ms):
        count += 1
    return count


def _may_go(log: PartitionLog, index: int) -> bool:
    """Return whether there is a segment of this index, readable and, if it is the active one, not empty."""
    # mutant: retention-below-high-watermark
    if index >= len(log.segments) or log.segments.end_of(index, log.log_end_offset) > log.high_watermark:
        return False
    return index + 1 < len(log.segments) or log.segments.active.size > 0


def _expired(log: PartitionLog, index: int, now_ms: int) -> bool:
    segment = log.segments[index]
    largest, _ = segment.largest_timestamp()
    if largest < 0:
        largest = log.files.modified_ms(segment.path)
    return now_ms - largest > log.config.retention_ms
