"""What a scrub does to one partition: every batch of its segments is read as recovery reads it, whatever was synced.

    job     {"folder": path, "segments": [[base offset, bytes], …], "bytes_per_second": 0 for no limit}
    found   {"segment": base offset, "file_id": inode, "bytes": size, "damaged": whether `look` will find damage}
            for each segment that is there as the job says, then {"done": true}; or {"failed": reason}

Length, CRC and the place of each batch are checked (segment_scan.py). The job runs in a helper process
(helper_process.py), whose word is only a hint: what is done about damage is decided by looking again, in the broker
(scrub.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from storage_svc.log import checkpoints, helper_process
from storage_svc.log.batches import Header
from storage_svc.log.cleaner_job import Pace, Stopped
from storage_svc.log.config import LogConfig
from storage_svc.log.errors import StorageFailure
from storage_svc.log.files import Files
from storage_svc.log.leader_epochs import LeaderEpochs
from storage_svc.log.quarantine import known_gaps
from storage_svc.log.read_only import ReadOnlyFiles
from storage_svc.log.segment import Segment
from storage_svc.log.segment_scan import Hole, SegmentScan

_PACED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Look:
    """What one segment was found to be."""

    segment: Segment
    file_id: int
    size: int
    holes: list[Hole]
    #: (position, header as it should be) of batches whose base offset or leader epoch is not what it should be.
    moved: list[tuple[int, Header]]

    @property
    def damaged(self) -> bool:
        return bool(self.holes or self.moved)


def look(
    files: Files, folder: str, segments: Sequence[tuple[int, int]], pace: Callable[[int], None] = lambda _: None
) -> Iterator[Look]:
    """Read the segments of a partition, of each so many bytes from the beginning; those that are gone, or shorter than
    that by now, are passed over. Each is open while it is handed out.

    Raises:
        StorageFailure: the disk did not answer.
    """
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
            later = [each for each in all_segments[number + 1 :] if files.exists(each.path)]
            scan = SegmentScan(segment, epochs, later, lambda _window, _hole: False, gaps=gaps)
            read = 0
            for position, header in scan:
                if position + header.size - read >= _PACED_BYTES:
                    pace(position + header.size - read)
                    read = position + header.size
            yield Look(segment, segment.file_id, size, scan.holes, scan.corrected)
        finally:
            segment.close()


def _work(job: dict[str, Any], stopped: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    pace = Pace(job["bytes_per_second"], stopped)
    try:
        for found in look(ReadOnlyFiles(), job["folder"], job["segments"], pace.spend):
            yield {
                "segment": found.segment.base_offset,
                "file_id": found.file_id,
                "bytes": found.size,
                "damaged": found.damaged,
            }
        yield {"done": True}
    except (Stopped, StorageFailure) as error:
        yield {"failed": str(error) or "stopping"}
    except Exception as error:  # a bug; the other partitions are to be read all the same
        yield {"failed": f"{type(error).__name__}: {error}"}


def main() -> int:
    helper_process.serve(_work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
