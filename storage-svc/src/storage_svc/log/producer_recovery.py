"""Producer state when a log is opened: the newest sound snapshot, then the batches behind it.

A snapshot knows the last batch of each producer only; those shortly before it are found in the log again, so that a
producer that repeats one of its last five batches across the restart is recognised. Snapshots that no start needs any
more are removed: all but the one used and those where a segment begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service_chassis import logs

from storage_svc.log.batches import headers
from storage_svc.log.files import Files
from storage_svc.log.producer_state import SNAPSHOT_SUFFIX, ProducerState, UnreadableSnapshot
from storage_svc.log.segment import Segment, file_stem

# How far before a clean end the last batches of each producer are looked for.
_REFILL_BYTES: Final = 8 << 20

_log = logs.get(__name__)


def recover_producers(
    files: Files, folder: str, snapshots: Sequence[int], segments: Sequence[Segment], end_offset: int, now_ms: int
) -> ProducerState:
    """The state as of the end offset. The last segment is open, its indexes are loaded.

    Raises:
        StorageFailure: the folder cannot be read or written.
    """
    producers = ProducerState()
    start = segments[0].base_offset
    usable = [offset for offset in snapshots if start <= offset <= end_offset]
    loaded = _load_newest(producers, files, folder, usable, now_ms)
    bases = {segment.base_offset for segment in segments}
    for offset in snapshots:
        if offset not in bases and offset != loaded:
            files.unlink(_path(folder, offset))
    replay_from = start if loaded is None else loaded
    if len(producers):
        _refill(producers, files, segments[-1], replay_from)
    if replay_from < end_offset:
        _replay(producers, files, segments, replay_from, now_ms)
    return producers


def _load_newest(
    producers: ProducerState, files: Files, folder: str, offsets: Sequence[int], now_ms: int
) -> int | None:
    """The offset of the snapshot that was loaded; unreadable ones are removed."""
    for offset in reversed(offsets):
        path = _path(folder, offset)
        try:
            producers.load(files.read_file(path) or b"", now_ms)
        except UnreadableSnapshot as error:
            _log.warning("producer snapshot unreadable", path=path, reason=str(error))
            files.unlink(path)
        else:
            return offset
    return None


def _refill(producers: ProducerState, files: Files, active: Segment, offset: int) -> None:
    start = active.boundary(0, max(0, active.position_before(offset) - _REFILL_BYTES))
    recent = [header for _, header in headers(files, active.descriptor, start, active.size)]
    for header in reversed(recent):
        if header.producer_id >= 0 and header.base_offset < offset:
            producers.remember_before(header)


def _replay(producers: ProducerState, files: Files, segments: Sequence[Segment], offset: int, now_ms: int) -> None:
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
            continue
        segment.open()
        start = segment.position_before(offset) if segment is segments[-1] else 0
        for _, header in headers(files, segment.descriptor, start, segment.size):
            if header.base_offset >= offset:
                producers.replay(header, now_ms)
        if segment is not segments[-1]:
            segment.close()


def _path(folder: str, offset: int) -> str:
    return f"{folder}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"
