"""Putting rewritten segments in the place of old ones, so that a crash at any moment leaves the old ones or the new.

The new segment is complete and synced, named `.cleaned`. Then, with a sync of the folder (...) between the steps:

    .cleaned -> .swap          from now on a start finishes the swap (partition_folder.py); before, it forgets it
    (...)
    old -> .deleted            readers have the new segment from here on, under its `.swap` name
    (...)
    .swap -> its proper name
    (...)

Renames are steps of the event loop's thread, between which readers run; the syncs may run in another thread. The old
files are unlinked after `file.delete.delay.ms`: readers with an open descriptor continue to read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from storage_svc.log.errors import LogError, StorageFailure
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment_names import CLEANED_SUFFIX, SWAP_SUFFIX

_OWN: Final = ""


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """A complete new segment, and the base offsets of the old segments that it replaces."""

    base_offsets: Sequence[int]
    size: int


class Outdated(LogError):  # noqa: N818 (reads as what happened)
    """The log differs from the cleaned one: it is deleted, offline, or some of the segments are gone."""


def swap(log: PartitionLog, group: CleanedGroup, now_ms: int) -> Iterator[str]:
    """Carry out the swap; the caller syncs every path that is yielded before it resumes.

    Raises:
        Outdated: the old segments stay, the new one is gone.
        StorageFailure: as above; or, once readers have the new segment, the log is offline.
    """
    new = Segment(log.files, log.folder, group.base_offsets[0], log.config, now_ms, suffix=CLEANED_SUFFIX)
    new.size = group.size
    try:
        _check(log, group)
        _rename_files(log, new, SWAP_SUFFIX)
        yield log.folder
        old = _check(log, group)
        new.open()
    except (Outdated, StorageFailure):
        if not log.deleted:  # else the folder has another name, and its old one may be another topic's
            for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX):
                new.rename(suffix)
                for path in new.paths():
                    log.files.unlink(path)
        raise
    new.pin()  # readers use it under every name
    try:
        log.replace_segments(old, new)
        yield log.folder
        if not log.deleted:
            _rename_files(log, new, _OWN)
            yield log.folder
    except StorageFailure as error:
        log.take_offline(f"segment swap failed: {error}")
        raise
    new.unpin()


def _check(log: PartitionLog, group: CleanedGroup) -> list[Segment]:
    """Return the old segments, which must be there as they were."""
    if log.deleted or log.offline is not None:
        raise Outdated("the log is deleted or offline")
    index = log.segments.index_of(group.base_offsets[0])
    old = log.segments.older_segments()[index : index + len(group.base_offsets)]
    if [segment.base_offset for segment in old] != list(group.base_offsets):
        raise Outdated("segments were deleted while they were cleaned")
    return old


def _rename_files(log: PartitionLog, segment: Segment, suffix: str) -> None:
    """Rename the segment's files so that they end in this suffix, the `.log` last."""
    for path, own in zip(segment.paths(), segment.own_paths(), strict=True):
        if log.files.exists(path):
            log.files.rename(path, own + suffix)
    segment.rename(suffix)
