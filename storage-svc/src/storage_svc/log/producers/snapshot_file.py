"""Producer snapshot files (`<next offset>.snapshot`): Kafka's record of its producers at a roll and at a clean stop.

    version i16 = 1, crc u32 (CRC-32C of everything after it), count i32, count x entry
    entry = producer_id i64, producer_epoch i16, last_sequence i32, last_offset i64, offset_delta i32, timestamp i64,
            coordinator_epoch i32, transaction_first_offset i64        big-endian, 46 bytes

An entry knows the last batch of its producer only (last_sequence, last_offset -1: none under this epoch). It also knows
where the producer's open transaction began (-1: none is open).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 (an exception class)
from typing import Final, NamedTuple

from crc32c import crc32c

from storage_svc.log.errors import LogError

SNAPSHOT_SUFFIX: Final = ".snapshot"

_VERSION: Final = 1
_HEAD: Final = Struct(">hIi")
_ENTRY: Final = Struct(">qhiqiqiq")
_CRC_END: Final = 6
ENTRY_SIZE: Final = _ENTRY.size
#: A function that returns the bytes of an entry's fields, in the order of SnapshotEntry.
pack_entry: Final = _ENTRY.pack


class UnreadableSnapshot(LogError):  # noqa: N818 (reads as what happened)
    """A producer snapshot is damaged."""


class SnapshotEntry(NamedTuple):
    """One producer, in the order of the bytes."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def producer_id_of(entry: bytes | bytearray) -> int:
    """Return the producer of an entry that `pack_entry` returned."""
    return int.from_bytes(entry[:8], "big", signed=True)


def encode_snapshot(entries: bytes | bytearray) -> bytes:
    """Return the content of a snapshot file with these entries, one after the other, as `pack_entry` returns them."""
    count = len(entries) // ENTRY_SIZE
    crc = crc32c(entries, crc32c(count.to_bytes(4, "big")))
    return _HEAD.pack(_VERSION, crc, count) + entries


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Return the entries of a snapshot file.

    Raises:
        UnreadableSnapshot: it is damaged.
    """
    try:
        version, crc, count = _HEAD.unpack_from(data)
    except StructError as error:
        raise UnreadableSnapshot("shorter than its head") from error
    # mutant: snapshot-crc
    if version != _VERSION or crc32c(data[_CRC_END:]) != crc or len(data) != _HEAD.size + count * _ENTRY.size:
        raise UnreadableSnapshot(f"version {version}, {count} entries, {len(data)} bytes, or its CRC")
    return [SnapshotEntry._make(entry) for entry in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])]
