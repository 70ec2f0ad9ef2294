"""The topic `__consumer_offsets` as the group coordinator writes (`internal_log`) and loads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.internal.record import read_key, read_value
from service_chassis import logs as service_logs

from storage_svc.coordinator.consumer.records import StoredConsumerGroup, is_consumer_key, value_kind
from storage_svc.coordinator.stored import partition_loader
from storage_svc.coordinator.stored.internal_log import InternalLog
from storage_svc.coordinator.stored.open_commits import Committed, OpenCommits
from storage_svc.coordinator.stored.records import OWN_KEYS
from storage_svc.log.config import LogConfig
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.configs import OFFSETS_TOPIC_CONFIGS
from storage_svc.topics.names import OFFSETS_TOPIC
from storage_svc.topics.registry import TopicRegistry

log = service_logs.get(__name__)


class OffsetsLog(InternalLog):
    """Owner: the group coordinator, on the event loop."""

    def __init__(self, registry: TopicRegistry[LogConfig], logs: DataFolder, partition_count: int) -> None:
        super().__init__(registry, logs, OFFSETS_TOPIC, OFFSETS_TOPIC_CONFIGS, partition_count)


@dataclass(slots=True)
class LoadedPartition:
    """The records of one partition: the last value of every key that was not deleted."""

    holds_back: ClassVar[bool] = True

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer_groups: dict[str, StoredConsumerGroup] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitValue]] = field(default_factory=dict)
    #: Records that could not be understood.
    broken_count: int = 0
    #: Offsets whose transactions have not ended so far.
    opened: OpenCommits = field(default_factory=OpenCommits)

    def apply(self, key: bytes, value: bytes | None, offset: int, producer_id: int, /) -> None:
        """Apply one record; hold back the offset that it commits if it is part of the producer's transaction.

        Raises:
            DecodeError: it cannot be understood.
        """
        match read_key(OWN_KEYS, key):
            case OffsetCommitKey(group=group, topic=topic, partition=partition):
                committed = group, (topic, partition)
                if value is None:
                    self._drop(committed)
                    self.opened.drop(committed)  # mutant: tombstone-drops-open
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
        for group, offsets in self.opened.end(producer_id, commit=commit).items():
            if offsets:
                self.offsets.setdefault(group, {}).update(offsets)

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
    """Load a whole partition, as `partition_loader.load` does."""
    loaded = await partition_loader.load(partition, LoadedPartition)
    if loaded.opened:
        log.info("offsets of open transactions held back", log=partition.folder, offsets=loaded.opened.count)
    return loaded
