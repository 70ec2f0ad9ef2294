"""A topic of the broker itself as its coordinator writes it: records in, durability out.

The topic is made when the first record needs it. Records of one `write` are one batch; records gathered in one turn of
the event loop are one batch a partition. A partition's records are in the log in the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch, build_batch_of_tails
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from service_chassis import logs as service_logs

from storage_svc.coordinator.stored.markers import write_marker
from storage_svc.coordinator.stored.records import partition_of
from storage_svc.coordinator.stored.waiting_writes import WaitingWrites
from storage_svc.log.config import LogConfig
from storage_svc.log.errors import LogError, NotNow
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import Appended, Origin, PartitionLog, Retry
from storage_svc.topics.catalog_file import CatalogError
from storage_svc.topics.registry import TopicRegistry
from storage_svc.transaction_ports import Marker

log = service_logs.get(__name__)

#: The size of keys deleted by one batch: with its overhead it stays far below any sensible max.message.bytes.
TOMBSTONE_KEYS_BYTES = 1 << 18
#: The size, in units of max.message.bytes, up to which a batch is compressed to fit.
COMPRESSED_TIMES_MAX = 8
#: The size from which on a batch of gathered records accepts no more of them.
GATHERED_BYTES = 1 << 16
#: More than a batch's header: with twice the records' own bytes no batch is longer than that.
RECORDS_OVERHEAD = 128
#: Codes that concern the producer of a transaction, not the log.
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

Records = Sequence[tuple[bytes, bytes | None]]
Done = Callable[[int], None]


@dataclass(slots=True)
class _Gathered:
    """Records of many callers for one batch: each caller's as `write_tail` has begun them."""

    now_ms: int
    calls: list[tuple[Sequence[bytes], Done]] = field(default_factory=list)
    size: int = 0


