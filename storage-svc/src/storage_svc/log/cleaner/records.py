"""The records of a batch as compaction sees them: where each begins, its key, and whether it is a tombstone.

A record is parsed as far as its key and its value's length; records that stay are copied as bytes. This is the hot loop
of compaction, so it is flat, and numbers of one byte and lengths of two are read in place. The layout is in
protocol_lib/records/record.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.varint import read_signed, write_signed

#: A record of no key, no value and no headers: seven fields of a byte each.
_RECORD_SIZE_MIN: Final = 7
_NULL: Final = 1  # -1 as a signed varint


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
    end_of_body = len(body)
    if not 0 <= count <= end_of_body // _RECORD_SIZE_MIN:
        raise DecodeError(f"{count} records in {end_of_body} bytes")
    scanned = ScannedRecords()
    add_start, add_stamp = scanned.starts.append, scanned.timestamp_deltas.append
    add_offset, add_key = scanned.offset_deltas.append, scanned.keys.append
    position, offset_min = 0, 0
    try:
        for index in range(count):
            add_start(position)
            number = body[position]
            if number < 0x80:
                position += 1
                end = position + (number >> 1)
            elif (high := body[position + 1]) < 0x80:
                position += 2
                end = position + ((number & 0x7F | high << 7) >> 1)
            else:
                length, position = read_signed(body, position)
                end = position + length
            position += 1  # attributes
            number = body[position]
            if number < 0x80:
                position += 1
                add_stamp((number >> 1) ^ -(number & 1))
            else:
                number, position = read_signed(body, position)
                add_stamp(number)
            number = body[position]
            if number < 0x80:
                position += 1
                number >>= 1
            else:
                number, position = read_signed(body, position)
            if number < offset_min or number > last_offset_delta:
                raise DecodeError(f"offset delta {number} where {offset_min} to {last_offset_delta} can be")
            offset_min = number + 1
            add_offset(number)
            number = body[position]
            if number < 0x80:
                position += 1
                number = (number >> 1) ^ -(number & 1)
            else:
                number, position = read_signed(body, position)
            if number < 0:
                add_key(None)
            else:
                end_of_key = position + number
                add_key(body[position:end_of_key])
                position = end_of_key
            # The value's length and the count of headers are still to come.
            if position + 1 >= end or end > end_of_body:
                raise DecodeError(f"a record to {end}, its value from {position} on, of {end_of_body} bytes")
            if body[position] == _NULL:
                scanned.tombstones.append(index)
            position = end
    except IndexError as fault:
        raise DecodeError("the last record is cut short") from fault
    if position != end_of_body:
        raise DecodeError(f"{end_of_body - position} bytes after the last record")
    add_start(position)
    return scanned


def shifted(body: bytes, start: int, end: int, base_timestamp_change: int) -> bytes:
    """Return a record for a base timestamp that is greater by this difference; the record's time stays the same.

    Raises:
        DecodeError: the difference of the two timestamps is too large to be written.
    """
    _, position = read_signed(body, start)
    attributes_at = position
    delta, position = read_signed(body, position + 1)
    rest = body[attributes_at : attributes_at + 1] + write_signed(delta - base_timestamp_change) + body[position:end]
    return write_signed(len(rest)) + rest
