"""Offsets of partitions by timestamp, asked from their leaders: ListOffsets."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import KafkaError, broker_error
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

#: The replica id of clients that are no replica.
_CONSUMER: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """First offset at or after a timestamp; -1 and -1 when a partition has no such record."""

    offset: int
    #: milliseconds since 1970; -1 for special timestamps
    timestamp: int
    leader_epoch: int = -1


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
    timeout_ms: int | None = None,
    found: dict[TopicPartition, OffsetAndTimestamp] | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return each partition's first offset at or after a timestamp in milliseconds, or at a SpecialTimestamp.

    KafkaError when any partition has none in time; `found` has those of the others then."""
    found = {} if found is None else found

    async def attempt() -> None:
        left = {
            topic_partition: timestamp for topic_partition, timestamp in wanted.items() if topic_partition not in found
        }
        for topic in {topic_partition.topic for topic_partition in left}:
            if not cluster.metadata.partitions(topic):
                await cluster.topic(topic, timeout_ms=0)
        by_node: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        fault: KafkaError | None = None
        for topic_partition, timestamp in left.items():
            try:
                by_node[cluster.leader(topic_partition)][topic_partition] = timestamp
            except KafkaError as error:
                fault = error  # mutant: partial-look-up
        for node_id, of_node in by_node.items():
            response: ListOffsetsResponse = await cluster.request(node_id, _request(of_node, isolation_level))
            for topic_answer in response.topics:
                for answer in topic_answer.partitions:
                    topic_partition = TopicPartition(topic_answer.name, answer.partition_index)
                    if answer.error_code:
                        fault = broker_error(answer.error_code, str(topic_partition))
                    else:
                        found[topic_partition] = OffsetAndTimestamp(
                            answer.offset, answer.timestamp, answer.leader_epoch
                        )
        if fault is None and len(found) < len(wanted):
            fault = broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "ListOffsets")
        if fault is not None:
            raise fault

    if wanted:
        cluster.want(topic_partition.topic for topic_partition in wanted)
        await cluster.retrying(attempt, timeout_ms=timeout_ms)
    return found


def _request(wanted: Mapping[TopicPartition, int], isolation_level: int) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic_partition, timestamp in wanted.items():
        by_topic[topic_partition.topic].append(
            ListOffsetsPartition(partition_index=topic_partition.partition, timestamp=timestamp)
        )
    topics = tuple(ListOffsetsTopic(name=topic, partitions=tuple(listed)) for topic, listed in by_topic.items())
    return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=isolation_level, topics=topics)
