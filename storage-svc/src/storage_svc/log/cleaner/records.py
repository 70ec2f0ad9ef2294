"""The records of a batch as compaction sees them: where each begins, its key, and whether it is a tombstone.

Records that stay are copied as bytes. The layout is in protocol_lib/records/record.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import lt
from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.records.header import RECORD_SIZE_MIN
from protocol_lib.records.walker import RecordWalker
from protocol_lib.varint import SIGNED_MAX, SIGNED_MIN, read_signed, write_signed

#: Records, or headers, between which the interpreter may turn to another thread.
_STEPS: Final = 4096


@dataclass(slots=True)
class ScannedRecords:
    """One entry a record in each list but the last."""

    #: The position at which each record begins; one more entry for the end of the last.
    starts: list[int] = field(default_factory=list)
    timestamp_deltas: list[int] = field(default_factory=list)
    offset_deltas: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    #: The indexes of the records without a value.
    tombstones: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)


def scan_records(body: bytes, count: int, last_offset_delta: int) -> ScannedRecords:
    """Find `count` records in the uncompressed bytes of a batch.

    Raises:
        DecodeError: they are malformed, or not as many.
    """
    if not 0 <= count <= len(body) // RECORD_SIZE_MIN:
        raise DecodeError(f"{count} records in {len(body)} bytes")
    scanned = ScannedRecords()
    columns = scanned.starts, scanned.timestamp_deltas, scanned.offset_deltas, scanned.keys, scanned.tombstones
    walker = RecordWalker(body, count, 0, 0)
    while walker.scan(columns, _STEPS):
        pass
    scanned.starts.append(len(body))
    deltas = scanned.offset_deltas
    if deltas and (deltas[0] < 0 or deltas[-1] > last_offset_delta or not all(map(lt, deltas, deltas[1:]))):
        raise DecodeError(f"offset deltas {min(deltas)} to {max(deltas)}, where 0 to {last_offset_delta} must ascend")
    return scanned


def shifted(body: bytes, start: int, end: int, base_timestamp_change: int) -> bytes:
    """Return a record for a base timestamp that is greater by this difference; the record's time stays the same.

    A time that is too far from the new base becomes the nearest that can be written.
    """
    _, position = read_signed(body, start)
    attributes_at = position
    delta, position = read_signed(body, position + 1)
    delta = min(max(delta - base_timestamp_change, SIGNED_MIN), SIGNED_MAX)  # mutant: far-times-stay-cleanable
    rest = body[attributes_at : attributes_at + 1] + write_signed(delta) + body[position:end]
    return write_signed(len(rest)) + rest
