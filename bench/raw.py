"""Raw Kafka load: frames encoded once, sent over blocking sockets, so that the broker is measured and not a client.

One connection, Produce v7 and Fetch v4. Every answer's error code is checked.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import crc32c
from protocol_lib.client.sasl import SaslMechanism
from protocol_lib.records.compression import Codec, compress

TIMEOUT_S = 30
_WORDS = [b"%x" % (number * number * 2_654_435_761 % 2**32) for number in range(1, 2000)]


@dataclass
class Figures:
    """The result of one run. `latencies_ms` is sorted and only kept for lone requests."""

    requests: int
    bytes: int
    seconds: float
    latencies_ms: list[float]

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    def percentile(self, share: float) -> float:
        return self.latencies_ms[min(len(self.latencies_ms) - 1, int(len(self.latencies_ms) * share))]


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number & ~0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _words(size: int, choice: random.Random) -> bytes:
    """Return `size` bytes of words, which compress about as well as JSON: to a quarter in zstd, to a half in lz4."""
    return b" ".join(choice.choices(_WORDS, k=size // 4))[:size]


def batch(records: int, record_bytes: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a record batch v2: equal records with random values, or with a codec, records of different words."""
    value, choice = os.urandom(record_bytes), random.Random(7)
    body = bytearray()
    for index in range(records):
        if codec:
            value = _words(record_bytes, choice)
        record = b"\0" + _varint(0) + _varint(index) + _varint(-1) + _varint(record_bytes) + value + _varint(0)
        body += _varint(len(record)) + record
    now = int(time.time() * 1000)  # wall clock: timestamps of records
    tail = struct.pack(">hiqqqhii", codec, records - 1, now, now, -1, -1, -1, records) + compress(codec, body)
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c.crc32c(tail)) + tail


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Return a request of a version that is not flexible, with correlation id 1."""
    request = struct.pack(">hhih", api_key, version, 1, 1) + b"r" + body
    return struct.pack(">i", len(request)) + request


def produce_frame(topic: str, partition: int, acks: int, data: bytes) -> bytes:
    """Produce v7 of one batch."""
    head = struct.pack(">hhi", -1, acks, 30_000) + struct.pack(">i", 1) + _string(topic)
    return frame(0, 7, head + struct.pack(">iii", 1, partition, len(data)) + data)


def fetch_frame(
    topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int = 500, *, committed: bool = False
) -> bytes:
    """Fetch v4 of one partition, without a session; it waits that long for one byte."""
    body = struct.pack(">iiiib", -1, wait_ms, 1, max_bytes, committed) + struct.pack(">i", 1) + _string(topic)
    return frame(1, 4, body + struct.pack(">iiqi", 1, partition, offset, max_bytes))


def metadata_frame() -> bytes:
    """Return a Metadata v5 request for the brokers, without topics."""
    return frame(3, 5, struct.pack(">ib", 0, 0))


def records_position(topic: str) -> int:
    """Return the position of the records in the answer to `fetch_frame`, without its length; the error code is 26
    before it.
    """
    return 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2 + 8 + 8 + 4 + 4


def handshake_frame(mechanism: str) -> bytes:
    """SaslHandshake v1."""
    return frame(17, 1, _string(mechanism))


def token_frame(token: bytes) -> bytes:
    """SaslAuthenticate v1."""
    return frame(36, 1, struct.pack(">i", len(token)) + token)


def token_of(answer: bytes) -> bytes:
    """Return the token of an answer to SaslAuthenticate, which begins with its correlation id."""
    error, length = struct.unpack_from(">hh", answer, 4)
    if error:
        raise RuntimeError(f"SaslAuthenticate was answered with error {error}")
    at = 8 + max(length, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def log_in(connection: socket.socket, sasl: SaslMechanism) -> None:
    """Log in, on a new connection."""

    def call(request: bytes) -> bytes:
        connection.sendall(request)
        return receive(connection, struct.unpack(">i", receive(connection, 4))[0])

    call(handshake_frame(sasl.name))
    exchange = sasl.exchange()
    token = next(exchange)
    with contextlib.suppress(StopIteration):
        while True:
            token = exchange.send(token_of(call(token_frame(token))))


def receive(connection: socket.socket, length: int) -> bytes:
    out = bytearray()
    while len(out) < length:
        piece = connection.recv(length - len(out))
        if not piece:
            raise EOFError("the broker closed the connection")
        out += piece
    return bytes(out)


def connect(address: str) -> socket.socket:
    """Return a blocking socket to HOST:PORT; a call that waits for half a minute fails (BlockingIOError)."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # the kernel's own costs no further system call
        connection.setsockopt(socket.SOL_SOCKET, direction, struct.pack("ll", TIMEOUT_S, 0))
    return connection


