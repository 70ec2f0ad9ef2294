"""The offset index's bytes and look-ups."""

from __future__ import annotations

from storage_svc.log.disk.files import Files
from storage_svc.log.segment.offset_index import OffsetIndex

ENTRIES = [(119, 4200), (129, 9000), (150, 20_000)]


def index(path):
    return OffsetIndex(Files(), str(path / "x"), 100, 24)


def test_bytes(tmp_path):
    written = index(tmp_path)
    for entry in ENTRIES[:2]:
        written.append(*entry)
    written.file.persist()
    assert written.file.count == written.entries_max - 1
    written.append(*ENTRIES[2])
    assert written.file.count == written.entries_max
    assert written.last == ENTRIES[2]
    written.file.finish()
    expected = "00000013 00001068  0000001d 00002328  00000032 00004e20"
    assert (tmp_path / "x").read_bytes() == bytes.fromhex(expected)


def test_look_ups_growing_and_mapped(tmp_path):
    first, second, third = ENTRIES
    found = {0: None, 100: None, 118: None, 119: first, 128: first, 129: second, 149: second, 150: third, 999: third}
    at = {0: None, 4199: None, 4200: first, 8999: first, 9000: second, 99_999: third}
    growing = index(tmp_path)
    for entry in ENTRIES:
        growing.append(*entry)
    growing.file.persist()
    mapped = index(tmp_path)
    assert mapped.file.load(growing=False)
    for each in (growing, mapped):
        assert {offset: each.lookup(offset) for offset in found} == found
        assert {position: each.lookup_position(position) for position in at} == at
