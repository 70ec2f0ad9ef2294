"""Records that a producer holds until they are acknowledged: a queue of batches per partition, in bounded memory.

A batch is filled, waits in its partition's queue, is in flight, and then is done or back at its place in the queue.
Pure: no input or output, and the caller passes times. The order of a partition's records never changes:

    idempotent        up to five batches of a partition are in flight; each keeps its sequence numbers over all its
                      tries, so the broker refuses a batch out of order and recognises one that it has already. While
                      a batch has to be sent again, nothing new follows it.
    not idempotent    one batch of a partition is in flight

A batch with sequence numbers that is given up may be in the log or not: it leaves a gap that is to be resolved. Nothing
new is numbered until then. The later batches with numbers may be in the log too, so each goes again under its old
numbers, oldest first and alone (as org.apache.kafka.clients.producer.internals.TransactionManager decides):

    NONE, DUPLICATE_SEQUENCE_NUMBER         it is in the log, and so is the batch that was given up: no gap is left
    OUT_OF_ORDER_SEQUENCE_NUMBER            it is not in the log, and neither is a later one: all get new numbers
    no batch with numbers is left           the gap may be there: the next batch gets new numbers

New numbers begin at sequence 0 under the producer's next epoch (KIP-360), when nothing of the partition is in flight.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol_lib.client.errors import KafkaError
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    BatchBuilder,
    add_to_sequence,
)
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Header

#: Batches of one partition in flight: as many as brokers remember to recognise duplicates.
IN_FLIGHT_MAX: Final = 5
EPOCH_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Position of a record in the log. Offset and timestamp are -1 when the broker sent none (acks=0)."""

    topic: str
    partition: int
    offset: int
    #: milliseconds since 1970; the broker's when the topic uses LogAppendTime
    timestamp: int


class Batch:
    """Records of one partition that travel together."""

    def __init__(self, topic_partition: TopicPartition, builder: BatchBuilder, now: float, deadline: float) -> None:
        self.topic_partition = topic_partition
        self.builder = builder
        self.created = now
        self.deadline = deadline
        #: time before which it is not sent, by the event loop's clock
        self.not_before = 0.0
        self.tries = 0
        #: nothing more may be added
        self.is_closed = False
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        #: bytes of the buffer memory that the records occupy
        self.reserved = 0
        self.is_done = False
        #: one per record
        self.answers: list[asyncio.Future[RecordMetadata]] = []
        self._encoded: bytes | None = None

    def __len__(self) -> int:
        return len(self.answers)

    def add(self, answer: asyncio.Future[RecordMetadata], reserved: int) -> None:
        self.answers.append(answer)
        self.reserved += reserved

    def encoded(self) -> bytes:
        """Return the batch as it is sent, the same at each try."""
        if self._encoded is None:
            self._encoded = self.builder.build(
                producer_id=self.producer_id, producer_epoch=self.producer_epoch, base_sequence=self.base_sequence
            )
        return self._encoded

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self._encoded = None

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        self.is_done = True
        topic, partition = self.topic_partition
        for delta, (answer, record) in enumerate(zip(self.answers, self.builder.records, strict=True)):
            if not answer.done():
                offset = -1 if base_offset < 0 else base_offset + delta
                timestamp = record.timestamp if log_append_time < 0 else log_append_time
                answer.set_result(RecordMetadata(topic, partition, offset, timestamp))

    def fail(self, fault: KafkaError) -> None:
        self.is_done = True
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(fault)

    def halves(self, make_builder: Callable[[], BatchBuilder]) -> "tuple[Batch, Batch]":
        """Return two batches of the same records and sequence numbers, for a broker that refuses one as too large."""
        middle = len(self) // 2
        parts = []
        for begin, end in ((0, middle), (middle, len(self))):
            builder = make_builder()
            part = Batch(self.topic_partition, builder, self.created, self.deadline)
            for record, answer in zip(self.builder.records[begin:end], self.answers[begin:end], strict=True):
                builder.append(record.timestamp, record.key, record.value, record.headers)
                part.add(answer, 0)
            part.is_closed = True
            part.tries = self.tries
            if self.base_sequence != NO_SEQUENCE:
                part.number(self.producer_id, self.producer_epoch, add_to_sequence(self.base_sequence, begin))
            parts.append(part)
        parts[0].reserved = self.reserved
        return parts[0], parts[1]


