"""Consumer groups and their members."""

from __future__ import annotations

from typing import Annotated

from broker_contract.acls import Operation
from fastapi import FastAPI, Query

from admin_api import errors, groups
from admin_api.needs import HIDES, on_group
from admin_api.paging import PageQuery
from admin_api.rights import GROUP
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.consumer_groups import (
    Consumer,
    ConsumerAssignment,
    ConsumerAssignmentList,
    ConsumerGroup,
    ConsumerGroupList,
    ConsumerList,
)
from admin_api.view import ClusterView, ConsumerId, GroupId, PartitionId, TopicName, View

#: Kafka's operations on a group.
GROUP_OPERATIONS = (
    *(Operation.ALTER_CONFIGS, Operation.DELETE, Operation.DESCRIBE),
    *(Operation.DESCRIBE_CONFIGS, Operation.READ),
)


def add_operations(app: FastAPI) -> None:
    group = f"{CLUSTER}/consumer-groups/{{consumer_group_id}}"
    consumer = f"{group}/consumers/{{consumer_id}}"
    assignment = f"{consumer}/assignments/{{topic_name}}/partitions/{{partition_id}}"
    operations = Operations(app, "Consumer Group (v3)")
    described = on_group(Operation.DESCRIBE)
    operations.get(f"{CLUSTER}/consumer-groups", "listKafkaConsumerGroups", list_consumer_groups, needs=HIDES)
    operations.get(group, "getKafkaConsumerGroup", get_consumer_group, needs=described)
    operations.get(f"{group}/consumers", "listKafkaConsumers", list_members, needs=described)
    operations.get(consumer, "getKafkaConsumer", get_member, needs=described)
    operations.get(f"{consumer}/assignments", "listKafkaConsumerAssignment", list_assignments, needs=described)
    operations.get(assignment, "getKafkaConsumerAssignment", get_assignment, needs=described)


async def list_consumer_groups(view: ClusterView, paging: PageQuery) -> ConsumerGroupList:
    """List the consumer groups in the order of their ids."""
    types = await groups.types(view.storage)
    page = await paging.fetch(
        types,
        lambda some: groups.describe_some(view.storage, {group_id: types[group_id] for group_id in some}),
        key=lambda group: (group.group_id,),
    )
    return ConsumerGroupList(
        metadata=view.links.collection("consumer-groups", next_query=page.next_query),
        data=[_group(view, group) for group in page.rows],
    )


async def get_consumer_group(
    view: ClusterView,
    consumer_group_id: GroupId,
    include_authorized_operations: Annotated[
        bool, Query(description="Whether to list the operations that the caller may do.")
    ] = False,
) -> ConsumerGroup:
    """Return the consumer group with the given id."""
    found = _group(view, await groups.describe(view.storage, consumer_group_id))
    if include_authorized_operations:
        may = await view.storage.rights.operations(GROUP, consumer_group_id, GROUP_OPERATIONS)
        found.authorized_operations = [operation.name for operation in may]
    return found


async def list_members(view: ClusterView, consumer_group_id: GroupId, paging: PageQuery) -> ConsumerList:
    """List the members of a consumer group."""
    group = await groups.describe(view.storage, consumer_group_id)
    page = paging.cut(group.members, key=lambda member: (member.member_id,))
    return ConsumerList(
        metadata=view.links.collection("consumer-groups", consumer_group_id, "consumers", next_query=page.next_query),
        data=[_consumer(view, consumer_group_id, member) for member in page.rows],
    )


async def get_member(view: ClusterView, consumer_group_id: GroupId, consumer_id: ConsumerId) -> Consumer:
    """Return one member of a consumer group."""
    group = await groups.describe(view.storage, consumer_group_id)
    return _consumer(view, consumer_group_id, _member(group, consumer_id))


async def list_assignments(
    view: ClusterView, consumer_group_id: GroupId, consumer_id: ConsumerId, paging: PageQuery
) -> ConsumerAssignmentList:
    """List the partitions assigned to a member."""
    group = await groups.describe(view.storage, consumer_group_id)
    page = paging.cut(_member(group, consumer_id).assigned, key=lambda pair: pair)
    here = ("consumer-groups", consumer_group_id, "consumers", consumer_id, "assignments")
    return ConsumerAssignmentList(
        metadata=view.links.collection(*here, next_query=page.next_query),
        data=[_assignment(view, consumer_group_id, consumer_id, *pair) for pair in page.rows],
    )


async def get_assignment(
    view: ClusterView,
    consumer_group_id: GroupId,
    consumer_id: ConsumerId,
    topic_name: TopicName,
    partition_id: PartitionId,
) -> ConsumerAssignment:
    """Return one partition assigned to a member."""
    group = await groups.describe(view.storage, consumer_group_id)
    if (topic_name, partition_id) not in _member(group, consumer_id).assigned:
        raise errors.not_found("This partition is not assigned to the consumer.")
    return _assignment(view, consumer_group_id, consumer_id, topic_name, partition_id)


def _member(group: groups.Group, consumer_id: str) -> groups.Member:
    for member in group.members:
        if member.member_id == consumer_id:
            return member
    raise errors.not_found("The consumer group has no consumer of this id.")


def _group(view: View, group: groups.Group) -> ConsumerGroup:
    group_id = group.group_id
    metadata = view.links.resource("consumer-groups", group_id, name=("consumer-group", group_id))
    return ConsumerGroup(
        metadata=metadata,
        cluster_id=view.cluster_id,
        consumer_group_id=group_id,
        is_simple=not group.protocol_type,
        partition_assignor=group.assignor,
        state=group.state,
        type=group.type,
        is_mixed_consumer_group=group.is_mixed,
        coordinator=view.broker_link(view.coordinator(group_id)),
        consumers=view.links.below(metadata, "consumers"),
        lag_summary=view.links.below(metadata, "lag-summary"),
        authorized_operations=[],
    )


def _consumer(view: View, group_id: str, member: groups.Member) -> Consumer:
    here = ("consumer-groups", group_id, "consumers", member.member_id)
    return Consumer(
        metadata=view.links.resource(*here, name=("consumer-group", group_id, "consumer", member.member_id)),
        cluster_id=view.cluster_id,
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=view.links.related(*here, "assignments"),
    )


def _assignment(view: View, group_id: str, consumer_id: str, topic: str, partition: int) -> ConsumerAssignment:
    links, of_topic = view.links, (topic, "partitions", partition)
    return ConsumerAssignment(
        metadata=links.resource(
            "consumer-groups",
            group_id,
            "consumers",
            consumer_id,
            "assignments",
            *of_topic,
            name=(
                *("consumer-group", group_id, "consumer", consumer_id),
                *("assignment", topic, "partition", partition),
            ),
        ),
        cluster_id=view.cluster_id,
        consumer_group_id=group_id,
        consumer_id=consumer_id,
        topic_name=topic,
        partition_id=partition,
        partition=links.related("topics", *of_topic),
        lag=links.related("consumer-groups", group_id, "lags", *of_topic),
    )
