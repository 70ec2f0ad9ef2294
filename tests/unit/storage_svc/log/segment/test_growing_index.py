"""A growing index against a plain list, and the memory that it has."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.segment import index_file
from storage_svc.log.segment.index_file import MEMORY_BYTES, IndexFile
from storage_svc.log.segment.offset_index import OffsetIndex
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.time_index import TimeIndex
from unit.storage_svc.log.conftest import descriptors

ENTRY = Struct(">qi")


class FullDisk(Files):
    """A disk that takes no entries while it is `full`."""

    full = False

    def append(self, descriptor, parts, position, size):
        if self.full:
            raise DiskFull("no space")
        super().append(descriptor, parts, position, size)


class IndexAgainstList(RuleBasedStateMachine):
    """Entries of (timestamp, offset); five of them fit into memory."""

    folder: Path
    numbers = iter(range(10**9))

    def __init__(self) -> None:
        super().__init__()
        self.files = FullDisk()
        self.path = self.folder / str(next(self.numbers))
        self.index = IndexFile(self.files, str(self.path), ENTRY)
        self.model: list[tuple[int, int]] = []
        self.was_full = False

    @rule(steps=st.lists(st.integers(1, 9), min_size=1, max_size=20))
    def append(self, steps: list[int]) -> None:
        for step in steps:
            timestamp, offset = self.model[-1] if self.model else (0, 0)
            entry = timestamp + step, offset + step
            self.index.append(*entry)
            self.model.append(entry)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        count = int(len(self.model) * share)
        self.index.truncate(count)
        del self.model[count:]

    @rule(full=st.booleans())
    def fill_disk(self, full: bool) -> None:
        self.files.full = full
        self.was_full = self.was_full or full

    @rule()
    def persist(self) -> None:
        try:
            self.index.persist()
        except StorageFailure:
            assert self.files.full
        else:
            assert self.path.exists() or not self.model

    @rule(growing=st.booleans())
    def finish_and_reopen(self, growing: bool) -> None:
        self.files.full = False
        self.index.finish()
        assert self.path.read_bytes() == b"".join(ENTRY.pack(*entry) for entry in self.model)
        assert self.index.load(growing=growing)

    @rule()
    def roll(self) -> None:
        """Begin another index over the file of this one."""
        self.index.restart()
        self.model = []

    @rule(lost=st.integers(0, 40), growing=st.booleans())
    def reopen_after_a_cut(self, lost: int, growing: bool) -> None:
        """Lose entries that were not written, and a part of those that were."""
        self.finish_and_reopen(False)
        self.index.release()
        data = self.path.read_bytes()
        self.path.write_bytes(data[: max(0, len(data) - lost)])
        left = self.path.stat().st_size
        assert self.index.load(growing=growing) is (left % ENTRY.size == 0)
        del self.model[left // ENTRY.size :]

    @invariant()
    def equals_the_list(self) -> None:
        index, model = self.index, self.model
        assert (index.count, index.last) == (len(model), model[-1] if model else None)
        assert list(index) == model
        assert len(index._latest) < index._memory_max
        assert index._memory_max == index_file.MEMORY_BYTES or self.was_full

    @rule(value=st.integers(-1, 400), field=st.integers(0, 1))
    def look_up(self, value: int, field: int) -> None:
        expected = sum(entry[field] <= value for entry in self.model)
        assert self.index.count_up_to(value, field) == expected

    def teardown(self) -> None:
        self.index.release()
        assert descriptors(self.path) == 0


def test_an_index_is_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "MEMORY_BYTES", 5 * ENTRY.size)
    monkeypatch.setattr(IndexAgainstList, "folder", tmp_path, raising=False)
    run_state_machine_as_test(IndexAgainstList, settings=settings(max_examples=60, stateful_step_count=25))


def test_entries_in_memory_are_few_and_all_others_are_found(tmp_path: Path) -> None:
    """A segment of 1 GB of batches of 4 KB has 5 MB of entries."""
    files = Files()
    offsets = OffsetIndex(files, str(tmp_path / "i"), 0, 10 << 20)
    times = TimeIndex(files, str(tmp_path / "t"), 0, 10 << 20)
    count = 50_000
    largest = 0
    for number in range(1, count + 1):
        offsets.append(10 * number, 4096 * number)
        times.append(1000 * number, 10 * number)
        largest = max(largest, len(offsets.file._latest) + len(times.file._latest))
    assert largest < 2 * MEMORY_BYTES
    assert descriptors(tmp_path) == 2  # those of the mappings
    for number in (1, 2, 2047, 2048, 2049, 30_000, count - 3000, count - 1, count):
        assert offsets.lookup(10 * number + 9) == (10 * number, 4096 * number)
        assert offsets.lookup_position(4096 * number + 5) == (10 * number, 4096 * number)
        assert times.lookup(1000 * number + 1) == (1000 * number, 10 * number)
    offsets.file.release()
    times.file.release()
    assert descriptors(tmp_path) == 0


def test_a_start_that_rebuilds_an_index_keeps_few_entries_in_memory(tmp_path: Path, folders, fill) -> None:
    directory = folders.open(tmp_path)
    config = LogConfig(index_interval_bytes=0)
    log = directory.create("t", 0, bytes(16), config)
    fill(log, [1] * 5000, size=10)
    folders.stop(directory)
    segment = Segment(Files(), str(tmp_path / "t-0"), 0, config, 0)
    segment.load_for_append()
    segment.rebuild()
    assert segment.offset_index.file.count > 4000
    for index in (segment.offset_index.file, segment.time_index.file):
        assert len(index._latest) < MEMORY_BYTES
    found = segment.locate(17)
    assert found is not None
    assert found[1].base_offset == 17
    segment.release()


def test_a_disk_that_takes_no_entries_costs_none_and_they_are_written_later(tmp_path: Path) -> None:
    files = FullDisk()
    files.full = True
    index = IndexFile(files, str(tmp_path / "x"), ENTRY)
    entries = [(number, number) for number in range(1, 5001)]
    for entry in entries:
        index.append(*entry)
    assert list(index) == entries
    assert index.count_up_to(3000, 0) == 3000
    files.full = False
    for number in range(5001, 8001):
        index.append(number, number)
    assert len(index._latest) < 2 * MEMORY_BYTES
    index.finish()
    assert (tmp_path / "x").read_bytes() == b"".join(ENTRY.pack(number, number) for number in range(1, 8001))
