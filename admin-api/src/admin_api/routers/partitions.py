"""Partitions, their offsets and replicas, and reassignments, of which there are none."""

from __future__ import annotations

from typing import Annotated, Literal

from broker_contract.acls import Operation
from broker_contract.leadership import NO_NODE
from fastapi import FastAPI, Query

from admin_api import errors
from admin_api.needs import on_cluster, on_topic
from admin_api.paging import PageQuery
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.topics import (
    Partition,
    PartitionList,
    PartitionOffsets,
    Reassignment,
    ReassignmentList,
    Replica,
    ReplicaList,
)
from admin_api.storage import EARLIEST, LATEST
from admin_api.view import BrokerId, ClusterView, PartitionId, TopicName, View

OffsetType = Literal["earliest_and_latest"]


def add_operations(app: FastAPI) -> None:
    topics = f"{CLUSTER}/topics"
    partitions = f"{topics}/{{topic_name}}/partitions"
    partition = f"{partitions}/{{partition_id}}"
    operations = Operations(app, "Partition (v3)")
    described, of_cluster = on_topic(Operation.DESCRIBE), on_cluster(Operation.DESCRIBE)
    operations.get(
        f"{topics}/-/partitions/-/reassignment",
        "listKafkaReassignments",
        list_all_reassignments,
        needs=of_cluster,
    )
    operations.get(
        f"{partitions}/-/reassignment",
        "listKafkaTopicReassignments",
        list_topic_reassignments,
        needs=of_cluster & described,
    )
    operations.get(partitions, "listKafkaPartitions", list_partitions, needs=described)
    operations.get(partition, "getKafkaPartition", get_partition, needs=described)
    operations.get(f"{partition}/offset", "listKafkaPartitionOffsets", get_partition_offsets, needs=described)
    operations.get(
        f"{partition}/reassignment",
        "getKafkaReassignment",
        get_reassignment,
        needs=of_cluster & described,
    )
    operations = Operations(app, "Replica (v3)")
    operations.get(f"{partition}/replicas", "listKafkaReplicas", list_replicas, needs=described)
    operations.get(f"{partition}/replicas/{{broker_id}}", "getKafkaReplica", get_replica, needs=described)


async def list_partitions(view: ClusterView, topic_name: TopicName, paging: PageQuery) -> PartitionList:
    """List the partitions of a topic."""
    topic = await view.storage.topic(topic_name)
    leaders = view.leaders(topic_name, topic.partition_count)
    page = paging.cut(range(topic.partition_count), key=lambda partition: (partition,))
    return PartitionList(
        metadata=view.links.collection("topics", topic_name, "partitions", next_query=page.next_query),
        data=[_partition(view, topic_name, partition, leaders[partition]) for partition in page.rows],
    )


async def get_partition(view: ClusterView, topic_name: TopicName, partition_id: PartitionId) -> Partition:
    """Return one partition of a topic."""
    return _partition(view, topic_name, partition_id, await _leader(view, topic_name, partition_id))


async def get_partition_offsets(
    view: ClusterView,
    topic_name: TopicName,
    partition_id: PartitionId,
    offset_type: Annotated[OffsetType, Query(description="Which offsets; there is one kind.")] = "earliest_and_latest",
) -> PartitionOffsets:
    """Return the log start offset and the high watermark of a partition."""
    await _leader(view, topic_name, partition_id)
    earliest, latest = await view.storage.offsets(
        [(topic_name, partition_id, EARLIEST), (topic_name, partition_id, LATEST)]
    )
    errors.check(earliest.error_code)
    errors.check(latest.error_code)
    here = ("topics", topic_name, "partitions", partition_id)
    return PartitionOffsets(
        metadata=view.links.resource(
            *here, "offset", name=("topic", topic_name, "partition", partition_id, "offset_type", offset_type)
        ),
        cluster_id=view.cluster_id,
        topic_name=topic_name,
        partition_id=partition_id,
        earliest_offset=earliest.offset,
        latest_offset=latest.offset,
    )


async def list_replicas(view: ClusterView, topic_name: TopicName, partition_id: PartitionId) -> ReplicaList:
    """List the replicas of a partition: the broker that leads it."""
    leader = await _leader(view, topic_name, partition_id)
    return ReplicaList(
        metadata=view.links.collection("topics", topic_name, "partitions", partition_id, "replicas"),
        data=[] if leader == NO_NODE else [replica(view, topic_name, partition_id, leader)],
    )


async def get_replica(
    view: ClusterView, topic_name: TopicName, partition_id: PartitionId, broker_id: BrokerId
) -> Replica:
    """Return the replica of a partition on one broker."""
    if await _leader(view, topic_name, partition_id) != broker_id:
        raise errors.not_found("The partition has no replica on this broker.")
    return replica(view, topic_name, partition_id, broker_id)


async def list_all_reassignments(view: ClusterView) -> ReassignmentList:
    """List the reassignments under way: none, since storage has each partition once."""
    return ReassignmentList(metadata=view.links.collection("topics", "-", "partitions", "-", "reassignment"), data=[])


async def list_topic_reassignments(view: ClusterView, topic_name: TopicName) -> ReassignmentList:
    """List the reassignments of a topic under way: none, since storage has each partition once."""
    await view.storage.topic(topic_name)
    here = ("topics", topic_name, "partitions", "-", "reassignment")
    return ReassignmentList(metadata=view.links.collection(*here), data=[])


async def get_reassignment(view: ClusterView, topic_name: TopicName, partition_id: PartitionId) -> Reassignment:
    """Return the reassignment of a partition: no replica is added or removed, since storage has each partition once."""
    await _leader(view, topic_name, partition_id)
    of_partition = ("topics", topic_name, "partitions", partition_id)
    return Reassignment(
        metadata=view.links.resource(
            *of_partition, "reassignment", name=("topic", topic_name, "partition", partition_id, "reassignment")
        ),
        cluster_id=view.cluster_id,
        topic_name=topic_name,
        partition_id=partition_id,
        adding_replicas=[],
        removing_replicas=[],
        replicas=view.links.related(*of_partition, "replicas"),
    )


def replica(view: View, topic: str, partition: int, broker_id: int) -> Replica:
    """Return the one replica of a partition: it leads and is in sync by definition."""
    return Replica(
        metadata=view.links.resource(
            "topics",
            topic,
            "partitions",
            partition,
            "replicas",
            broker_id,
            name=("topic", topic, "partition", partition, "replica", broker_id),
        ),
        cluster_id=view.cluster_id,
        topic_name=topic,
        partition_id=partition,
        broker_id=broker_id,
        is_leader=True,
        is_in_sync=True,
        broker=view.links.related("brokers", broker_id),
    )


async def _leader(view: View, topic_name: str, partition_id: int) -> int:
    """Return the leader of a partition, which must exist; NO_NODE if no gateway is live."""
    topic = await view.storage.topic(topic_name)
    if partition_id >= topic.partition_count:
        raise errors.partition_not_found()
    return view.leaders(topic_name, topic.partition_count)[partition_id]


def _partition(view: View, topic: str, partition: int, leader: int) -> Partition:
    links, name = view.links, ("topic", topic, "partition", partition)
    metadata = links.resource("topics", topic, "partitions", partition, name=name)
    return Partition(
        metadata=metadata,
        cluster_id=view.cluster_id,
        topic_name=topic,
        partition_id=partition,
        leader=None if leader == NO_NODE else links.below(metadata, f"replicas/{leader}"),
        replicas=links.below(metadata, "replicas"),
        reassignment=links.below(metadata, "reassignment"),
    )
