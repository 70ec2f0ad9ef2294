"""All topics at one moment, with their sizes, records and groups; and the lag of each group."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker_contract import groups_pb2, logs_pb2, topics_pb2

from admin_api import groups
from admin_api.storage import EARLIEST, LATEST, StorageCalls

#: Partitions, and groups, in one question to storage.
PARTITIONS_BATCH = 2000
GROUPS_BATCH = 200

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class TopicState:
    """A topic; numbers are sums over its partitions."""

    name: str
    is_internal: bool
    partition_count: int
    offline_count: int = 0
    size_bytes: int = 0
    #: High watermarks, and these less the log start offsets.
    end_offsets: int = 0
    records: int = 0
    #: The lag in the topic of each group that committed an offset there.
    lags: dict[str, int] = field(default_factory=dict)

    @property
    def max_lag(self) -> int | None:
        """The largest lag of a group; None without a group."""
        return max(self.lags.values(), default=None)


@dataclass(slots=True)
class Overview:
    #: Topics by name, in order.
    topics: dict[str, TopicState]
    #: Offsets that each group has yet to read, in the partitions where it committed one.
    lags: dict[str, int]


async def take(storage: StorageCalls) -> Overview:
    """Ask storage for everything, some thousands of partitions at a time."""
    listed, folder, group_types = await asyncio.gather(storage.topics(), storage.log_dirs(), groups.types(storage))
    topics = {each.name: TopicState(each.name, each.is_internal, each.partition_count) for each in listed}
    _add_sizes(topics, folder)
    ends = await _add_offsets(topics, storage, listed)
    overview = Overview(topics, {})
    group_ids = sorted(group_types)
    for at in range(0, len(group_ids), GROUPS_BATCH):
        found = await storage.committed_offsets(group_ids[at : at + GROUPS_BATCH])
        _add_groups(overview, found, ends)
    return overview


def _add_sizes(topics: dict[str, TopicState], folder: logs_pb2.DescribeLogDirsResponse) -> None:
    for each in folder.topics:
        topic = topics.get(each.name)
        if topic is not None:
            topic.size_bytes = sum(partition.size_bytes for partition in each.partitions)
            topic.offline_count = sum(partition.is_offline for partition in each.partitions)


async def _add_offsets(
    topics: dict[str, TopicState], storage: StorageCalls, listed: Sequence[topics_pb2.Topic]
) -> dict[TopicPartition, int]:
    """Add the counts of records, and return the high watermark of each partition that has one."""
    pairs = [(topic.name, partition) for topic in listed for partition in range(topic.partition_count)]
    ends: dict[TopicPartition, int] = {}
    for at in range(0, len(pairs), PARTITIONS_BATCH):
        some = pairs[at : at + PARTITIONS_BATCH]
        found = await storage.offsets([(*pair, timestamp) for pair in some for timestamp in (EARLIEST, LATEST)])
        for pair, earliest, latest in zip(some, found[0::2], found[1::2], strict=True):
            if earliest.error_code == 0 and latest.error_code == 0:
                ends[pair] = latest.offset
                topic = topics[pair[0]]
                topic.end_offsets += latest.offset
                topic.records += latest.offset - earliest.offset
    return ends


def _add_groups(
    overview: Overview, found: Sequence[groups_pb2.FetchOffsetsResponse.Group], ends: dict[TopicPartition, int]
) -> None:
    lags: dict[str, int] = defaultdict(int)
    for group in found:
        for each in group.offsets:
            topic = overview.topics.get(each.topic)
            if topic is not None and each.offset >= 0 and each.error_code == 0:
                lag = max(0, ends.get((each.topic, each.partition), 0) - each.offset)
                topic.lags[group.group_id] = topic.lags.get(group.group_id, 0) + lag
                lags[group.group_id] += lag
    overview.lags |= lags
