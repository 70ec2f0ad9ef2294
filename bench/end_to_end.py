"""End to end: records at a steady rate, from the moment each should have been sent to the moment it was fetched.

One thread sends one-record Produce requests when they are due, before older ones are answered (linger 0), and keeps one
long-poll Fetch waiting on a second connection. A record carries the time it was due, so a stall of any part counts for
every record that was due during it (no coordinated omission). Records must come once each, in order.
"""

from __future__ import annotations

import select
import socket
import struct
import time

import crc32c
from raw import batch, fetch_frame, produce_frame, records_position

#: Positions in a record batch v2: the checksum, and the begin of the bytes that it covers.
_CRC, _ATTRIBUTES = 17, 21
_FETCH_BYTES = 1 << 20


class _Frames:
    """Whole frames out of a non-blocking socket."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = bytearray()

    def take(self) -> list[bytes]:
        piece = self.socket.recv(_FETCH_BYTES)
        if not piece:
            raise EOFError("the broker closed the connection")
        held = self._held
        held += piece
        frames = []
        while len(held) >= 4:
            end = 4 + int.from_bytes(held[:4], "big")
            if end > len(held):
                break
            frames.append(bytes(held[4:end]))
            del held[:end]
        return frames


class _StampedRecord:
    """A Produce request of one record whose value begins with a time in nanoseconds."""

    def __init__(self, topic: str, record_bytes: int, acks: int) -> None:
        data = batch(1, record_bytes)
        self.batch_bytes = len(data)
        #: The value is the end of the record, but for its count of headers.
        self.stamp_at = len(data) - 1 - record_bytes
        self._frame = bytearray(produce_frame(topic, 0, acks, data))
        self._batch_at = len(self._frame) - len(data)

    def at(self, nanoseconds: int) -> bytearray:
        struct.pack_into(">q", self._frame, self._batch_at + self.stamp_at, nanoseconds)
        covered = memoryview(self._frame)[self._batch_at + _ATTRIBUTES :]
        struct.pack_into(">I", self._frame, self._batch_at + _CRC, crc32c.crc32c(covered))
        return self._frame


def end_to_end(
    address: str, topic: str, *, per_second: float, seconds: float, warm_seconds: float, record_bytes: int = 1000
) -> list[float]:
    """Return the milliseconds from due to fetched of every record after the warm-up, sorted. The topic must be empty.

    Raises:
        RuntimeError: an answer has an error code, or a record is missing, twice or out of order.
    """
    producer, consumer = _Frames(address), _Frames(address)
    record = _StampedRecord(topic, record_bytes, acks=-1)
    produce_error_at = 4 + 4 + 2 + len(topic) + 4 + 4
    records_at = records_position(topic)
    step_ns = int(1e9 / per_second)
    total = int((warm_seconds + seconds) * per_second)
    latencies: list[float] = []
    sent = fetched = 0
    begin = time.perf_counter_ns() + 10_000_000
    consumer.socket.sendall(fetch_frame(topic, 0, 0, _FETCH_BYTES))
    while fetched < total:
        due = begin + sent * step_ns
        if sent < total and time.perf_counter_ns() >= due:
            producer.socket.sendall(record.at(due))
            sent += 1
        wait_ns = begin + sent * step_ns - time.perf_counter_ns() if sent < total else 1_000_000_000
        # select, unlike epoll, takes less than a millisecond at its word
        readable, _, _ = select.select((producer.socket, consumer.socket), (), (), max(0, wait_ns) / 1e9)
        if consumer.socket in readable:
            for answer in consumer.take():
                now = time.perf_counter_ns()
                _no_error(answer, records_at - 26)
                for position in range(records_at, len(answer), record.batch_bytes):
                    offset, stamp = struct.unpack_from(f">q{record.stamp_at - 8}xq", answer, position)
                    if offset != fetched or stamp != begin + fetched * step_ns:
                        raise RuntimeError(f"record {fetched} is expected, offset {offset} with time {stamp} comes")
                    fetched += 1
                    latencies.append((now - stamp) / 1e6)
                consumer.socket.sendall(fetch_frame(topic, 0, fetched, _FETCH_BYTES))
        if producer.socket in readable:
            for answer in producer.take():
                _no_error(answer, produce_error_at)
    producer.socket.close()
    consumer.socket.close()
    return sorted(latencies[int(warm_seconds * per_second) :])


def _no_error(answer: bytes, position: int) -> None:
    (error,) = struct.unpack_from(">h", answer, position)
    if error:
        raise RuntimeError(f"the broker answered with error {error}")
