"""Record batches that no producer would send, each wrong in one place."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record


def edited(batch: bytes, at: int, layout: str, value: int, *, crc: bool = True) -> bytes:
    """Return the batch with one field changed, and its CRC corrected if `crc`."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    if crc:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def batch_of(*records: tuple[int, bytes | None], codec: Codec = Codec.NONE, size: int = 5, **options: Any) -> bytes:
    """Return a batch of (timestamp, key) records."""
    listed = [Record(n, timestamp, key, (b"value" * size)[:size]) for n, (timestamp, key) in enumerate(records)]
    return build_batch(listed, codec=codec, **options)


def with_records(records: bytes, count: int, codec: Codec = Codec.NONE, *, timestamp: int = 1_700_000_000_000) -> bytes:
    """Return a batch with these bytes in place of its records; the timestamp is its base and its largest one."""
    head = bytearray(batch_of((timestamp, b"k"))[:61])
    struct.pack_into(">i", head, 8, 49 + len(records))
    struct.pack_into(">i", head, 23, count - 1)
    struct.pack_into(">i", head, 57, count)
    return edited(bytes(head) + records, 21, ">h", codec)
