"""Produce requests flat out over several connections, driven by one thread that costs as little as possible.

All requests of a connection are alike and encoded once. Answers are read in bulk, and one write sends a new request for
each answer. A driver that writes and reads request by request uses more of the machine than the broker it measures. An
idempotent producer's requests differ in their base sequence: sequence and CRC are patched in. The CRC needs no second
pass over the batch. The CRC is linear in the bits: each set bit of the sequence flips the same bits of the CRC while
the rest of the batch stays the same.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass

import crc32c
from protocol_lib.codec import encode
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.records.compression import Codec
from raw import TIMEOUT_S, Figures, batch, connect, frame, produce_frame, receive

#: Places in a record batch v2, from its first byte.
_CRC, _ATTRIBUTES, _PRODUCER_ID, _SEQUENCE = 17, 21, 43, 53
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Flood:
    """A load. Each connection writes to partition `its number % partitions`."""

    topic: str
    batch_bytes: int
    record_bytes: int = 1000
    connections: int = 1
    depth: int = 5
    acks: int = 1
    partitions: int = 1
    #: Each connection is an idempotent producer.
    idempotent: bool = False
    #: `batch_bytes` are those of the records before compression.
    codec: Codec = Codec.NONE

    @property
    def records(self) -> int:
        """Number of records in a batch."""
        return max(1, self.batch_bytes // (self.record_bytes + 10))

    def shares(self, requests: int) -> list[int]:
        """Return the number of requests that each connection sends."""
        whole, rest = divmod(requests, self.connections)
        return [whole + (number < rest) for number in range(self.connections)]


def _new_producer(connection: socket.socket) -> tuple[int, int]:
    """Return id and epoch of a new producer; the broker may first need a block of ids."""
    request = encode(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 1)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        connection.sendall(frame(22, 1, request))
        answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
        error, producer_id, epoch = struct.unpack_from(">hqh", answer, 4 + 4)
        if not error:
            return producer_id, epoch
        if time.monotonic() > deadline:
            raise RuntimeError(f"InitProducerId was answered with error {error}")
        time.sleep(0.05)


def _of_producer(data: bytes, producer_id: int, epoch: int) -> bytes:
    """Return the batch as this producer's first."""
    changed = bytearray(data)
    struct.pack_into(">qhi", changed, _PRODUCER_ID, producer_id, epoch, 0)
    struct.pack_into(">I", changed, _CRC, crc32c.crc32c(memoryview(changed)[_ATTRIBUTES:]))
    return bytes(changed)


class _SequencedBatch:
    """The CRC of a batch by its base sequence; made of the batch whose sequence is 0."""

    def __init__(self, data: bytes) -> None:
        self._plain = crc32c.crc32c(data[_ATTRIBUTES:])
        self._bits: list[int] = []
        for bit in range(31):
            changed = bytearray(data)
            struct.pack_into(">i", changed, _SEQUENCE, 1 << bit)
            self._bits.append(crc32c.crc32c(memoryview(changed)[_ATTRIBUTES:]) ^ self._plain)

    def crc(self, sequence: int) -> int:
        crc, bits = self._plain, self._bits
        while sequence:
            low = sequence & -sequence
            crc ^= bits[low.bit_length() - 1]
            sequence ^= low
        return crc


