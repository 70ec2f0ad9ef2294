"""The client's picture of the cluster: its brokers, and the leader of each partition.

Pure; `Cluster` keeps it up to date.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from protocol_lib.client.settings import Address
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.metadata import MetadataResponse, MetadataResponseTopic
from protocol_lib.schema import ZERO_UUID

NO_LEADER = -1


class TopicPartition(NamedTuple):
    """One log: a topic's partition, by its index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster last described it; `error_code` says why it has no partitions."""

    name: str
    topic_id: bytes
    is_internal: bool
    error_code: ErrorCode
    partitions: Mapping[int, Partition]
    #: indexes of the partitions, in order
    indexes: tuple[int, ...]


class Metadata:
    """The newest answers put together. A partition's leader epoch never goes back while the topic is the same one."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}

    def update(self, response: MetadataResponse, *, every_topic: bool) -> None:
        """Merge an answer; with `every_topic` the topics that it does not name are gone."""
        if response.brokers:
            self.nodes = {
                broker.node_id: Node(broker.node_id, Address(broker.host, broker.port), broker.rack)
                for broker in response.brokers
            }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        described = {topic.name: self._merged(topic) for topic in response.topics if topic.name is not None}
        self.topics = described if every_topic else {**self.topics, **described}
        self.names = {topic.topic_id: name for name, topic in self.topics.items() if topic.topic_id != ZERO_UUID}

    def forget(self, topics: Iterable[str]) -> None:
        for name in topics:
            gone = self.topics.pop(name, None)
            if gone is not None:
                self.names.pop(gone.topic_id, None)

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Return the node that leads a partition, None when no leader is known."""
        partition = self.partition(topic_partition)
        if partition is None or partition.leader_id not in self.nodes:
            return None
        return partition.leader_id

    def partitions(self, topic: str) -> tuple[int, ...]:
        """Return the indexes of a topic's partitions in order, none when it is not known."""
        found = self.topics.get(topic)
        return () if found is None else found.indexes

    def topic_id(self, topic: str) -> bytes:
        found = self.topics.get(topic)
        return ZERO_UUID if found is None else found.topic_id

    def set_leader(self, topic_partition: TopicPartition, leader_id: int, leader_epoch: int) -> None:
        """Note the new leader that a broker named in an error (KIP-951)."""
        old = self.partition(topic_partition)
        if old is None or leader_epoch <= old.leader_epoch or leader_id not in self.nodes:
            return
        topic = self.topics[topic_partition.topic]
        new = Partition(old.index, leader_id, leader_epoch, old.replicas, old.in_sync_replicas)
        self.topics[topic.name] = replace(topic, partitions={**topic.partitions, old.index: new})

    def _merged(self, described: MetadataResponseTopic) -> Topic:
        name = described.name or ""
        known = self.topics.get(name)
        if known is not None and known.topic_id != described.topic_id:
            known = None  # it was deleted and created again
        partitions: dict[int, Partition] = {}
        for each in described.partitions:
            new = Partition(each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
            old = None if known is None else known.partitions.get(new.index)
            partitions[new.index] = old if old is not None and old.leader_epoch > new.leader_epoch >= 0 else new
        if (
            not partitions
            and known is not None
            and described.error_code
            and ErrorCode.of(described.error_code).is_retriable
        ):
            partitions = dict(known.partitions)  # better than nothing until the cluster can say
        return Topic(
            name,
            described.topic_id,
            described.is_internal,
            ErrorCode.of(described.error_code),
            partitions,
            tuple(sorted(partitions)),
        )
