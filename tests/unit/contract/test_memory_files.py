"""Memory files: other processes map them by name, only if the token matches; their size stays."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile

import pytest
from broker_contract.memory_files import CONTENT_AT, MemoryFile, see

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory files are Linux's")

BYTES = 3 * 4096


@pytest.fixture
def file():
    created = MemoryFile.create("test", BYTES)
    assert created is not None
    yield created
    created.close()


def named(descriptor: int, token: bytes) -> str:
    return f"{os.getpid()}:{descriptor}:{token.hex()}"


def test_what_is_written_is_seen_and_cannot_be_written_there(file):
    seen = see(file.name, BYTES)
    file.memory[CONTENT_AT : CONTENT_AT + 5] = b"bytes"
    assert (len(seen), bytes(seen[:6])) == (BYTES, b"bytes\0")
    with pytest.raises(TypeError):
        seen[0] = 1


def test_its_size_stays_so_that_no_mapping_loses_its_pages(file):
    descriptor = int(file.name.split(":")[1])
    for size in (0, 2 * BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_what_is_seen_stays_when_the_file_is_closed_and_is_found_no_more(file):
    seen = see(file.name, BYTES)
    file.memory[CONTENT_AT] = 7
    file.close()
    assert (seen[0], see(file.name, BYTES)) == (7, None)


def test_no_name_of_this_file_is_no_name(file):
    process, descriptor, token = file.name.split(":")
    for other in (
        "",
        "nothing",
        f"{process}:{descriptor}:{token[:-1]}",
        f"{process}:{descriptor}:{bytes(16).hex()}",
        f"{process}:{descriptor}/../{descriptor}:{token}",
        f"{process}:99999:{token}",
        f"999999999:{descriptor}:{token}",
    ):
        assert see(other, BYTES) is None, other


def test_a_file_larger_than_announced_is_not_mapped(file):
    assert see(file.name, BYTES - 1) is None


@pytest.mark.parametrize("missing", [fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SEAL])
def test_a_file_whose_size_may_change_is_not_mapped(missing):
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, CONTENT_AT + BYTES)
    token = bytes(range(16))
    os.pwrite(descriptor, token, 0)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals & ~missing)
    assert see(named(descriptor, token), BYTES) is None
    if missing != fcntl.F_SEAL_SEAL:
        os.close(descriptor)
        return
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, missing)
    assert see(named(descriptor, token), BYTES) is not None
    os.close(descriptor)


def test_no_other_kind_of_file_is_mapped():
    token = bytes(range(16))
    with tempfile.TemporaryFile() as plain:
        plain.write(token + bytes(CONTENT_AT + BYTES - len(token)))
        plain.flush()
        assert see(named(plain.fileno(), token), BYTES) is None
    reading, writing = os.pipe()
    os.write(writing, token)
    assert see(named(reading, token), BYTES) is None
    os.close(reading)
    os.close(writing)


def test_no_memory_is_used_before_it_is_written(file):
    held = os.fstat(int(file.name.split(":")[1])).st_blocks
    file.memory[CONTENT_AT] = 1
    after = os.fstat(int(file.name.split(":")[1])).st_blocks
    assert (held * 512, after * 512) == (mmap.PAGESIZE, 2 * mmap.PAGESIZE)
