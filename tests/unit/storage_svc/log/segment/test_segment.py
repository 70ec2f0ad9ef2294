"""Looking up batches in a segment, with sound indexes and with damaged ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.segment import index_file
from storage_svc.log.segment.positions import boundary, position_before, position_of_timestamp
from storage_svc.log.segment.segment import Segment

SIZES = [300, 150, 700, 90, 120, 400, 80, 60, 333, 90, 210, 140]
CONFIG = LogConfig(index_interval_bytes=1000)


@pytest.fixture
def closed(tmp_path, folders, fill, monkeypatch):
    """A cleanly closed log with several index entries: (folder, file name -> content, stored batches).

    Its indexes have been written in steps of a few entries, and were mapped in between.
    """
    monkeypatch.setattr(index_file, "MEMORY_BYTES", 20)
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), CONFIG)
    stored = [batch for size in SIZES for batch in fill(log, [3], size=size)]
    folders.stop(directory)
    files = {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.*")}
    return tmp_path / "t-0", files, stored


def opened(folder) -> Segment:
    return Segment(Files(), str(folder), 0, CONFIG, 0)


def positions_of(stored: list[tuple[int, bytes]]) -> list[int]:
    return [sum(len(batch) for _, batch in stored[:index]) for index in range(len(stored) + 1)]


def finds_offsets(segment: Segment, stored: list[tuple[int, bytes]]) -> None:
    positions = positions_of(stored)
    for index, (base, _) in enumerate(stored):
        for offset in range(base, base + 3):
            found = segment.locate(offset)
            assert found is not None
            assert (found[0], found[1].base_offset) == (positions[index], base)
        assert position_before(segment, base) in positions[: index + 1]


def finds_boundaries(segment: Segment, stored: list[tuple[int, bytes]]) -> None:
    positions = positions_of(stored)
    for before, limit in pairwise(positions):
        assert boundary(segment, 0, limit - 1)[0] == before
        assert boundary(segment, 0, limit)[0] == limit


def finds_timestamps(segment: Segment, stored: list[tuple[int, bytes]]) -> None:
    positions = positions_of(stored)
    timestamps = [int.from_bytes(batch[35:43], "big") for _, batch in stored]
    for timestamp in timestamps:
        start = positions.index(position_of_timestamp(segment, timestamp))
        assert all(earlier < timestamp for earlier in timestamps[:start])


@pytest.mark.parametrize("finds", [finds_offsets, finds_boundaries, finds_timestamps])
def test_every_flipped_byte_of_an_index_is_found_out_or_does_no_harm(closed, finds):
    folder, files, stored = closed
    indexes = [name for name in files if name.endswith("index")]
    assert [len(files[name]) // entry for name, entry in zip(sorted(indexes), (8, 12), strict=True)] == [5, 5]
    for name in indexes:
        for at in range(len(files[name])):
            for mask in (1, 0x80, 0xFF):
                damaged = bytearray(files[name])
                damaged[at] ^= mask
                (folder / name).write_bytes(damaged)
                segment = opened(folder)
                finds(segment, stored)
                segment.release()
        (folder / name).write_bytes(files[name])


def test_a_damaged_index_of_a_closed_segment_is_rewritten_at_once(closed):
    folder, files, _ = closed
    (folder / f"{0:020d}.index").write_bytes(bytes(range(1, 17)))
    (folder / f"{0:020d}.timeindex").unlink()
    segment = opened(folder)
    segment.load()
    segment.release()
    assert {path.name: path.read_bytes() for path in folder.glob("*.*")} == files


def test_release_gives_back_descriptors_and_memory_and_look_ups_go_on(closed):
    folder, _, _ = closed
    segment = opened(folder)
    for _ in range(2):
        found = segment.locate(7)
        assert found is not None
        assert found[1].base_offset == 6
        segment.release()
        assert segment.descriptor < 0
        assert segment.offset_index.file.count == segment.time_index.file.count == 0
