"""Batches in stored segments that get a wrong inside, under a right CRC."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c
from protocol_lib.records.header import HEADER_SIZE
from storage_svc.log.batch.header import headers
from storage_svc.log.disk.files import Files

_CRC_AT = 17
_CRC_FROM = 21


def spoil(path: Path, offset: int) -> int:
    """Make the first record of the batch of an offset a byte longer than it is; return the batch's position."""
    files = Files()
    descriptor = files.open(str(path), create=False)
    found = [
        (position, header)
        for position, header in headers(files, descriptor, 0, path.stat().st_size)
        if header.base_offset <= offset <= header.last_offset
    ]
    files.close(descriptor)
    ((position, header),) = found
    with path.open("r+b") as file:
        file.seek(position)
        batch = bytearray(file.read(header.size))
        batch[HEADER_SIZE] += 2
        batch[_CRC_AT:_CRC_FROM] = crc32c(memoryview(batch)[_CRC_FROM:]).to_bytes(4, "big")
        file.seek(position)
        file.write(batch)
    return position
