"""Transactional producers of transaction.version 2 over raw frames: Produce 12 to some partitions, then EndTxn 5.

Each producer has a connection and one request on its way. A transaction is one or several Produce requests with a batch
for each partition, and its commit. The broker adds the partitions (KIP-890), and every EndTxn raises the epoch.
"""

from __future__ import annotations

import itertools
import select
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import crc32c
from protocol_lib.codec import decode, encode
from protocol_lib.messages.end_txn import EndTxnRequest
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from raw import TIMEOUT_S, batch, connect, frame, receive

#: Places in a record batch v2, from its first byte.
_CRC, _ATTRIBUTES, _PRODUCER_ID = 17, 21, 43
_TRANSACTIONAL = 1 << 4
_CONCURRENT_TRANSACTIONS = 51
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Transactions:
    """A load: each transaction writes `requests` times a batch of `records` to each partition."""

    topic: str
    partitions: int = 4
    records: int = 25
    record_bytes: int = 100
    requests: int = 1
    producers: int = 1


class _Producer:
    """One producer, and its connection. Without a transactional id it only produces."""

    def __init__(self, address: str, load: Transactions, transactional_id: str | None) -> None:
        self.socket = connect(address)
        self.load = load
        self._id = transactional_id
        self._producer = (-1, -1)
        data = bytearray(batch(load.records, load.record_bytes))
        if transactional_id is not None:
            self._find_coordinator()
            self.init()
            struct.pack_into(">h", data, _ATTRIBUTES, _TRANSACTIONAL)
        self.batch_bytes = len(data)
        partitions = tuple(PartitionProduceData(index=index, records=bytes(data)) for index in range(load.partitions))
        topic = TopicProduceData(name=load.topic, partition_data=partitions)
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=(topic,))
        self._frame = bytearray(_flexible(0, 12, encode(request, 12)))
        #: The places of the batches in the frame.
        self._batches: list[int] = []
        for _ in range(load.partitions):
            self._batches.append(self._frame.index(data, self._batches[-1] + 1 if self._batches else 0))

    def _call(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.answer()

    def answer(self) -> bytes:
        """Return the next answer, without its length."""
        return receive(self.socket, struct.unpack(">i", receive(self.socket, 4))[0])

    def _find_coordinator(self) -> None:
        """Look for the coordinator, whose topic is made by that."""
        assert self._id is not None
        key = self._id.encode()
        request = frame(10, 1, struct.pack(">h", len(key)) + key + b"\1")
        self._until_settled(lambda: struct.unpack_from(">h", self._call(request), 8)[0])

    def init(self) -> None:
        """Begin a new epoch. When this returns, no transaction waits for its markers."""
        request = frame(
            22, 1, encode(InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=60_000), 1)
        )

        def asked() -> int:
            error, *producer = struct.unpack_from(">hqh", self._call(request), 8)
            self._producer = producer[0], producer[1]
            return int(error)

        self._until_settled(asked)

    def _until_settled(self, ask: Callable[[], int]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while error := ask():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the coordinator answers error {error}")
            time.sleep(_PAUSE_S)

    def run(self, transactions: int) -> Iterator[None]:
        """Carry out transactions; each step is a request that was sent."""
        for _ in range(transactions):
            for number in range(self.load.requests):
                if self._id is not None:
                    self._stamp(number * self.load.records)
                error = _CONCURRENT_TRANSACTIONS
                while error == _CONCURRENT_TRANSACTIONS:
                    self.socket.sendall(self._frame)
                    yield
                    error = self._produced()
                if error:
                    raise RuntimeError(f"Produce was answered with error {error}")
            if self._id is not None:
                yield from self._commit()

    def _stamp(self, sequence: int) -> None:
        """Give the batches the producer's epoch and their sequence."""
        view = memoryview(self._frame)
        for at in self._batches:
            struct.pack_into(">qhi", view, at + _PRODUCER_ID, *self._producer, sequence)
            crc = crc32c.crc32c(view[at + _ATTRIBUTES : at + self.batch_bytes])
            struct.pack_into(">I", view, at + _CRC, crc)

    def _produced(self) -> int:
        response = decode(ProduceResponse, 12, self.answer(), 5)
        return max(each.error_code for topic in response.responses for each in topic.partition_responses)

    def _commit(self) -> Iterator[None]:
        assert self._id is not None
        producer_id, epoch = self._producer
        end = EndTxnRequest(transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=True)
        request = _flexible(26, 5, encode(end, 5))
        error = _CONCURRENT_TRANSACTIONS
        while error == _CONCURRENT_TRANSACTIONS:
            self.socket.sendall(request)
            yield
            error, *producer = struct.unpack_from(">hqh", self.answer(), 4 + 1 + 4)
        if error:
            raise RuntimeError(f"EndTxn was answered with error {error}")
        self._producer = producer[0], producer[1]


def _flexible(api_key: int, version: int, body: bytes) -> bytes:
    """Return a request of a flexible version, with correlation id 1."""
    request = struct.pack(">hhih", api_key, version, 1, 1) + b"r\0" + body
    return struct.pack(">i", len(request)) + request


_names = itertools.count()


def transact(address: str, load: Transactions, transactions: int, *, plain: bool = False) -> tuple[float, int]:
    """Commit this many transactions; return the seconds, and the bytes of their batches.

    Args:
        plain: the same requests without transactions.
    """
    whole, rest = divmod(transactions, load.producers)
    producers = [
        _Producer(address, load, None if plain else f"{load.topic}-{next(_names)}") for _ in range(load.producers)
    ]
    runs = {each.socket.fileno(): each.run(whole + (number < rest)) for number, each in enumerate(producers)}
    began = time.perf_counter()
    _drive(runs)
    seconds = time.perf_counter() - began
    for each in producers:
        if not plain:
            each.init()
        each.socket.close()
    return seconds, transactions * load.requests * load.partitions * producers[0].batch_bytes


def _drive(runs: dict[int, Iterator[None]]) -> None:
    """Let each go on when its answer is there."""
    poll = select.epoll()
    left = {number: run for number, run in runs.items() if next(run, 0) is None}
    for number in left:
        poll.register(number, select.EPOLLIN)
    while left:
        ready = poll.poll(TIMEOUT_S)
        if not ready:
            raise TimeoutError(f"{len(left)} producers wait for answers")
        for number, _ in ready:
            if next(left[number], 0) == 0:
                poll.unregister(number)
                del left[number]
    poll.close()
