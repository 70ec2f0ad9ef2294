"""Sends records, many at a time.

    async with Producer("localhost:9092") as producer:
        metadata = await producer.send_and_wait("orders", b"value", key=b"key")

Records of one partition keep their order, over retries and lost connections too; with `idempotent` (the default) none
of them is there twice.
"""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from protocol_lib.client.accumulator import Accumulator, RecordMetadata
from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import BufferFullError, ClientClosedError, broker_error
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.client.partitioner import Partitioner
from protocol_lib.client.sender import Delivery, Sender
from protocol_lib.client.settings import ClientSettings
from protocol_lib.errors import ErrorCode
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Header

#: Memory of a record without its key, value and headers: lengths, deltas and Python objects, in bytes.
_RECORD_OVERHEAD: Final = 100
_ACKS: Final = {"all": -1, -1: -1, 0: 0, 1: 1}


class Producer:
    """`start` (or `async with`) before use, `close` after. Times are in milliseconds."""

    def __init__(
        self,
        settings: str | ClientSettings,
        *,
        acks: int | str = "all",
        idempotent: bool | None = None,
        compression: Codec | str = Codec.NONE,
        compression_level: int | None = None,
        linger_ms: int = 5,
        batch_bytes: int = 16_384,
        buffer_bytes: int = 33_554_432,
        request_bytes: int = 1_048_576,
        delivery_timeout_ms: int = 120_000,
        block_ms: int = 60_000,
    ) -> None:
        """Create a producer; `settings` may be just the bootstrap servers. acks: "all", 1 or 0 (losses stay unknown).

        A batch waits up to `linger_ms` for more records, `batch_bytes` long (before compression). All records not
        acknowledged yet take up to `buffer_bytes`; `send` waits for room and for the topic's metadata up to
        `block_ms`. A record without acknowledgement `delivery_timeout_ms` after `send` fails.
        """
        if acks not in _ACKS:
            raise ValueError(f"acks={acks!r}")
        wanted = _ACKS[acks]
        if idempotent and wanted != -1:
            raise ValueError("idempotence needs acks='all'")
        self._settings = ClientSettings.of(settings)
        self._delivery = Delivery(
            acks=wanted,
            timeout_ms=delivery_timeout_ms,
            linger_ms=linger_ms,
            request_bytes=request_bytes,
            idempotent=wanted == -1 if idempotent is None else idempotent,
        )
        self._block_s = block_ms / 1000
        self._accumulator = Accumulator(
            codec=Codec[compression.upper()] if isinstance(compression, str) else compression,
            level=compression_level,
            batch_bytes=batch_bytes,
            memory_bytes=buffer_bytes,
        )
        self._partitioner = Partitioner(batch_bytes)
        #: whether a batch was begun: the next `send` lets other tasks run first, above all the sender
        self._give_way = False
        self._cluster: Cluster | None = None
        self._sender: Sender | None = None

    async def start(self) -> None:
        """Connect; KafkaError when no bootstrap server answers in time."""
        cluster = Cluster(self._settings, auto_create_topics=True)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._cluster = cluster
        self._sender = Sender(cluster, self._accumulator, self._delivery)
        self._sender.start()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """Hand over a record; the future has its position in the log, or raises the reason why it is not there.

        Without `partition` the key decides, and without a key the producer does. `timestamp_ms` is now by default.
        """
        if self._give_way:
            self._give_way = False
            await asyncio.sleep(0)
        cluster, sender = self._running()
        if timestamp_ms is not None and not 0 <= timestamp_ms < 1 << 62:
            raise ValueError(f"timestamp_ms={timestamp_ms}")
        deadline = asyncio.get_running_loop().time() + self._block_s
        partitions = cluster.metadata.partitions(topic)
        if not partitions:
            found = await cluster.topic(topic, timeout_ms=int(self._block_s * 1000))
            partitions = found.indexes
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content or b"") for name, content in headers)
        if partition is None:
            partition = self._partitioner.partition(topic, key, partitions, size)
        elif partition not in partitions:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        room = self._accumulator.reserve(size)
        if room is not None:
            sender.wake()
            await self._wait_for_room(room, size, deadline)
            self._check(sender, size)
        now = asyncio.get_running_loop().time()
        try:
            answer, began = self._accumulator.append(
                TopicPartition(topic, partition),
                # wall clock: the timestamp of a record
                int(time.time() * 1000) if timestamp_ms is None else timestamp_ms,
                key,
                value,
                headers,
                now=now,
                deadline=now + self._delivery.timeout_ms / 1000,
                reserved=size,
            )
        except BaseException:
            self._accumulator.release(size)
            raise
        if began:
            self._give_way = True
            sender.wake()
        return answer

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> RecordMetadata:
        """Send a record, and wait until it is acknowledged."""
        sent = await self.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await sent

    async def flush(self) -> None:
        """Send batches that are not full, and return when every record handed over by now is delivered or failed."""
        _, sender = self._running()
        waiting = [answer for batch in self._accumulator.incomplete for answer in batch.answers if not answer.done()]
        sender.flushing += 1
        sender.wake()
        try:
            if waiting:
                await asyncio.wait(waiting)
        finally:
            sender.flushing -= 1

    async def partitions(self, topic: str) -> tuple[int, ...]:
        """Return the indexes of a topic's partitions."""
        cluster, _ = self._running()
        return (await cluster.topic(topic)).indexes

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Flush, for as long as records have time, or `timeout_ms`; then the rest fails."""
        if self._cluster is None or self._sender is None:
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            cluster, sender, self._cluster, self._sender = self._cluster, self._sender, None, None
            await sender.stop()
            await cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, type_: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.close(timeout_ms=None if type_ is None else 0)

    def _running(self) -> tuple[Cluster, Sender]:
        if self._cluster is None or self._sender is None:
            raise ClientClosedError("the producer is not started, or closed")
        if self._sender.broken is not None:
            raise self._sender.broken
        return self._cluster, self._sender

    def _check(self, sender: Sender, size: int) -> None:
        """Raise if the producer has ended while a `send` waited for this memory."""
        if self._sender is not sender or sender.broken is not None:
            self._accumulator.release(size)
            self._running()
            raise ClientClosedError("the producer was closed while this waited")

    async def _wait_for_room(self, room: "asyncio.Future[None]", size: int, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await room
        except BaseException as fault:
            if room.done() and not room.cancelled():
                self._accumulator.release(size)
            if isinstance(fault, TimeoutError):
                raise BufferFullError(f"no room for {size} bytes within {self._block_s:g} s") from None
            raise
