"""The part of a log that can be cleaned, and the choice of the dirtiest log (Kafka's LogCleanerManager).

    log start        cleaned to        end of the cleanable part
    |   clean        |      dirty      |   not yet: active, open transactions, not synced, too young   |

Clean and dirty parts are counted in whole segments. A log is due when the dirty share of the two exceeds
`min.cleanable.dirty.ratio`, or when a dirty record is older than `max.compaction.lag.ms`.
"""

from __future__ import annotations

from dataclasses import dataclass

from service_chassis import logs

from storage_svc.log.batch.header import headers
from storage_svc.log.config import FOREVER
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.segment.segment import Segment

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Cleanable:
    """`end_offset` is where the first segment begins that cannot be cleaned yet."""

    log: PartitionLog
    dirty_from: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of the cleanable bytes, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        """Whether the log is to be cleaned now."""
        return self.dirty_bytes > 0 and (self.overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio)


def cleanable(log: PartitionLog, now_ms: int) -> Cleanable:
    """Return the cleanable part of a log.

    Raises:
        StorageFailure: the disk did not answer.
    """
    segments = log.segments
    dirty_from = _dirty_from(log)
    first_dirty = segments.index_of(dirty_from)
    dirty = segments.older_segments()[first_dirty:]
    # After the recovery point a power cut may still take a record back; the record it superseded must not be gone.
    # mutant: compaction-below-recovery-point
    limit = min(log.last_stable_offset, segments.active.base_offset, log.recovery_point)
    if (lag_ms := log.config.min_compaction_lag_ms) > 0:
        limit = min([limit, *(segment.base_offset for segment in dirty if _youngest(log, segment) > now_ms - lag_ms)])
    end = max(segments.index_of(limit), first_dirty)
    dirty = dirty[: end - first_dirty]
    return Cleanable(
        log,
        dirty_from,
        segments.bases[end],
        sum(segment.size for segment in segments if segment.base_offset < dirty_from),
        sum(segment.size for segment in dirty),
        _overdue(log, dirty, now_ms),
    )


def dirtiest(found: list[Cleanable]) -> Cleanable | None:
    """Return the dirtiest of the logs that are due; None if none is."""
    return max((each for each in found if each.due), key=lambda each: each.dirty_ratio, default=None)


def _dirty_from(log: PartitionLog) -> int:
    cleaned_to = log.compaction.cleaned_to
    if cleaned_to is None or cleaned_to < log.log_start_offset:
        return log.log_start_offset
    if cleaned_to > log.log_end_offset:
        _log.warning("cleaned offset is after the log's end: all is dirty", log=log.folder, cleaned_to=cleaned_to)
        log.compaction.cleaned_to = None
        return log.log_start_offset
    return cleaned_to


def _youngest(log: PartitionLog, segment: Segment) -> int:
    largest, _ = segment.largest_timestamp()
    return largest if largest >= 0 else log.files.modified_ms(segment.path)


def _overdue(log: PartitionLog, dirty: list[Segment], now_ms: int) -> bool:
    """Return whether the first batch of a dirty segment is older than a record may be without being cleaned."""
    if log.config.max_compaction_lag_ms == FOREVER:
        return False
    oldest = now_ms - log.config.max_compaction_lag_ms
    for segment in dirty:
        segment.open()
        for _, header in headers(log.files, segment.descriptor, 0, segment.size, 64):
            if 0 < header.max_timestamp < oldest:
                return True
            break
    return False
