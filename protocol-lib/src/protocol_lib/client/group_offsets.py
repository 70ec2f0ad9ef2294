"""A group's committed offsets, kept by its coordinator: OffsetCommit, OffsetFetch."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import check
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol_lib.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

#: The last version that names topics, of both APIs.
_BY_NAME: Final = 9


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position: the offset of the next record to read, and a note of the committer."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Member:
    """Identity for commits of a group's offsets; the default is for groups without members."""

    member_id: str = ""
    generation_id: int = -1
    group_instance_id: str | None = None


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    member: Member,
    *,
    timeout_ms: int | None = None,
) -> None:
    """Commit offsets; KafkaError when any partition's was refused; the others are committed all the same."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for topic_partition, position in offsets.items():
        by_topic[topic_partition.topic].append(
            OffsetCommitRequestPartition(
                partition_index=topic_partition.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=tuple(OffsetCommitRequestTopic(name=topic, partitions=tuple(each)) for topic, each in by_topic.items()),
    )

    async def attempt(node_id: int) -> None:
        response: OffsetCommitResponse = await cluster.request(node_id, request, version_max=_BY_NAME)
        for topic in response.topics:
            for answer in topic.partitions:
                check(answer.error_code, f"{group_id}: {topic.name}-{answer.partition_index}")

    if offsets:
        await cluster.at_coordinator(group_id, attempt, timeout_ms=timeout_ms)


async def fetch_offsets(
    cluster: Cluster,
    group_id: str,
    wanted: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of these partitions that have one; `wanted` is None for all of the group."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic_partition in wanted or ():
        by_topic[topic_partition.topic].append(topic_partition.partition)
    names = None if wanted is None else by_topic.items()
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        topics=None
        if names is None
        else tuple(OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(each)) for topic, each in names),
    )
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None
        if names is None
        else tuple(OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(each)) for topic, each in names),
        groups=(group,),
        require_stable=require_stable,
    )

    async def attempt(node_id: int) -> dict[TopicPartition, OffsetAndMetadata]:
        response: OffsetFetchResponse = await cluster.request(node_id, request, version_max=_BY_NAME)
        answer = response.groups[0] if response.groups else response
        check(answer.error_code, group_id)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                topic_partition = TopicPartition(topic.name, each.partition_index)
                check(each.error_code, f"{group_id}: {topic_partition}")
                if each.committed_offset >= 0:
                    found[topic_partition] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        return found

    return await cluster.at_coordinator(group_id, attempt, timeout_ms=timeout_ms)
