"""The scrub of one partition: every batch of its segments is read as recovery reads it, even if it is synced.

    job     {"folder": path, "segments": [[base offset, bytes], …], "start_offset": the log start,
             "end_offset": the offset after their last record, "bytes_per_second": 0 for no limit}
    found   {"segment": base offset, "file_id": inode, "bytes": size, "damaged": whether `look` will find damage,
             "unreadable": number of batches whose records clients cannot read, "named": the first of them,
             "unreadable_end": the last offset of the last of them}
            for each segment that is there as the job says, then {"done": true}; or {"failed": reason}

Length, CRC and position of each batch are checked, and its records are read as clients read them. A segment in which
each batch continues the one before it is read quickly. Any other is read once more as recovery reads it
(segment_scan.py): it may be damaged, or compacted. The job runs in a helper process (helper_process.py), whose findings
are only a hint: the broker checks again before it repairs damage (scrubber.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from crc32c import crc32c
from protocol_lib.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC

from storage_svc.log.batch.header import CRC_START, Header, unpack_header
from storage_svc.log.batch.readability import UnreadableBatches
from storage_svc.log.config import LogConfig
from storage_svc.log.disk import checkpoints, helper_process
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.pace import Pace
from storage_svc.log.disk.read_only import ReadOnlyFiles
from storage_svc.log.errors import Stopped, StorageFailure
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.recovery.quarantine import known_gaps
from storage_svc.log.recovery.segment_scan import Hole, SegmentScan
from storage_svc.log.segment.segment import Segment

_STEP: Final = 1 << 20
#: Base offset, length, leader epoch, format, CRC, last offset delta of a batch.
_HEAD: Final = Struct(">qiibI2xi").unpack_from


@dataclass(frozen=True, slots=True)
class Look:
    """The findings in one segment."""

    segment: Segment
    file_id: int
    size: int
    holes: list[Hole]
    #: Batches with a wrong base offset or leader epoch: (position, header as it should be).
    moved: list[tuple[int, Header]]
    #: The batches whose records clients cannot read; None if nobody asked.
    unreadable: UnreadableBatches | None = None

    @property
    def damaged(self) -> bool:
        """Whether anything in the segment must be repaired."""
        return bool(self.holes or self.moved)


def look(
    files: Files,
    folder: str,
    segments: Sequence[tuple[int, int]],
    end_offset: int,
    pace: Callable[[int], None] = lambda _: None,
    epochs: LeaderEpochs | None = None,
    start_offset: int | None = None,
) -> Iterator[Look]:
    """Read the first bytes of each segment of a partition; yield each segment, open, with the findings.

    With a `start_offset`, the records of the batches from it on are read as well.

    Segments that are gone, or shorter by now, are passed over. The bytes end at `end_offset`: without it, the last
    batch of a compacted segment would look as if it belonged before the gap.

    Raises:
        StorageFailure: the disk did not answer.
    """
    if epochs is None:
        epochs = LeaderEpochs(files, f"{folder}/{checkpoints.LEADER_EPOCHS}")
        epochs.load()
    gaps = known_gaps(files, folder)
    all_segments = [Segment(files, folder, base_offset, LogConfig(), 0) for base_offset, _ in segments]
    for number, segment in enumerate(all_segments):
        if not files.exists(segment.path):
            continue
        segment.open()
        try:
            size = segments[number][1]
            if segment.size < size:
                continue
            segment.size = size
            unreadable = None if start_offset is None else UnreadableBatches(start_offset)
            if _is_gapless(segment, epochs, pace, unreadable):
                yield Look(segment, segment.file_id, size, [], [], unreadable)
                continue
            unreadable = None if start_offset is None else UnreadableBatches(start_offset)
            later = [each for each in all_segments[number + 1 :] if files.exists(each.path)]
            scan = SegmentScan(segment, epochs, later, lambda _window, _hole: False, gaps=gaps, log_end=end_offset)
            read = 0
            for position, header in scan:
                if unreadable is not None:
                    unreadable.check(position, header, scan.window.batch(position, header))
                if position + header.size - read >= _STEP:
                    pace(position + header.size - read)
                    read = position + header.size
            yield Look(segment, segment.file_id, size, scan.holes, scan.corrected, unreadable)
        finally:
            segment.close()


def _is_gapless(
    segment: Segment, epochs: LeaderEpochs, pace: Callable[[int], None], unreadable: UnreadableBatches | None
) -> bool:
    """Return whether each batch is good, continues the one before it, and has the epoch that the list says."""
    position, expected, epoch, epoch_end, step = 0, segment.base_offset, -1, -1, _STEP
    while position < segment.size:
        piece = memoryview(segment.read(position, min(step, segment.size - position)))
        at, step = 0, 0
        while at + HEADER_SIZE <= len(piece):
            base_offset, length, leader_epoch, magic, crc, last_delta = _HEAD(piece, at)
            if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD or base_offset != expected or last_delta < 0:
                return False
            if expected >= epoch_end:
                epoch, epoch_end = epochs.at(expected), epochs.next_start(expected)
            end = at + LOG_OVERHEAD + length
            if leader_epoch != epoch or position + end > segment.size:
                return False
            if end > len(piece):
                step = end - at
                break
            if crc32c(piece[at + CRC_START : end]) != crc:
                return False
            if unreadable is not None:
                unreadable.check(position + at, Header._make(unpack_header(piece, at)), piece[at:end])
            expected += last_delta + 1
            at = end
        if at == step == 0:  # less than a header is left
            return False
        step = max(step, _STEP)
        position += at
        pace(at)
    return True


def _work(job: dict[str, Any], stopped: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    pace = Pace(job["bytes_per_second"], stopped)
    try:
        place = job["folder"], job["segments"], job["end_offset"]
        for found in look(ReadOnlyFiles(), *place, pace.spend, start_offset=job["start_offset"]):
            unreadable = found.unreadable or UnreadableBatches(0)
            yield {
                "segment": found.segment.base_offset,
                "file_id": found.file_id,
                "bytes": found.size,
                "damaged": found.damaged,
                "unreadable": unreadable.count,
                "named": unreadable.named,
                "unreadable_end": unreadable.last_offset,
            }
        yield {"done": True}
    except (Stopped, StorageFailure) as error:
        yield {"failed": str(error) or "stopping"}
    except Exception as error:  # a bug; the other partitions are to be read all the same
        yield {"failed": f"{type(error).__name__}: {error}"}


def main() -> int:
    """Run the helper process."""
    helper_process.serve(_work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
