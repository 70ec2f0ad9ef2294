"""The life of an index file: grown, finished, mapped, released."""

from __future__ import annotations

from mmap import mmap
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull
from storage_svc.log.segment.index_file import IndexFile
from unit.storage_svc.log.conftest import descriptors

ENTRY = Struct(">ii")


@pytest.fixture
def index(tmp_path):
    return IndexFile(Files(), str(tmp_path / "x"), ENTRY)


@given(values=st.lists(st.integers(0, 40), unique=True).map(sorted), wanted=st.integers(-1, 41), mapped=st.booleans())
def test_searching_is_counting(tmp_path_factory, values, wanted, mapped):
    index = IndexFile(Files(), str(tmp_path_factory.mktemp("i") / "x"), ENTRY)
    for value in values:
        index.append(value, 1)
    if mapped:
        index.finish()
        assert index.load(growing=False)
    assert index.count_up_to(wanted, 0) == sum(value <= wanted for value in values)
    assert [entry[0] for entry in index] == values


def test_the_file_gets_what_it_lacks_and_nothing_twice(tmp_path, index):
    for number in range(1, 4):
        index.append(number, number)
        index.persist()
        index.persist()
    assert (tmp_path / "x").read_bytes() == b"".join(ENTRY.pack(number, number) for number in range(1, 4))


def test_a_finished_index_is_mapped_and_gives_everything_back(tmp_path, index):
    index.append(7, 8)
    index.finish()
    assert (index.count, descriptors(tmp_path)) == (0, 0)
    assert index.load(growing=False)
    assert (index.count, index.last, type(index._mapped)) == (1, (7, 8), mmap)
    index.release()
    assert (index.count, descriptors(tmp_path)) == (0, 0)


def test_a_loaded_index_grows_on(tmp_path, index):
    index.append(1, 1)
    index.finish()
    assert index.load(growing=True)
    index.append(2, 2)
    index.finish()
    assert (tmp_path / "x").read_bytes() == ENTRY.pack(1, 1) + ENTRY.pack(2, 2)


@pytest.mark.parametrize("growing", [True, False])
def test_the_zeros_that_kafka_leaves_at_the_end_are_no_entries(tmp_path, index, growing):
    entries = b"".join(ENTRY.pack(number, number * 10) for number in range(5))
    for zeros in (0, 1, 2, 1000):
        (tmp_path / "x").write_bytes(entries + bytes(zeros * ENTRY.size))
        assert index.load(growing=growing)
        assert (index.count, index.last) == (5, (4, 40))
        index.finish()
        assert (tmp_path / "x").read_bytes() == entries


def test_a_file_of_zeros_is_empty(tmp_path, index):
    (tmp_path / "x").write_bytes(bytes(800))
    assert index.load(growing=False)
    assert index.count == 0


@pytest.mark.parametrize("content", [None, b"123", bytes(9)])
def test_what_cannot_be_an_index_is_refused(tmp_path, index, content):
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    assert not index.load(growing=False)
    index.restart()
    assert index.load(growing=True) is None
    index.append(1, 2)
    index.persist()
    assert (tmp_path / "x").read_bytes() == ENTRY.pack(1, 2)
    assert index.load(growing=False)
    assert list(index) == [(1, 2)]
    index.remove()
    assert not (tmp_path / "x").exists()


def test_a_file_of_another_index_is_replaced_when_this_one_is_complete(tmp_path, index):
    (tmp_path / "x").write_bytes(bytes(range(ENTRY.size * 3)))
    index.restart()
    index.persist()
    assert (tmp_path / "x").read_bytes() == bytes(range(ENTRY.size * 3))
    index.release()
    assert index.load(growing=True) is None
    index.complete()
    assert (tmp_path / "x").read_bytes() == b""
    assert index.load(growing=False)


def test_a_full_disk_costs_no_entry(tmp_path):
    class FullOnce(Files):
        full = True

        def append(self, descriptor, parts, position, size):
            if self.full:
                raise DiskFull("no space")
            super().append(descriptor, parts, position, size)

    files = FullOnce()
    index = IndexFile(files, str(tmp_path / "x"), ENTRY)
    index.append(1, 2)
    with pytest.raises(DiskFull):
        index.finish()
    assert index.count == 1
    files.full = False
    index.finish()
    assert (tmp_path / "x").read_bytes() == ENTRY.pack(1, 2)


@pytest.mark.parametrize("growing", [True, False])
def test_the_last_entries_can_be_taken_back(tmp_path, index, growing):
    for number in range(1, 6):
        index.append(number, number)
    index.finish()
    assert index.load(growing=growing)
    index.append(6, 6)
    index.truncate(2)
    assert ([*index], index.last) == ([(1, 1), (2, 2)], (2, 2))
    index.append(7, 7)
    index.finish()
    assert (tmp_path / "x").read_bytes() == b"".join(ENTRY.pack(number, number) for number in (1, 2, 7))