@dataclass(slots=True)
class PartitionQueue:
    """The batches of one partition, oldest first, and where its sequence numbers are."""

    topic_partition: TopicPartition
    queued: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    next_sequence: int = 0
    #: base sequence of the newest batch that was given up and may be missing in the log, else NO_SEQUENCE
    gap_at: int = NO_SEQUENCE
    #: whether the oldest batch with numbers, and so every one, is known not to be in the log
    is_missing: bool = False

    @property
    def is_idle(self) -> bool:
        return not self.queued and not self.in_flight

    @property
    def has_gap(self) -> bool:
        """Whether batches wait for others to be resolved, or for new numbers."""
        return self.is_missing or self.gap_at != NO_SEQUENCE

    def sendable(self, now: float, *, idempotent: bool, producer_id: int = NO_PRODUCER_ID) -> Batch | None:
        """Return the batch that may be in flight next, filled or not; `producer_id` is for new numbers."""
        if not self.queued or self.is_missing:
            return None
        head = self.queued[0]
        if head.not_before > now:
            return None
        if not idempotent or head.base_sequence != NO_SEQUENCE:
            return None if self.in_flight else head
        # mutant: gap-before-new-numbers
        if self.gap_at != NO_SEQUENCE or (self.in_flight and producer_id != self.producer_id):
            return None
        follows_retry = any(batch.tries > 1 for batch in self.in_flight)
        return None if follows_retry or len(self.in_flight) >= IN_FLIGHT_MAX else head

    def take(self, producer_id: int, producer_epoch: int) -> Batch:
        """Put the first batch of the queue in flight, numbered when producers have an id."""
        batch = self.queued.popleft()
        batch.is_closed = True
        batch.tries += 1
        if producer_id != NO_PRODUCER_ID and batch.base_sequence == NO_SEQUENCE:
            if self.producer_id != producer_id:
                self.producer_id, self.producer_epoch, self.next_sequence = producer_id, producer_epoch, 0
            batch.number(self.producer_id, self.producer_epoch, self.next_sequence)
            self.next_sequence = add_to_sequence(self.next_sequence, len(batch))
        self.in_flight.append(batch)
        return batch

    def put_back(self, batch: Batch) -> None:
        """Queue a batch that has to be sent again, in front of all that were sent after it."""
        self.in_flight.remove(batch)
        index = 0
        while index < len(self.queued) and _is_after(batch, self.queued[index]):
            index += 1
        self.queued.insert(index, batch)

    def acknowledge(self, batch: Batch) -> None:
        """Remove a batch that is in the log, and with it every batch before it."""
        self.in_flight.remove(batch)
        if self.gap_at != NO_SEQUENCE and _comes_after(batch.base_sequence, self.gap_at):
            self.gap_at = NO_SEQUENCE  # mutant: gap-resolved

    def give_up(self, batch: Batch) -> None:
        """Remove a batch that is not sent again; with numbers it leaves a gap."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.queued.remove(batch)
        if batch.base_sequence != NO_SEQUENCE and not _comes_after(self.gap_at, batch.base_sequence):
            self.gap_at = batch.base_sequence

    def is_oldest(self, batch: Batch) -> bool:
        """Return whether no batch in flight or to be sent again was sent before it."""
        others = [*self.in_flight, *(each for each in self.queued if each.base_sequence != NO_SEQUENCE)]
        return not any(_is_after(batch, other) for other in others if other is not batch)

    def close_gap(self) -> bool:
        """Let batches get new numbers, once that is safe. Returns whether the epochs of the producer id are used up."""
        numbered = [batch for batch in self.queued if batch.base_sequence != NO_SEQUENCE]
        # mutant: uncertain-batch-not-renumbered
        if self.in_flight or not (self.is_missing or (self.has_gap and not numbered)):
            return False
        self.is_missing, self.gap_at = False, NO_SEQUENCE
        for batch in numbered:
            if batch.base_sequence:
                batch.not_before = 0.0  # a broker that refuses even sequence 0 is not asked without a pause
            batch.number(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        self.next_sequence = 0
        if self.producer_epoch == EPOCH_MAX:
            return True
        self.producer_epoch += 1
        return False


def _is_after(batch: Batch, other: Batch) -> bool:
    """Return whether a batch's sequence numbers come after another's."""
    return _comes_after(batch.base_sequence, other.base_sequence)


def _comes_after(sequence: int, other: int) -> bool:
    """Return whether a sequence number comes after another; they go on at 0 after 2^31-1."""
    return NO_SEQUENCE not in (sequence, other) and 0 < (sequence - other) & SEQUENCE_MAX < 1 << 30


class Accumulator:
    """The queues of every partition, and the memory that all their records may take together, in bytes."""

    def __init__(self, *, codec: Codec, level: int | None, batch_bytes: int, memory_bytes: int) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self._codec = codec
        self._level = level
        self._batch_bytes = batch_bytes
        self._memory_bytes = memory_bytes
        self._reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether a `send` waits for memory."""
        return bool(self._waiting)

    @property
    def incomplete(self) -> Iterator[Batch]:
        for queue in self.queues.values():
            yield from queue.in_flight
            yield from queue.queued

    def reserve(self, size: int) -> asyncio.Future[None] | None:
        """Reserve memory for a record. Returns None at once, or a future to wait for: cancel it to give up."""
        if not self._waiting and (self._reserved + size <= self._memory_bytes or self._reserved == 0):
            self._reserved += size
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        return future

    def release(self, size: int) -> None:
        self._reserved -= size
        while self._waiting:
            wanted, future = self._waiting[0]
            if not future.done():
                if self._reserved and self._reserved + wanted > self._memory_bytes:
                    return
                self._reserved += wanted
                future.set_result(None)
            self._waiting.popleft()

    def append(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        *,
        now: float,
        deadline: float,
        reserved: int,
    ) -> tuple[asyncio.Future[RecordMetadata], bool]:
        """Add a record. Returns a future for its position, and whether a batch was begun for it."""
        queue = self.queues.get(topic_partition)
        if queue is None:
            queue = self.queues[topic_partition] = PartitionQueue(topic_partition)
        answer: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        last = queue.queued[-1] if queue.queued else None
        if last is not None and not last.is_closed:
            if last.builder.append(timestamp, key, value, headers) is not None:
                last.add(answer, reserved)
                return answer, False
            last.is_closed = True
        builder = self._builder()
        builder.append(timestamp, key, value, headers)
        batch = Batch(topic_partition, builder, now, deadline)
        batch.add(answer, reserved)
        queue.queued.append(batch)
        return answer, True

    def is_ready(self, batch: Batch, now: float, linger_s: float) -> bool:
        """Return whether waiting for more records would make no sense."""
        return (
            batch.is_closed
            or batch.builder.size >= self._batch_bytes
            or now >= batch.created + linger_s
            or self.has_waiting
        )

    def _builder(self) -> BatchBuilder:
        return BatchBuilder(codec=self._codec, level=self._level, size_max=self._batch_bytes)

    def split(self, queue: PartitionQueue, batch: Batch) -> None:
        """Put back a batch in flight as two."""
        queue.put_back(batch)
        index = queue.queued.index(batch)
        del queue.queued[index]
        for half in reversed(batch.halves(self._builder)):
            queue.queued.insert(index, half)
