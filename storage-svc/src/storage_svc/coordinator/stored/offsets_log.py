"""The topic `__consumer_offsets` as the group coordinator writes (`internal_log`) and loads it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from protocol_lib.errors import DecodeError
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.internal.record import read_key, read_value
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.header import CONTROL, TRANSACTIONAL
from protocol_lib.records.record import Record
from service_chassis import logs as service_logs

from storage_svc.coordinator.consumer.records import StoredConsumerGroup, is_consumer_key, value_kind
from storage_svc.coordinator.stored.internal_log import InternalLog
from storage_svc.coordinator.stored.open_commits import Committed, OpenCommits
from storage_svc.coordinator.stored.records import OWN_KEYS
from storage_svc.log.batch.header import Header, intact, records_of, whole_batches
from storage_svc.log.config import LogConfig
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.configs import OFFSETS_TOPIC_CONFIGS
from storage_svc.topics.names import OFFSETS_TOPIC
from storage_svc.topics.registry import TopicRegistry

log = service_logs.get(__name__)

#: Bytes of log decoded at a time while loading.
LOAD_CHUNK_BYTES = 1 << 20


class OffsetsLog(InternalLog):
    """Owner: the group coordinator, on the event loop."""

    def __init__(self, registry: TopicRegistry[LogConfig], logs: DataFolder, partition_count: int) -> None:
        super().__init__(registry, logs, OFFSETS_TOPIC, OFFSETS_TOPIC_CONFIGS, partition_count)


@dataclass(slots=True)
class LoadedPartition:
    """The records of one partition: the last value of every key that was not deleted."""

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer_groups: dict[str, StoredConsumerGroup] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitValue]] = field(default_factory=dict)
    records_count: int = 0
    #: Records that could not be understood.
    broken_count: int = 0
    #: Offsets whose transactions have not ended so far.
    opened: OpenCommits = field(default_factory=OpenCommits)

    def apply(self, key: bytes, value: bytes | None, offset: int = -1, producer_id: int = -1) -> None:
        """Apply one record; hold back the offset that it commits if it is part of the producer's transaction.

        Raises:
            DecodeError: it cannot be understood.
        """
        match read_key(OWN_KEYS, key):
            case OffsetCommitKey(group=group, topic=topic, partition=partition):
                committed = group, (topic, partition)
                if value is None:
                    self._drop(committed)
                    self.opened.drop(committed)
                elif producer_id >= 0:
                    self.opened.add(producer_id, committed, offset, read_value(OffsetCommitValue, value))
                else:
                    self._commit(committed, read_value(OffsetCommitValue, value))
                    self.opened.outdate(committed, offset)
            case GroupMetadataKey(group=group):
                if value is None:
                    self.groups.pop(group, None)
                else:
                    self.groups[group] = read_value(GroupMetadataValue, value)
            case consumer_key if is_consumer_key(consumer_key):
                self._apply_consumer(consumer_key, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply the offsets that the producer's transaction has committed, or drop them."""
        for committed, value in self.opened.end(producer_id, commit=commit).items():
            if value is not None:
                self._commit(committed, value)

    def _commit(self, committed: Committed, value: OffsetCommitValue) -> None:
        group, topic_partition = committed
        self.offsets.setdefault(group, {})[topic_partition] = value

    def _drop(self, committed: Committed) -> None:
        group, topic_partition = committed
        offsets = self.offsets.get(group, {})
        offsets.pop(topic_partition, None)
        if not offsets:
            self.offsets.pop(group, None)

    def _apply_consumer(self, key: Any, value: bytes | None) -> None:
        found = self.consumer_groups.setdefault(key.group_id, StoredConsumerGroup())
        found.apply(key, None if value is None else read_value(value_kind(key), value))
        if not found:
            del self.consumer_groups[key.group_id]


async def load(partition: PartitionLog) -> LoadedPartition:
    """Load a whole partition: read on the event loop like every log, decoded in a thread. Nobody may append during
    that.

    Raises:
        LogError: the disk refused.
    """
    loaded = LoadedPartition()
    position, end = partition.log_start_offset, partition.log_end_offset
    while position < end:
        data = partition.read_batches(position, LOAD_CHUNK_BYTES)
        if not data:
            loaded.broken_count += 1
            log.error("partition is not read to its end", log=partition.folder, offset=position, end_offset=end)
            break
        position = await asyncio.to_thread(_apply_batches, loaded, data)
    if loaded.opened:
        log.info("offsets of open transactions held back", log=partition.folder, offsets=loaded.opened.count)
    if loaded.broken_count:
        partition.suspect()
    return loaded


def _apply_batches(loaded: LoadedPartition, data: bytes) -> int:
    """Apply the batches and return the offset that follows."""
    position = 0
    for header, batch in whole_batches(data):
        position = header.last_offset + 1
        _apply_batch(loaded, header, batch)
    return position


def _apply_batch(loaded: LoadedPartition, header: Header, batch: memoryview) -> None:
    try:
        if not intact(batch):
            raise DecodeError("it does not match its CRC")
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL else -1
        for record in records_of(batch):
            if not header.attributes & CONTROL:
                _apply(loaded, record, producer_id)
            elif (marker := read_marker(record)) is not None:
                loaded.end_transaction(header.producer_id, commit=marker.type is ControlType.COMMIT)
    except DecodeError as error:
        loaded.broken_count += 1
        log.error("unreadable batch is skipped", topic=OFFSETS_TOPIC, base_offset=header.base_offset, reason=str(error))


def _apply(loaded: LoadedPartition, record: Record, producer_id: int) -> None:
    loaded.records_count += 1
    try:
        if record.key is None:
            raise DecodeError("no key")
        value = None if record.value is None else bytes(record.value)
        loaded.apply(bytes(record.key), value, record.offset, producer_id)
    except DecodeError as error:
        loaded.broken_count += 1
        log.error("unreadable record is skipped", topic=OFFSETS_TOPIC, offset=record.offset, reason=str(error))