class Connection:
    """A blocking connection to HOST:PORT that speaks to one partition."""

    def __init__(
        self,
        address: str,
        topic: str,
        partition: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        sasl: SaslMechanism | None = None,
    ) -> None:
        self._socket = connect(address)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        if sasl is not None:
            log_in(self._socket, sasl)
        self._scratch = bytearray(1 << 20)
        self._name = topic
        self._topic = _string(topic)
        self._partition = partition

    def close(self) -> None:
        self._socket.close()

    def _receive(self, length: int) -> bytes:
        return receive(self._socket, length)

    def _skip(self, length: int) -> None:
        while length:
            got = self._socket.recv_into(self._scratch, min(length, len(self._scratch)))
            if not got:
                raise EOFError("the broker closed the connection")
            length -= got

    def _produce_frame(self, acks: int, data: bytes) -> bytes:
        return produce_frame(self._name, self._partition, acks, data)

    def _take_produced(self) -> None:
        answer = self._receive(struct.unpack(">i", self._receive(4))[0])
        (error,) = struct.unpack_from(">h", answer, 4 + 4 + len(self._topic) + 4 + 4)
        if error:
            raise RuntimeError(f"Produce was answered with error {error}")

    def produce(
        self, requests: int, batch_bytes: int, *, acks: int = 1, depth: int = 5, record_bytes: int = 1000
    ) -> Figures:
        """Produce `requests` batches of about `batch_bytes` with `depth` of them in flight."""
        data = batch(max(1, batch_bytes // (record_bytes + 10)), record_bytes)
        seconds = self.send([self._produce_frame(acks, data)], requests, depth)
        return Figures(requests, requests * len(data), seconds, [])

    def send(self, frames: Sequence[bytes], requests: int, depth: int) -> float:
        """Send `requests` of these Produce requests, in turn, with `depth` of them in flight; return the seconds."""
        flying = 0
        begin = time.perf_counter()
        for number in range(requests):
            self._socket.sendall(frames[number % len(frames)])
            flying += 1
            if flying >= depth:
                self._take_produced()
                flying -= 1
        for _ in range(flying):
            self._take_produced()
        return time.perf_counter() - begin

    def ping(self, requests: int, *, acks: int = 1) -> Figures:
        """Send one-record produce requests, one at a time."""
        data = batch(1, 100)
        request = self._produce_frame(acks, data)
        latencies = []
        begin = time.perf_counter()
        for _ in range(requests):
            sent = time.perf_counter()
            self._socket.sendall(request)
            self._take_produced()
            latencies.append((time.perf_counter() - sent) * 1000)
        return Figures(requests, requests * len(data), time.perf_counter() - begin, sorted(latencies))

    def paced(self, until: Callable[[], bool], batch_bytes: int, per_second: float, *, acks: int = -1) -> Figures:
        """Send batches at a steady rate, one at a time; a latency counts from the time at which its request was due."""
        data = batch(max(1, batch_bytes // 1010), 1000)
        request = self._produce_frame(acks, data)
        latencies: list[float] = []
        begin = time.perf_counter()
        while not until():
            due = begin + len(latencies) / per_second
            time.sleep(max(0.0, due - time.perf_counter()))
            self._socket.sendall(request)
            self._take_produced()
            latencies.append((time.perf_counter() - due) * 1000)
        requests = len(latencies)
        return Figures(requests, requests * len(data), time.perf_counter() - begin, sorted(latencies))

    def fetch(self, total_bytes: int, max_bytes: int, end: int | None = None, *, committed: bool = False) -> Figures:
        """Read from offset 0, again and again, until `total_bytes` of whole batches have come. All must be alike.

        `end` is the end of the log; without it, each pass waits there once for more.
        """
        offset = received = requests = 0
        begin = time.perf_counter()
        while received < total_bytes:
            request = fetch_frame(self._name, self._partition, offset, max_bytes, committed=committed)
            self._socket.sendall(request)
            head_bytes = 4 + 4 + 4 + 4 + len(self._topic) + 4 + 4 + 2 + 8 + 8 + 4 + 4
            head = self._receive(head_bytes)
            (error,) = struct.unpack_from(">h", head, head_bytes - 26)
            if error:
                raise RuntimeError(f"Fetch was answered with error {error}")
            (length,) = struct.unpack_from(">i", head, head_bytes - 4)
            requests += 1
            if length <= 0:
                offset = 0
                continue
            first = self._receive(61)
            base, batch_length = struct.unpack_from(">qi", first)
            (last_delta,) = struct.unpack_from(">i", first, 23)
            self._skip(length - 61)
            whole = length // (batch_length + 12)
            offset = base + whole * (last_delta + 1)
            received += whole * (batch_length + 12)
            if offset == end:
                offset = 0
        return Figures(requests, received, time.perf_counter() - begin, [])
