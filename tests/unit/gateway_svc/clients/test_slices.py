"""Slices of segment files: small ones read, large ones as ranges, and nothing from a file that is not the slice's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from broker_contract.data import Slice
from gateway_svc.clients.slices import (
    GONE_PAUSE_S,
    OPEN_FILES_MAX,
    SENDFILE_MIN_BYTES,
    UNUSED_CLOSE_S,
    FileRange,
    SliceFiles,
)
from gateway_svc.errors import SliceGone

CONTENT = bytes(range(256)) * 1024


@pytest.fixture
def files(tmp_path: Path) -> SliceFiles:
    (tmp_path / "a..b-0").mkdir()
    (tmp_path / "a..b-0" / "0.log").write_bytes(CONTENT)
    return SliceFiles(str(tmp_path))


def segment_slice(folder: Path, position: int, length: int, path: str = "a..b-0/0.log") -> Slice:
    return Slice(path, (folder / path).stat().st_ino, position, length)


def test_small_slices_are_bytes_and_large_ones_ranges(files: SliceFiles, tmp_path: Path) -> None:
    small, large = files.parts(
        [segment_slice(tmp_path, 10, 5), segment_slice(tmp_path, 3, SENDFILE_MIN_BYTES)], now=0.0
    )
    assert small == CONTENT[10:15]
    assert isinstance(large, FileRange)
    assert os.pread(large.file.fileno(), large.length, large.position) == CONTENT[3 : 3 + SENDFILE_MIN_BYTES]
    assert len(files) == 1


@pytest.mark.parametrize(
    "path", ["missing-0/0.log", "/etc/passwd", "../outside", "a..b-0/../../outside", "", "a..b-0//0.log", "link.log"]
)
def test_what_is_no_file_of_the_data_folder(files: SliceFiles, tmp_path: Path, path: str) -> None:
    (tmp_path / "link.log").symlink_to(tmp_path / "a..b-0" / "0.log")
    inode = (tmp_path / "a..b-0" / "0.log").stat().st_ino
    with pytest.raises(SliceGone):
        files.parts([Slice(path, inode, 0, 10)], now=5.0)
    assert not files.usable(5.0 + GONE_PAUSE_S / 2)
    assert files.usable(5.0 + GONE_PAUSE_S)


def test_another_file_under_the_old_name_is_not_read(files: SliceFiles, tmp_path: Path) -> None:
    wanted = segment_slice(tmp_path, 0, 10)
    with pytest.raises(SliceGone):
        files.parts([Slice(wanted.path, wanted.file_id + 1, 0, 10)], now=0.0)


def test_a_file_shorter_than_the_slice(files: SliceFiles, tmp_path: Path) -> None:
    large = segment_slice(tmp_path, 0, SENDFILE_MIN_BYTES)
    with pytest.raises(SliceGone):
        files.parts([large, segment_slice(tmp_path, len(CONTENT) - 3, 4)], now=0.0)
    # The range that was made before is held by nobody.
    (part,) = files.parts([large], now=0.0)
    assert isinstance(part, FileRange)
    assert part.file.users == 1


def test_a_folder_that_storage_has_yet_to_make(tmp_path: Path) -> None:
    files = SliceFiles(str(tmp_path / "later"))
    with pytest.raises(SliceGone):
        files.parts([Slice("t-0/0.log", 1, 0, 1)], now=0.0)
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "0.log").write_bytes(b"x")
    assert files.parts([segment_slice(tmp_path / "later", 0, 1, "0.log")], now=2.0) == [b"x"]


def test_unused_and_deleted_files_are_closed(files: SliceFiles, tmp_path: Path) -> None:
    files.parts([segment_slice(tmp_path, 0, 1)], now=0.0)
    files.sweep(UNUSED_CLOSE_S)
    assert len(files) == 1
    files.sweep(UNUSED_CLOSE_S + 1)
    assert len(files) == 0
    (part,) = files.parts([segment_slice(tmp_path, 0, SENDFILE_MIN_BYTES)], now=0.0)
    assert isinstance(part, FileRange)
    (tmp_path / "a..b-0" / "0.log").unlink()
    files.sweep(0.0)
    assert len(files) == 0
    # Still being sent: open until it is released.
    assert os.pread(part.file.fileno(), 2, 0) == CONTENT[:2]
    part.release()
    assert part.file.descriptor == -1


def test_open_files_are_bounded(files: SliceFiles, tmp_path: Path) -> None:
    for number in range(OPEN_FILES_MAX + 3):
        (tmp_path / f"{number}.log").write_bytes(b"x")
        files.parts([segment_slice(tmp_path, 0, 1, f"{number}.log")], now=0.0)
    assert len(files) == OPEN_FILES_MAX
    files.close()
    assert len(files) == 0


def test_what_many_ask_for_is_read_once(files: SliceFiles, tmp_path: Path) -> None:
    piece, other = segment_slice(tmp_path, 10, 20), segment_slice(tmp_path, 10, 21)
    (first,) = files.parts([piece], 0)
    (second,) = files.parts([segment_slice(tmp_path, 10, 20)], 0)
    assert second is first
    assert len(files.parts([other], 0)[0]) == 21
    files.sweep(0)
    (third,) = files.parts([other], 0)
    assert len(third) == 21
