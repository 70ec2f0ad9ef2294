"""A checksum beside each offset checkpoint (`<name>.crc32c`), which Kafka's text files do not have.

A flipped digit leaves a checkpoint well formed, and a log start that came to be too high by it would have everything
below it deleted. So the checkpoint is believed only if its CRC-32C is one of those the seal names. Three lines of eight
hexadecimal digits: the checkpoint as it is to be, the one before, and the first again, so that neither a crash between
the two files' replacements nor one damaged line of the seal makes a good checkpoint doubtful:

    61af7533
    ed9684a2
    61af7533

Without a seal (a folder that Kafka made) the checkpoint is believed as it is. One that another program replaced since
is not: whoever reads it goes on as without it, and recovers more than need be.
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
    """The content of a checkpoint file; None if there is none.

    Raises:
        UnreadableCheckpoint: it is not what was written.
        StorageFailure
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