class _Lane:
    """A connection: a ring of `depth` equal frames, of which those that were answered are sent again."""

    def __init__(self, address: str, flood: Flood, number: int, data: bytes, requests: int) -> None:
        self.socket = connect(address)
        partition = number % flood.partitions
        if flood.idempotent:
            data = _of_producer(data, *_new_producer(self.socket))
        request = produce_frame(flood.topic, partition, flood.acks, data)
        self._frame_bytes = len(request)
        self._batch_at = len(request) - len(data)
        self._depth = flood.depth
        self._records = flood.records
        self._sequenced = _SequencedBatch(data) if flood.idempotent else None
        self._sequence = 0
        self._ring = memoryview(bytearray(request * flood.depth))
        self._next = 0
        self.unsent = requests
        self.unanswered = requests
        #: Parts of the ring that the socket has not accepted yet.
        self._waiting: list[memoryview] = []
        self._answers = bytearray()
        self._scratch = bytearray(_READ_BYTES)
        #: correlation id, topics, name, partitions, index, error
        self._error_at = 4 + 4 + 4 + 2 + len(flood.topic.encode()) + 4 + 4

    def fill(self, count: int) -> bool:
        """Send up to `count` more requests; return whether the socket accepted them all."""
        count = min(count, self.unsent)
        self.unsent -= count
        while count:
            part = min(count, self._depth - self._next)
            if self._sequenced:
                for slot in range(self._next, self._next + part):
                    self._stamp(slot)
            begin = self._next * self._frame_bytes
            self._waiting.append(self._ring[begin : begin + part * self._frame_bytes])
            self._next = (self._next + part) % self._depth
            count -= part
        return self.flush()

    def flush(self) -> bool:
        while self._waiting:
            try:
                sent = self.socket.send(self._waiting[0])
            except BlockingIOError:
                return False
            if sent < len(self._waiting[0]):
                self._waiting[0] = self._waiting[0][sent:]
            else:
                del self._waiting[0]
        return True

    def _stamp(self, slot: int) -> None:
        assert self._sequenced is not None
        at = slot * self._frame_bytes + self._batch_at
        struct.pack_into(">i", self._ring, at + _SEQUENCE, self._sequence)
        struct.pack_into(">I", self._ring, at + _CRC, self._sequenced.crc(self._sequence))
        self._sequence += self._records

    def take(self) -> int:
        """Read the waiting answers; return the number of requests that they answer."""
        count = self.socket.recv_into(self._scratch)
        if not count:
            raise EOFError("the broker closed the connection")
        answers = self._answers
        answers += memoryview(self._scratch)[:count]
        taken = position = 0
        while len(answers) - position >= 4:
            end = position + 4 + int.from_bytes(answers[position : position + 4], "big")
            if end > len(answers):
                break
            error = answers[position + self._error_at : position + self._error_at + 2]
            if error != b"\0\0":
                raise RuntimeError(f"Produce was answered with error {int.from_bytes(error, 'big', signed=True)}")
            taken += 1
            position = end
        del answers[:position]
        self.unanswered -= taken
        return taken


def produce(address: str, flood: Flood, requests: int) -> tuple[Figures, bytes]:
    """Send `requests` requests in all; return the figures and the batch that the first connection sent."""
    data = batch(flood.records, flood.record_bytes, flood.codec)
    lanes = [_Lane(address, flood, number, data, share) for number, share in enumerate(flood.shares(requests))]
    began = time.perf_counter()
    if len(lanes) == 1:
        _alone(lanes[0], flood.depth)
    else:
        _together(lanes, flood.depth)
    seconds = time.perf_counter() - began
    for lane in lanes:
        lane.socket.close()
    size = flood.batch_bytes if flood.codec else len(data)
    return Figures(requests, requests * size, seconds, []), data


def _alone(lane: _Lane, depth: int) -> None:
    lane.fill(depth)
    while lane.unanswered:
        lane.fill(lane.take())


def _together(lanes: list[_Lane], depth: int) -> None:
    by_descriptor = {lane.socket.fileno(): lane for lane in lanes if lane.unanswered}
    poll = select.epoll()
    blocked = set()
    for descriptor, lane in by_descriptor.items():
        lane.socket.setblocking(False)
        poll.register(descriptor, select.EPOLLIN | select.EPOLLOUT)
        blocked.add(descriptor)
        lane.fill(depth)
    while by_descriptor:
        ready = poll.poll(TIMEOUT_S)
        if not ready:
            raise TimeoutError(f"{len(by_descriptor)} connections wait for answers")
        for descriptor, events in ready:
            lane = by_descriptor[descriptor]
            whole = lane.fill(lane.take()) if events & ~select.EPOLLOUT else lane.flush()
            if not lane.unanswered:
                poll.unregister(descriptor)
                del by_descriptor[descriptor]
            elif whole == (descriptor in blocked):
                blocked ^= {descriptor}
                poll.modify(descriptor, select.EPOLLIN if whole else select.EPOLLIN | select.EPOLLOUT)
    poll.close()
