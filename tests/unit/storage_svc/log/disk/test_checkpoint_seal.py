"""Checkpoints with a damaged byte are not believed, even if they are well formed."""

from __future__ import annotations

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.checkpoint_seal import SEAL_SUFFIX, read_sealed, replace_sealed
from storage_svc.log.disk.checkpoints import UnreadableCheckpoint
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure


@pytest.fixture
def path(tmp_path) -> str:
    replace_sealed(Files(), str(tmp_path / "c"), b"before")
    replace_sealed(Files(), str(tmp_path / "c"), b"content")
    return str(tmp_path / "c")


def test_what_was_written_is_read(path, tmp_path) -> None:
    assert read_sealed(Files(), path) == b"content"
    assert (tmp_path / f"c{SEAL_SUFFIX}").read_text() == "61af7533\ned9684a2\n61af7533\n"


def test_no_file_is_no_content(tmp_path) -> None:
    assert read_sealed(Files(), str(tmp_path / "c")) is None


def test_a_file_without_a_seal_is_believed(path, tmp_path) -> None:
    (tmp_path / f"c{SEAL_SUFFIX}").unlink()
    assert read_sealed(Files(), path) == b"content"


def test_every_damaged_byte_of_the_content_is_noticed(path, tmp_path) -> None:
    for at in range(7):
        damaged = bytearray(b"content")
        damaged[at] ^= 1
        (tmp_path / "c").write_bytes(damaged)
        with pytest.raises(UnreadableCheckpoint, match="does not match its checksum"):
            read_sealed(Files(), path)
    (tmp_path / "c").write_bytes(b"")
    with pytest.raises(UnreadableCheckpoint):
        read_sealed(Files(), path)


def test_a_damaged_byte_of_the_seal_makes_nothing_doubtful(path, tmp_path) -> None:
    seal = tmp_path / f"c{SEAL_SUFFIX}"
    whole = seal.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        seal.write_bytes(damaged)
        assert read_sealed(Files(), path) == b"content"


class FilesThatFailAtTheContent(Files):
    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if not path.endswith(SEAL_SUFFIX):
            raise StorageFailure("broken")
        super().replace_file(path, data, sync=sync)


def test_an_end_between_the_two_leaves_the_old_content(path) -> None:
    with pytest.raises(StorageFailure):
        replace_sealed(FilesThatFailAtTheContent(), path, b"new")
    assert read_sealed(Files(), path) == b"content"


def test_a_damaged_log_start_deletes_nothing(tmp_path, folders, fill) -> None:
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), LogConfig())
    fill(log, [2, 1, 3])
    log.raise_log_start(2)
    assert directory.checkpoints.store_all()
    folders.crash(directory)
    file = tmp_path / checkpoints.LOG_START
    assert file.read_bytes() == b"0\n1\nt 0 2\n"
    file.write_bytes(b"0\n1\nt 0 6\n")
    directory = folders.open(tmp_path)
    log = directory.logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    folders.crash(directory)
