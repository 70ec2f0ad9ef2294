"""The check after a round: acknowledged records are counted, read back and compared, by offsets and CRC of each batch.

The end offset must be the number of records that were acknowledged, exactly: none lost, none twice. Logs of up to
`WHOLE_BYTES` are read whole, of longer ones the begin, the end and some parts between. Every batch must follow the one
before it, have the CRC of its bytes, and have the records that were sent.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import crc32c
from raw import connect, fetch_frame, receive

WHOLE_BYTES = 32_000_000
PLACES = 6
PLACE_BYTES = 1 << 20
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21


class ReadBackError(Exception):
    """The log does not have the acknowledged records."""


def check(
    address: str, topic: str, partition: int, end: int, expected: int, data: bytes | None, *, record_bytes: int = 1000
) -> None:
    """Check a log; `data` is the one batch of which it is made.

    None: batches of any kind, with records of about `record_bytes`; only their CRCs are checked.
    """
    if end != expected:
        raise ReadBackError(f"{topic}-{partition} ends at {end:,}, and {expected:,} records were acknowledged")
    per_record = len(data) / _HEADER.unpack_from(data)[12] if data else record_bytes
    if end * per_record <= WHOLE_BYTES:
        starts, limit = [0], WHOLE_BYTES * 2
    else:
        places = random.Random(end).sample(range(end), PLACES)
        starts, limit = [0, *places, max(0, end - int(PLACE_BYTES / per_record))], PLACE_BYTES
    with connect(address) as connection:
        for start in starts:
            _read(connection, topic, partition, start, min(end, start + int(limit / per_record)), data)


def _read(connection: socket.socket, topic: str, partition: int, start: int, end: int, data: bytes | None) -> None:
    offset = start
    while offset < end:
        connection.sendall(fetch_frame(topic, partition, offset, PLACE_BYTES))
        answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
        records = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2 + 8 + 8 + 4 + 4
        (error,) = struct.unpack_from(">h", answer, records - 26)
        if error:
            raise ReadBackError(f"Fetch of {topic}-{partition} from {offset} was answered with error {error}")
        before = offset
        for base, following, crc, batch in _batches(memoryview(answer)[records:]):
            if not base <= offset < following:
                raise ReadBackError(f"{topic}-{partition}: offset {offset} is asked for, a batch {base} comes")
            if crc32c.crc32c(batch[_CRC_FROM:]) != crc:
                raise ReadBackError(f"{topic}-{partition}: the batch at {base} does not have its CRC")
            if data and batch[61:] != memoryview(data)[61:]:
                raise ReadBackError(f"{topic}-{partition}: the batch at {base} is not what was sent")
            offset = following
        if offset == before:
            raise ReadBackError(f"{topic}-{partition}: nothing is read at {offset} below the end {end}")


def _batches(answer: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield base offset, offset after the last record, CRC and bytes of each whole batch."""
    position = 0
    while len(answer) - position >= _HEADER.size:
        base, length, _, _, crc, _, last_delta, *_ = _HEADER.unpack_from(answer, position)
        end = position + 12 + length
        if end > len(answer):
            return
        yield base, base + last_delta + 1, crc, answer[position:end]
        position = end
