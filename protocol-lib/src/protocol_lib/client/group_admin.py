"""Groups: list, describe, delete, and their committed offsets."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import BY_CODE, UnsupportedByBrokerError, broker_error, check
from protocol_lib.client.group_offsets import Member, OffsetAndMetadata, commit_offsets, fetch_offsets
from protocol_lib.client.metadata import Node, TopicPartition
from protocol_lib.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol_lib.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol_lib.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from protocol_lib.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol_lib.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol_lib.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

_DEAD = "Dead"
_NOT_FOUND = BY_CODE[ErrorCode.GROUP_ID_NOT_FOUND]


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    #: "Stable", "Empty", …; empty from brokers before 2.6
    state: str
    #: "classic", "consumer", …; empty from brokers before 3.8
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    #: name of the assignor
    protocol: str
    members: tuple[MemberDescription, ...]
    #: "classic", or "consumer" for KIP-848
    type: str = "classic"
    #: the broker that answered, None if the metadata did not name it
    coordinator: Node | None = None


class GroupAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Return the groups of every broker by id, in any of these states and of these types; by default all."""
        request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))

        async def attempt() -> list[GroupListing]:
            await self._cluster.refresh()
            found = []
            for node_id in self._cluster.metadata.nodes:
                response: ListGroupsResponse = await self._cluster.request(node_id, request)
                check(response.error_code, "ListGroups")
                found += [
                    GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type)
                    for each in response.groups
                ]
            return sorted(found, key=lambda each: each.group_id)

        return await self._cluster.retrying(attempt)

    async def describe(self, group_id: str) -> GroupDescription:
        """Describe a group of either protocol; GroupIdNotFoundError when there is none.

        As Kafka's AdminClient asks: brokers know a KIP-848 group by ConsumerGroupDescribe alone, and a classic one by
        DescribeGroups.
        """
        try:
            return await self._describe_classic(group_id)
        except _NOT_FOUND as fault:
            try:
                return await self._describe_consumer(group_id)
            except UnsupportedByBrokerError:
                raise fault from None

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        request = DescribeGroupsRequest(groups=(group_id,))

        async def attempt(node_id: int) -> GroupDescription:
            response: DescribeGroupsResponse = await self._cluster.request(node_id, request)
            group = response.groups[0]
            check(group.error_code, group_id, group.error_message)
            if group.group_state == _DEAD:  # how brokers before 4.0 say that there is none
                raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
            members = tuple(_member(each, group.protocol_type) for each in group.members)
            node = self._cluster.metadata.nodes.get(node_id)
            return GroupDescription(
                group_id, group.group_state, group.protocol_type, group.protocol_data, members, coordinator=node
            )

        return await self._cluster.at_coordinator(group_id, attempt)

    async def _describe_consumer(self, group_id: str) -> GroupDescription:
        request = ConsumerGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False)

        async def attempt(node_id: int) -> GroupDescription:
            response: ConsumerGroupDescribeResponse = await self._cluster.request(node_id, request)
            group = response.groups[0]
            check(group.error_code, group_id, group.error_message)
            members = tuple(
                MemberDescription(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host,
                    frozenset(
                        TopicPartition(topic.topic_name, number)
                        for topic in each.assignment.topic_partitions
                        for number in topic.partitions
                    ),
                )
                for each in group.members
            )
            node = self._cluster.metadata.nodes.get(node_id)
            return GroupDescription(
                group_id, group.group_state, PROTOCOL_TYPE, group.assignor_name, members, "consumer", node
            )

        return await self._cluster.at_coordinator(group_id, attempt)

    async def delete(self, group_id: str) -> None:
        """Delete a group without members; NonEmptyGroupError when it has some."""
        request = DeleteGroupsRequest(groups_names=(group_id,))

        async def attempt(node_id: int) -> None:
            response: DeleteGroupsResponse = await self._cluster.request(node_id, request)
            answer = response.results[0]
            check(answer.error_code, group_id, answer.error_message)

        await self._cluster.at_coordinator(group_id, attempt)

    async def remove_member(self, group_id: str, *, member_id: str = "", group_instance_id: str | None = None) -> None:
        """Make a member leave, a static one by its group instance id."""
        identity = MemberIdentity(member_id=member_id, group_instance_id=group_instance_id, reason="removed")
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id, members=(identity,))

        async def attempt(node_id: int) -> None:
            response: LeaveGroupResponse = await self._cluster.request(node_id, request)
            check(response.error_code, group_id)
            for answer in response.members:
                check(answer.error_code, f"{group_id}: {group_instance_id or member_id}")

        await self._cluster.at_coordinator(group_id, attempt)

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions, by default of all that have one."""
        wanted = None if partitions is None else list(partitions)
        return await fetch_offsets(self._cluster, group_id, wanted)

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Commit for a group without members."""
        positions = {
            topic_partition: OffsetAndMetadata(position) if isinstance(position, int) else position
            for topic_partition, position in offsets.items()
        }
        await commit_offsets(self._cluster, group_id, positions, Member())

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets, of topics to which no member is subscribed."""
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic_partition in partitions:
            topics.setdefault(topic_partition.topic, []).append(
                OffsetDeleteRequestPartition(partition_index=topic_partition.partition)
            )
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=tuple(OffsetDeleteRequestTopic(name=name, partitions=tuple(each)) for name, each in topics.items()),
        )

        async def attempt(node_id: int) -> None:
            response: OffsetDeleteResponse = await self._cluster.request(node_id, request)
            check(response.error_code, group_id)
            for topic in response.topics:
                for answer in topic.partitions:
                    check(answer.error_code, f"{group_id}: {topic.name}-{answer.partition_index}")

        await self._cluster.at_coordinator(group_id, attempt)


def _member(described: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    topic_partitions: frozenset[TopicPartition] = frozenset()
    if protocol_type == PROTOCOL_TYPE and described.member_assignment:
        try:
            assigned = decode_assignment(described.member_assignment).assigned_partitions
            topic_partitions = frozenset(
                TopicPartition(each.topic, number) for each in assigned for number in each.partitions
            )
        except DecodeError:
            pass  # the member's own format
    return MemberDescription(
        described.member_id, described.group_instance_id, described.client_id, described.client_host, topic_partitions
    )
