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

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final

from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import LogError, Refused, StorageFailure
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment_names import CLEANED_SUFFIX, SWAP_SUFFIX

_OWN: Final = ""
#: The pauses before a sync is tried again that the system refused to begin.
_SYNC_PAUSES_S: Final = (0.1, 0.5, 2.0)


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """A complete new segment, and the base offsets of the old segments that it replaces."""

    base_offsets: Sequence[int]
    size: int


class Outdated(LogError):  # noqa: N818 (reads as what happened)
    """The log differs from the cleaned one: it is deleted, offline, or some of the segments are gone."""


#: The steps of a swap: paths to sync. A sync that fails is raised in the step that asked for it.
Steps = Generator[str, None, None]


async def carry_out(steps: Steps, sync: Callable[[str], None], threads: Threads) -> None:
    """Carry out a swap while the event loop goes on; one of these threads syncs.

    Raises:
        Outdated, StorageFailure: see `swap`.
    """
    path = _resume(steps, None)
    while path is not None:
        failure: StorageFailure | None = None
        for pause_s in (*_SYNC_PAUSES_S, None):
            try:
                await threads.run(sync, path)
            except Refused as error:
                failure = error
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
                    continue
            except StorageFailure as error:
                failure = error
            else:
                failure = None
            break
        path = _resume(steps, failure)


def carry_out_now(steps: Steps, sync: Callable[[str], None]) -> None:
    """Carry out a swap before this returns.

    Raises:
        Outdated, StorageFailure: see `swap`.
    """
    path = _resume(steps, None)
    while path is not None:
        failure: StorageFailure | None = None
        try:
            sync(path)
        except StorageFailure as error:
            failure = error
        path = _resume(steps, failure)


def _resume(steps: Steps, failure: StorageFailure | None) -> str | None:
    """Return the next path to sync; None at the end."""
    try:
        return next(steps) if failure is None else steps.throw(failure)
    except StopIteration:
        return None


def swap(log: PartitionLog, group: CleanedGroup, now_ms: int) -> Steps:
    """Return the steps of a swap, for `carry_out`.

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
            _remove(log, new)
        raise
    new.pin()  # readers use it under every name
    try:
        log.replace_segments(old, new)
        for segment in old:
            log.set_aside(segment, snapshot=segment.base_offset != new.base_offset)
        yield log.folder
        if not log.deleted:
            # The `.log` first: as long as it is a `.swap`, a start takes files under their proper names for old ones.
            _rename_files(log, new, _OWN, log_first=True)  # mutant: log-renamed-first
            yield log.folder
    except StorageFailure as error:
        log.take_offline(f"segment swap failed: {error}")
        raise
    new.unpin()


def _remove(log: PartitionLog, new: Segment) -> None:
    """Remove the new segment, so that a start after a crash on the way removes the rest of it.

    The `.log` becomes a `.cleaned` first: a start would give indexes without it to the old segment.
    """
    files = log.files
    new.rename(SWAP_SUFFIX)
    swapped = new.paths()
    new.rename(CLEANED_SUFFIX)
    if files.exists(swapped[-1]):
        files.rename(swapped[-1], new.path)
    for path in (*swapped, *new.paths()):
        files.unlink(path)


def _check(log: PartitionLog, group: CleanedGroup) -> list[Segment]:
    """Return the old segments, which must be there as they were."""
    if log.deleted or log.offline is not None:
        raise Outdated("the log is deleted or offline")
    index = log.segments.index_of(group.base_offsets[0])
    old = log.segments.older_segments()[index : index + len(group.base_offsets)]
    if [segment.base_offset for segment in old] != list(group.base_offsets):
        raise Outdated("segments were deleted while they were cleaned")
    return old


def _rename_files(log: PartitionLog, segment: Segment, suffix: str, *, log_first: bool = False) -> None:
    """Rename the segment's files so that they end in this suffix, the `.log` last or first."""
    paths = list(zip(segment.paths(), segment.own_paths(), strict=True))
    for path, own in reversed(paths) if log_first else paths:
        if log.files.exists(path):
            log.files.rename(path, own + suffix)
    segment.rename(suffix)
