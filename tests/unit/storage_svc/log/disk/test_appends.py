"""Appends of any number of parts: what is in the file, and in how many writes it came there."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_svc.log.disk import files

MEGABYTE = 1 << 20


@pytest.fixture
def writes(monkeypatch):
    """The bytes of each write, in order."""
    seen, write = [], os.pwritev

    def counted(descriptor, parts, position):
        seen.append(sum(map(len, parts)))
        return write(descriptor, parts, position)

    monkeypatch.setattr(os, "pwritev", counted)
    return seen


def appended(path, parts):
    """Append after three bytes; return the file's bytes after them."""
    disk = files.Files()
    descriptor = disk.open(str(path), create=True)
    disk.append(descriptor, parts, 3, sum(map(len, parts)))
    disk.close(descriptor)
    return path.read_bytes()[3:]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([16, MEGABYTE - 16], [MEGABYTE]),
        ([16, MEGABYTE - 15], [16, MEGABYTE - 15]),
        ([16, 999_881, 16, 999_881, 16], [999_913, 999_897]),
        ([3 * MEGABYTE, 1], [3 * MEGABYTE, 1]),
        ([1] * 1025, [1024, 1]),
        ([1] * 1024, [1024]),
    ],
)
def test_a_write_has_a_megabyte_and_1024_parts_at_most(tmp_path, writes, sizes, expected):
    parts = [os.urandom(size) for size in sizes]
    assert appended(tmp_path / "log", parts) == b"".join(parts)
    assert writes == expected


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=40), st.data())
def test_any_parts_arrive_in_order_with_any_short_writes(tmp_path_factory, parts, data):
    def short(descriptor, some, position):
        joined = b"".join(some)
        return os.pwrite(descriptor, joined[: data.draw(st.integers(0, len(joined)))], position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_WRITE", data.draw(st.integers(1, 30)))
        patch.setattr(files, "_IOV_MAX", data.draw(st.integers(1, 10)))
        patch.setattr(os, "pwritev", short)
        assert appended(tmp_path_factory.mktemp("log") / "log", parts) == b"".join(parts)
