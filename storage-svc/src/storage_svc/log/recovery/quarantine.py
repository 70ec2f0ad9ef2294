"""Damaged bytes that were removed from a log and kept: the folder `quarantine` in the partition's folder.

    quarantine/00000000000000000000.log-8400-20-30     the bytes that were at position 8400 of that segment, between
                                                       the batches of offset 19 and offset 30
    quarantine/00000000000000000700.log-0-712-         at the end of the log: nothing good came after them

A hole is first copied here and synced. Then the segment is written again without it (`.cleaned`, synced, renamed over
the old one). So the segment is sound for every reader, Kafka's tools too, and the hole is a gap in the offsets, as
compaction leaves them.

The broker never reads, changes or deletes these files. It reads their names, which distinguish a gap that damage left
from one that a power cut left. Operators decide about the content. It is deleted with its topic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from service_chassis import logs

from storage_svc.log.batch.header import Header, pack_prefix
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.recovery.segment_scan import Hole
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment_names import CLEANED_SUFFIX, LOG_SUFFIX, file_stem

FOLDER: Final = "quarantine"
_NAME: Final = re.compile(rf"\d{{20}}{re.escape(LOG_SUFFIX)}-\d+-(\d+)-(\d+)(?:\.\d+)?")

_STEP: Final = 8 << 20

_log = logs.get(__name__)


def known_gaps(files: Files, folder: str) -> dict[int, int]:
    """Return where damage was removed: the offset after the last batch before each gap -> the first offset after the
    gap.

    Of gaps that begin at one offset, the last one found is the widest.

    Raises:
        StorageFailure: the folder cannot be read.
    """
    path = f"{folder}/{FOLDER}"
    names = [name for name, is_folder, _ in files.entries(path) if not is_folder] if files.exists(path) else []
    gaps: dict[int, int] = {}
    for name in names:
        if (match := _NAME.fullmatch(name)) is not None:
            first, following = int(match[1]), int(match[2])
            gaps[first] = max(following, gaps.get(first, 0))
    return gaps


def set_aside_holes(files: Files, segment: Segment, holes: Sequence[Hole]) -> None:
    """Copy the bytes in the holes.

    Raises:
        StorageFailure: not all of it could be; nothing was changed.
    """
    folder = f"{segment.folder}/{FOLDER}"
    files.make_folder(folder)
    for hole in holes:
        following = "" if hole.next_offset is None else hole.next_offset
        name = f"{file_stem(segment.base_offset)}{LOG_SUFFIX}-{hole.start}-{hole.first_offset}-{following}"
        path, number = f"{folder}/{name}", 1
        while files.exists(path) and not _begins_with(files, path, segment, hole):
            number += 1  # another damage at the same position, after the segment was rewritten
            path = f"{folder}/{name}.{number}"
        temporary = f"{path}.tmp"
        files.unlink(temporary)
        descriptor = files.open(temporary, create=True)
        try:
            for position in range(hole.start, hole.end, _STEP):
                piece = segment.read(position, min(_STEP, hole.end - position))
                files.append(descriptor, [piece], position - hole.start, len(piece))  # mutant: damage-copied
            files.sync(descriptor)
        except StorageFailure:
            files.unlink(temporary)
            raise
        finally:
            files.close(descriptor)
        files.rename(temporary, path)
    files.sync_path(folder)
    files.sync_path(segment.folder)


def log_holes(segment: Segment, holes: Sequence[Hole]) -> int:
    """Log which holes were cut out of a segment; return the number of their bytes."""
    for hole in holes:
        _log.error(
            "damage quarantined",
            segment=segment.relative_path,
            position=hole.start,
            bytes=hole.end - hole.start,
            first_offset=hole.first_offset,
            next_offset=hole.next_offset,
        )
    return sum(hole.end - hole.start for hole in holes)


def log_corrected(segment: Segment, corrected: Sequence[tuple[int, Header]]) -> None:
    """Log which headers of a segment, by position, are corrected."""
    for position, header in corrected:
        _log.error(
            "batch header corrected",
            segment=segment.relative_path,
            position=position,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )


def _begins_with(files: Files, path: str, segment: Segment, hole: Hole) -> bool:
    """Return whether the bytes in the hole begin with the content of a file."""
    size = files.size(path)
    if size > hole.end - hole.start:
        return False
    descriptor = files.open(path, create=False)
    try:
        return all(
            files.read(descriptor, min(_STEP, size - at), at) == segment.read(hole.start + at, min(_STEP, size - at))
            for at in range(0, size, _STEP)
        )
    finally:
        files.close(descriptor)


def write_without(files: Files, segment: Segment, holes: Sequence[Hole], end: int) -> None:
    """Write the segment again: its bytes up to the end position without the holes. It is open afterwards.

    Raises:
        StorageFailure: the old segment is as it was.
    """
    _copy(files, segment, holes, (), end)
    segment.close()
    files.rename(segment.path + CLEANED_SUFFIX, segment.path)
    files.sync_path(segment.folder)
    segment.open()


def write_sound(
    files: Files, segment: Segment, holes: Sequence[Hole], moved: Sequence[tuple[int, Header]], config: LogConfig
) -> int:
    """Write the good part of a segment, with these headers corrected, as a `.cleaned` segment; return its size.

    The new segment has its indexes and is complete and synced, for segment_swap.py.

    Raises:
        StorageFailure: the caller removes the files that were written.
    """
    modified_ms = files.modified_ms(segment.path)
    size = _copy(files, segment, holes, moved, segment.size)
    aborted = list(segment.transaction_index)
    sound = Segment(files, segment.folder, segment.base_offset, config, modified_ms, suffix=CLEANED_SUFFIX)
    if aborted:  # mutant: aborted-kept-by-repair
        sound.transaction_index.replace(aborted)
    sound.open()
    sound.rebuild()
    sound.release()
    files.set_modified_ms(sound.path, modified_ms)
    return size


def _copy(files: Files, segment: Segment, holes: Sequence[Hole], moved: Sequence[tuple[int, Header]], end: int) -> int:
    """Write and sync the `.cleaned` file; its size."""
    path = segment.path + CLEANED_SUFFIX
    files.unlink(path)
    descriptor = files.open(path, create=True)
    try:
        written = start = 0
        for hole_start, hole_end in [*((hole.start, hole.end) for hole in holes), (end, end)]:
            for position in range(start, min(hole_start, end), _STEP):
                piece = segment.read(position, min(_STEP, hole_start - position))
                files.append(descriptor, [piece], written, len(piece))
                written += len(piece)
            start = hole_end
        for position, header in moved:
            before = sum(hole.end - hole.start for hole in holes if hole.start < position)
            prefix = pack_prefix(header.base_offset, header.batch_length, header.leader_epoch)
            files.append(descriptor, [prefix], position - before, len(prefix))
        files.sync(descriptor)  # mutant: repair-synced
    finally:
        files.close(descriptor)
    return written