class InternalLog:
    """One such topic. Owner: its coordinator, on the event loop."""

    def __init__(
        self,
        registry: TopicRegistry[LogConfig],
        logs: DataFolder,
        topic: str,
        configs: Mapping[str, str],
        partition_count: int,
    ) -> None:
        """Make the topic, when it is needed, with these configs and this number of partitions."""
        self._registry = registry
        self._logs = logs
        self.topic = topic
        self._configs = configs
        self._new_partition_count = partition_count
        #: A function that gets the partition whose log accepts no records any more, and the reason; perhaps several
        #: times.
        self.on_offline: Callable[[int, str], None] = lambda *_: None
        self._loop = asyncio.get_running_loop()
        #: Partition -> the records to append when this turn of the loop is over.
        self._gathered: dict[int, _Gathered] = {}
        self._is_scheduled = False
        self._waiting = WaitingWrites(self._loop)
        #: The creation of the topic that is under way.
        self._creating: asyncio.Task[ErrorCode] | None = None

    @property
    def partition_count(self) -> int:
        topic = self._registry.get(self.topic)
        return self._new_partition_count if topic is None else topic.partition_count

    def partition_of(self, key: str) -> int:
        """Return the partition that holds a group or a transactional id."""
        return partition_of(key, self.partition_count)

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch of a partition, 0 before the topic is made."""
        target = self._target(partition)
        return 0 if target is None else target.leader_epoch

    def to_load(self) -> list[PartitionLog]:
        """Return the partitions that hold anything."""
        found = (self._logs.logs.get((self.topic, partition)) for partition in range(self.partition_count))
        return [each for each in found if each is not None and each.log_end_offset > each.log_start_offset]

    async def ensure_topic(self) -> ErrorCode:
        """Make the topic if it does not exist yet, some partitions at a time."""
        if self.topic in self._registry:
            return ErrorCode.NONE
        return await asyncio.shield(self._create_topic())

    def _create_topic(self) -> asyncio.Task[ErrorCode]:
        if self._creating is None:
            self._creating = self._loop.create_task(self._create(), name=f"create {self.topic}")
        return self._creating

    async def _create(self) -> ErrorCode:
        try:
            await self._registry.create(self.topic, self._new_partition_count, self._configs)
        except (CatalogError, LogError) as error:
            log.error("cannot create a topic", topic=self.topic, reason=str(error))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            self._creating = None
            self._waiting.resume_all()
        return ErrorCode.NONE

    async def durable(self) -> None:
        """Wait until all that is appended so far is durable, or never will be."""
        for partition in range(self.partition_count):
            if (target := self._target(partition)) is not None:
                await target.durable(target.log_end_offset)

    async def finish(self) -> None:
        """Wait until no write waits any more."""
        await self._waiting.finish()

    def _in_order(self, partition: int, write: Callable[[], None], done: Done) -> None:
        """Write now, or after the writes to the partition that wait, or once the topic is made."""
        if not self._waiting.holds(partition) and self.topic in self._registry:
            write()
            return
        if not self._waiting.add(partition, write):
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif self.topic not in self._registry:
            self._create_topic()

    def gather(self, partition: int, tails: Sequence[bytes], now_ms: int, done: Done) -> None:
        """Write when this turn of the event loop is over, in one batch with all else that is gathered until then.

        Args:
            tails: the output of `write_tail` for each key and value.
        """
        size = sum(map(len, tails))
        found = self._gathered.get(partition)
        if found is not None and found.size + size > GATHERED_BYTES:
            self._append_gathered(partition)
            found = None
        if found is None:
            found = self._gathered[partition] = _Gathered(now_ms)
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._append_all_gathered)
        found.calls.append((tails, done))
        found.size += size

    def _append_all_gathered(self) -> None:
        self._is_scheduled = False
        for partition in list(self._gathered):
            if partition in self._gathered:  # or a write since then has appended it, too
                try:
                    self._append_gathered(partition)
                except Exception:  # of one partition; the callers of the others must be answered
                    log.exception("append failed", topic=self.topic, partition=partition)

    def _append_gathered(self, partition: int) -> None:
        found = self._gathered.pop(partition)
        calls = found.calls
        if len(calls) > 1 and self._fits(partition, found.size):
            tails = [each for some, _ in calls for each in some]
            self._append_in_order(partition, build_batch_of_tails(tails, found.now_ms), partial(_call_all, calls))
            return
        for call in calls:
            self._append_in_order(partition, build_batch_of_tails(call[0], found.now_ms), partial(_call_all, (call,)))

    def _append_in_order(self, partition: int, batch: bytes, done: Done) -> None:
        self._in_order(partition, partial(self._append, partition, batch, done), done)

    def _fits(self, partition: int, size: int) -> bool:
        """Return whether a batch of several callers' records stays below the limit; else each caller gets a batch for
        itself."""
        target = self._target(partition)
        return target is None or 2 * size + RECORDS_OVERHEAD < target.config.max_message_bytes

    def write(
        self,
        partition: int,
        records: Records,
        now_ms: int,
        done: Done,
        *,
        may_compress: bool = False,
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Append (key, value) pairs as one batch; `done` gets Kafka's error code, 0 once they are durable. If they
        cannot be appended it gets the code before this returns, or when it is their turn (waiting_writes.py).

        Args:
            may_compress: if they are too large together (max.message.bytes), though none of them is alone.
            producer: id and epoch of the producer whose open transaction they are part of.
        """
        if partition in self._gathered:
            self._append_gathered(partition)
        listed = [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(records)]
        if producer is not None:
            batch = build_batch(listed, producer_id=producer[0], producer_epoch=producer[1], transactional=True)
            self._append_in_order(partition, batch, done)
        else:
            self._in_order(partition, partial(self._write, partition, listed, done, may_compress), done)

    def mark(self, partition: int, marker: Marker, done: Done) -> None:
        """Append the marker that ends a producer's transaction, after all that was written before; `done` as above.

        Without a log nothing needs a marker, unless writes wait until it is made.
        """
        if self._target(partition) is None and not self._waiting.holds(partition):  # mutant: end-after-waiting-offsets
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if partition in self._gathered:
            self._append_gathered(partition)
        self._in_order(partition, partial(self._mark, partition, marker, done), done)

    def _mark(self, partition: int, marker: Marker, done: Done) -> None:
        target = self._target(partition)
        if target is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            self._append_by(target, partial(write_marker, target, marker), done)

    def is_open(self, partition: int, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this producer is open in the partition under this epoch."""
        target = self._target(partition)
        return target is not None and target.producers.is_open(producer_id, epoch)

    def epoch_error(self, partition: int, producer_id: int, epoch: int) -> ErrorCode:
        """Return INVALID_PRODUCER_EPOCH if a newer epoch of this producer has written to the partition."""
        target = self._target(partition)
        return ErrorCode.NONE if target is None else ErrorCode(target.producers.check_epoch(producer_id, epoch))

    def _write(self, partition: int, listed: list[Record], done: Done, may_compress: bool) -> None:
        batch = build_batch(listed)
        if may_compress and (target := self._target(partition)) is not None:
            bytes_max = target.config.max_message_bytes
            if len(batch) > bytes_max and _is_many(listed, len(batch), bytes_max):
                batch = build_batch(listed, codec=Codec.ZSTD)
        self._append(partition, batch, done)

    def _target(self, partition: int) -> PartitionLog | None:
        return self._logs.logs.get((self.topic, partition))

    def _append(self, partition: int, batch: bytes, done: Done) -> None:
        target = self._target(partition)
        if target is None:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if len(batch) > target.config.max_message_bytes:
            log.error(
                "cannot append",
                topic=self.topic,
                partition=partition,
                error_code=ErrorCode.MESSAGE_TOO_LARGE,
                reason=f"{len(batch)} bytes, more than max.message.bytes ({target.config.max_message_bytes})",
            )
            done(ErrorCode.MESSAGE_TOO_LARGE)
            return
        # mutant: coordinator-roll-waits
        self._append_by(target, partial(target.append, batch, origin=Origin.COORDINATOR, may_wait=True), done)

    def _append_by(self, target: PartitionLog, append: Callable[[], Appended | Retry], done: Done) -> None:
        """Append now or, if the log must be durable first, before all that waits for the partition."""
        partition = target.partition
        try:
            appended = append()
        except Exception as error:  # a bug; the callers must be answered
            log.exception("append failed", topic=self.topic, partition=partition)
            target.drop_staged(NotNow(str(error)))
            self._failed(target, ErrorCode.UNKNOWN_SERVER_ERROR, done)
            return
        if isinstance(appended, Retry):  # of a coordinator it is AFTER_SYNC
            self._waiting.hold(partition, partial(self._append_by, target, append, done))
            target.on_durable(target.log_end_offset, lambda _: self._waiting.resume(partition))
            return
        if appended.error_code:
            is_fenced = appended.error_code in _FENCED
            (log.info if is_fenced else log.error)(
                "cannot append",
                topic=self.topic,
                partition=partition,
                error_code=appended.error_code,
                reason=appended.error_message,
            )
            self._failed(target, appended.error_code, done)
            return

        def written(code: int) -> None:
            if code:
                self._failed(target, code, done)
            else:
                done(code)

        target.on_durable(appended.last_offset + 1, written)

    def _failed(self, target: PartitionLog, code: int, done: Done) -> None:
        if target.offline is not None:
            self.on_offline(target.partition, target.offline)
        done(code)

    def delete(self, partition: int, keys: Sequence[bytes], now_ms: int, done: Done = lambda _: None) -> int:
        """Append tombstones, in as many batches as they need. `done` gets the first error code of them, 0 once all are
        durable. Return the number of keys, from the first on, whose tombstones the log has accepted."""
        batches: list[list[tuple[bytes, None]]] = [[]]
        size = 0
        for key in keys:
            if size >= TOMBSTONE_KEYS_BYTES:
                batches.append([])
                size = 0
            batches[-1].append((key, None))
            size += len(key)
        outcomes: list[int] = []

        def one_done(code: int) -> None:
            outcomes.append(code)
            if len(outcomes) == len(batches):
                done(next((each for each in outcomes if each), 0))

        accepted = 0
        for number, tombstones in enumerate(batches, start=1):
            known = len(outcomes)
            self.write(partition, tombstones, now_ms, one_done)
            if any(outcomes[known:]):
                for _ in batches[number:]:
                    one_done(outcomes[-1])
                return accepted
            accepted += len(tombstones)
        return accepted


def _is_many(records: Sequence[Record], batch_bytes: int, bytes_max: int) -> bool:
    """Return whether the number of records makes the batch too large, within reason, and not one of them."""
    largest = max(len(each.key or b"") + len(each.value or b"") for each in records)
    return largest <= bytes_max and batch_bytes <= bytes_max * COMPRESSED_TIMES_MAX


def _call_all(calls: Sequence[tuple[Sequence[bytes], Done]], code: int) -> None:
    for _, done in calls:
        try:
            done(code)
        except Exception:  # of one; the others are not to suffer
            log.exception("answering a commit failed")
