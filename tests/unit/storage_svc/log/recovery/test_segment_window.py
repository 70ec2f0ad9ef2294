"""Sectors that never came to the disk (a power cut) are distinguished from bytes that were damaged there."""

from __future__ import annotations

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.recovery.segment_window import SegmentWindow
from storage_svc.log.segment.segment import Segment

SECTOR = 512
SIZE = 4 * SECTOR
#: No byte of it is zero.
FULL = bytes([0xA5]) * SIZE


@pytest.fixture
def never_written(tmp_path):
    """Whether a hole between two positions looks so, in a segment of `content` with zeros in one range."""
    segments = []

    def ask(start, end, zeros, content=FULL):
        path = tmp_path / f"{0:020d}.log"
        path.write_bytes(content[: zeros[0]] + bytes(zeros[1] - zeros[0]) + content[zeros[1] :])
        segments.append(Segment(Files(), str(tmp_path), 0, LogConfig(), 0))
        segments[-1].open()
        return SegmentWindow(segments[-1]).never_written(start, end)

    yield ask
    for segment in segments:
        segment.close()


@pytest.mark.parametrize(
    ("start", "end", "zeros"),
    [
        (512, 1024, (512, 1024)),
        (500, 1100, (512, 1024)),
        (100, 2048, (1024, 1536)),
        (100, 2048, (1536, 2048)),
        # The next batch begins with the last zeros of the sector: an offset begins with up to seven.
        (500, 1023, (512, 1024)),
        (500, 1017, (512, 1024)),
        (512, 1017, (512, 1024)),
        # The first sector's beginning is the batch before it, which had been synced.
        (501, 1100, (501, 512)),
        (501, 1100, (501, 1024)),
        (300, 508, (300, 512)),
        (300, 400, (300, 512)),
        # No offset but the first is zero: nine zeros are more than its bytes.
        (503, 1100, (503, 512)),
    ],
)
def test_a_whole_sector_or_the_rest_of_one_was_never_written(never_written, start, end, zeros):
    assert never_written(start, end, zeros)


@pytest.mark.parametrize(
    ("start", "end", "zeros"),
    [
        (100, 2000, (100, 100)),  # flipped bytes leave no zeros
        (100, 2000, (513, 1024)),
        (100, 2000, (512, 1023)),
        (100, 2000, (768, 1280)),  # as long as a sector, and none
        (500, 1017, (513, 1024)),
        (500, 1017, (512, 1017)),  # the rest of the sector is there
        (512, 1017, (512, 1017)),
        (500, 1100, (501, 512)),  # the batch's first byte is there
        (500, 1100, (500, 511)),
        (300, 400, (300, 400)),  # a whole batch, and a good one after it in its sector
        (504, 1100, (504, 512)),  # eight are an offset, which can be put right
        (100, 1024, (1024, 1536)),  # after the hole
        (600, 1100, (0, 512)),  # before it
    ],
)
def test_other_zeros_are_damage(never_written, start, end, zeros):
    assert not never_written(start, end, zeros)


def test_a_sector_that_the_file_does_not_reach_the_end_of_is_not_whole(never_written):
    assert not never_written(500, 1000, (512, 1000), FULL[:1000])
    assert never_written(500, 1024, (512, 1024), FULL[:1024])
