"""A seal for each offset checkpoint: a file with its checksum (`<name>.crc32c`), which Kafka's text files do not have.

A flipped digit leaves a checkpoint well formed. A log start that became too high by it would have everything below it
deleted. So the checkpoint is believed only if its CRC-32C is one of those in the seal. A seal is three lines of eight
hexadecimal digits: the next checkpoint, the one before, and the next again. So a crash between the replacements of the
two files leaves a good checkpoint believed, and so does one damaged line of the seal:

    61af7533
    ed9684a2
    61af7533

Without a seal (a folder that Kafka made) the checkpoint is believed as it is. A checkpoint that another program has
replaced since is not believed: the start works without it, and recovers more than need be.
"""

from __future__ import annotations

from typing import Final

import crc32c

from storage_svc.log.disk.checkpoints import UnreadableCheckpoint
from storage_svc.log.disk.files import Files

SEAL_SUFFIX: Final = ".crc32c"


def _checksum(data: bytes) -> str:
    return f"{crc32c.crc32c(data):08x}"


def read_sealed(files: Files, path: str) -> bytes | None:
    """Return the content of a checkpoint file; None if there is none.

    Raises:
        UnreadableCheckpoint: it differs from the checkpoint that was written.
        StorageFailure: the disk did not answer.
    """
    data = files.read_file(path)
    seal = files.read_file(path + SEAL_SUFFIX)
    if data is not None and seal is not None and _checksum(data).encode() not in seal.splitlines():
        raise UnreadableCheckpoint("does not match its checksum")
    return data


def replace_sealed(files: Files, path: str, data: bytes) -> None:
    """Replace a checkpoint file and its seal, durably.

    Raises:
        StorageFailure: the old content is there still, or the new one.
    """
    before, now = files.read_file(path) or b"", _checksum(data)
    files.replace_file(path + SEAL_SUFFIX, f"{now}\n{_checksum(before)}\n{now}\n".encode())
    files.replace_file(path, data)
