"""The time index's bytes and look-ups."""

from __future__ import annotations

from storage_svc.log.disk.files import Files
from storage_svc.log.segment.time_index import TimeIndex


def test_bytes_and_look_ups(tmp_path):
    index = TimeIndex(Files(), str(tmp_path / "x"), 100, 12 * 4)
    for timestamp, offset in ((1000, 105), (1000, 109), (999, 110), (2000, 111), (3000, 112)):
        index.append(timestamp, offset)
        assert (index.file.count == index.entries_max) is (offset == 112)
    index.file.finish()
    expected = "00000000000003e8 00000005  00000000000007d0 0000000b  0000000000000bb8 0000000c"
    assert (tmp_path / "x").read_bytes() == bytes.fromhex(expected)
    assert index.file.load(growing=False)
    first, second, third = (1000, 105), (2000, 111), (3000, 112)
    found = {0: None, 1000: None, 1001: first, 2000: first, 2001: second, 3000: second, 3001: third, 9999: third}
    assert {timestamp: index.lookup(timestamp) for timestamp in found} == found


def test_a_log_without_timestamps_has_no_entries(tmp_path):
    index = TimeIndex(Files(), str(tmp_path / "x"), 0, 48)
    index.append(-1, 5)
    assert index.last is None
    index.append(0, 6)
    assert index.last == (0, 6)
