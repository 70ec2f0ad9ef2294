"""What a partition remembers of its idempotent producers: the last five batches of each, to recognise repetitions.

A snapshot file (`<next offset>.snapshot`) holds the state up to an offset:

    version i16 = 1, crc u32 (CRC-32C of everything behind it), count i32, count x entry
    entry = producer_id i64, epoch i16, last_sequence i32, last_offset i64, offset_delta i32, timestamp i64,
            coordinator_epoch i32, current_transaction_first_offset i64 (-1: none)

It knows only the last batch of each producer; `remember_before` refills the window from the log.

A producer numbers its records; sequences wrap from 2^31 - 1 to 0. With the same epoch a batch must begin one behind
the last; a batch seen before is answered with its original offset; a new epoch begins at 0; a producer that is not
known may begin anywhere.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 (an exception class)
from typing import Final, NamedTuple

from crc32c import crc32c
from protocol_lib.errors import ErrorCode

from storage_svc.log.batches import Header
from storage_svc.log.errors import LogError

SNAPSHOT_SUFFIX: Final = ".snapshot"

_WINDOW: Final = 5
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_HEAD: Final = Struct(">hIi")
_ENTRY: Final = Struct(">qhiqiqiq")
_CRC_END: Final = 6

_NONE: Final = int(ErrorCode.NONE)
_OUT_OF_ORDER: Final = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_INVALID_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)


class UnreadableSnapshot(LogError):  # noqa: N818 (reads as what happened)
    """A producer snapshot is damaged."""


class ProducedBatch(NamedTuple):
    """One batch of a producer, as remembered."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK


class Producer:
    """One producer id: its epoch, its last batches (oldest first), and when we last heard of it, by our own clock."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "seen_ms")

    def __init__(self, epoch: int, batches: list[ProducedBatch], seen_ms: int, coordinator_epoch: int = -1) -> None:
        self.epoch = epoch
        self.batches = batches
        self.seen_ms = seen_ms
        self.coordinator_epoch = coordinator_epoch


class ProducerState:
    """Owned by its PartitionLog. What `add` takes in can be taken back until `keep`."""

    __slots__ = ("_before", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._before: dict[int, Producer | None] = {}

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def producers(self) -> dict[int, Producer]:
        return self._producers

    def check(self, producer_id: int, epoch: int, first_sequence: int, delta: int) -> int | ProducedBatch:
        """An error code, 0 to accept, or the batch this one repeats."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return _NONE
        if epoch != producer.epoch:
            if epoch < producer.epoch:
                return _INVALID_EPOCH
            return _NONE if first_sequence == 0 else _OUT_OF_ORDER
        last = producer.batches[-1]
        if first_sequence == (last.last_sequence + 1) & _SEQUENCE_MASK:
            return _NONE
        last_sequence = (first_sequence + delta) & _SEQUENCE_MASK
        for batch in producer.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == delta:
                return batch
        return _OUT_OF_ORDER

    def add(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset: int,
        delta: int,
        timestamp: int,
        now_ms: int,
    ) -> None:
        """A checked batch is about to be written."""
        batch = ProducedBatch((first_sequence + delta) & _SEQUENCE_MASK, last_offset, delta, timestamp)
        producer = self._producers.get(producer_id)
        if producer_id not in self._before:
            self._before[producer_id] = producer and Producer(
                producer.epoch, producer.batches.copy(), producer.seen_ms, producer.coordinator_epoch
            )
        if producer is None or producer.epoch != epoch:
            self._producers[producer_id] = Producer(epoch, [batch], now_ms)
        else:
            producer.seen_ms = now_ms
            batches = producer.batches
            batches.append(batch)
            if len(batches) > _WINDOW:
                del batches[0]

    def keep(self) -> None:
        """What was added is written."""
        if self._before:
            self._before.clear()

    def take_back(self) -> None:
        """What was added since the last `keep` was not written."""
        for producer_id, before in self._before.items():
            if before is None:
                del self._producers[producer_id]
            else:
                self._producers[producer_id] = before
        self._before.clear()

    def replay(self, header: Header, now_ms: int) -> None:
        """A batch found in the log: true whatever its sequence."""
        if header.producer_id >= 0 and header.base_sequence >= 0:
            self.add(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
                now_ms,
            )
            self.keep()

    def remember_before(self, header: Header) -> None:
        """A batch from before the loaded snapshot, newest first: fills the windows that the snapshot left short."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch or len(producer.batches) >= _WINDOW:
            return
        batch = ProducedBatch(
            (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK,
            header.last_offset,
            header.last_offset_delta,
            header.max_timestamp,
        )
        if batch.last_offset < producer.batches[0].last_offset:
            producer.batches.insert(0, batch)

    def expire(self, before_ms: int) -> int:
        """Forget producers not heard of since; how many that were."""
        expired = [key for key, producer in self._producers.items() if producer.seen_ms < before_ms]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._producers.clear()
        self._before.clear()

    def encode(self) -> bytes:
        """The content of a snapshot file."""
        entries = [
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                producer.batches[-1].last_sequence,
                producer.batches[-1].last_offset,
                producer.batches[-1].offset_delta,
                producer.batches[-1].timestamp,
                producer.coordinator_epoch,
                -1,
            )
            for producer_id, producer in self._producers.items()
        ]
        body = len(entries).to_bytes(4, "big") + b"".join(entries)
        return _HEAD.pack(1, crc32c(body), len(entries)) + body[4:]

    def load(self, data: bytes, now_ms: int) -> None:
        """Take the state from a snapshot file's content.

        Raises:
            UnreadableSnapshot: it is damaged; the state is empty then.
        """
        self.clear()
        try:
            version, crc, count = _HEAD.unpack_from(data)
        except StructError as error:
            raise UnreadableSnapshot("shorter than its head") from error
        if version != 1 or crc32c(data[_CRC_END:]) != crc or len(data) != _HEAD.size + count * _ENTRY.size:
            raise UnreadableSnapshot(f"version {version}, {count} entries, {len(data)} bytes, or its CRC")
        for entry in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, _ = entry
            batch = ProducedBatch(last_sequence, last_offset, delta, timestamp)
            self._producers[producer_id] = Producer(epoch, [batch], now_ms, coordinator_epoch)
