"""Topics: create, delete, list, describe, more partitions, delete records, look up offsets."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from protocol_lib.client.cluster import NOT_THERE, Cluster
from protocol_lib.client.errors import check
from protocol_lib.client.metadata import Topic, TopicPartition
from protocol_lib.client.topic_offsets import OffsetAndTimestamp, list_offsets
from protocol_lib.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol_lib.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol_lib.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol_lib.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class TopicAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> bytes:
        """Create a topic; returns its id, zeros from brokers before 2.8. -1 is the broker's default.

        `assignment` names the nodes of each partition, and replaces both numbers."""
        placed = tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(nodes))
            for index, nodes in (assignment or {}).items()
        )
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if placed else partitions,
            replication_factor=-1 if placed else replication_factor,
            assignments=placed,
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=self._timeout_ms, validate_only=validate_only)

        async def attempt() -> bytes:
            response: CreateTopicsResponse = await self._cluster.controller_request(request)
            answer = response.topics[0]
            check(answer.error_code, name, answer.error_message)
            return answer.topic_id

        return await self._cluster.retrying(attempt)

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topics=(DeleteTopicState(name=name),), topic_names=(name,), timeout_ms=self._timeout_ms
        )

        async def attempt() -> None:
            response: DeleteTopicsResponse = await self._cluster.controller_request(request)
            answer = response.responses[0]
            check(answer.error_code, name, answer.error_message)

        await self._cluster.retrying(attempt, but=NOT_THERE)
        self._cluster.metadata.forget((name,))

    async def list(self, *, internal: bool = False) -> list[str]:
        """Return the names of the topics, in order; with `internal` also those that brokers keep for themselves."""
        response = await self._metadata(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return sorted(topic.name for topic in response.topics if topic.name and (internal or not topic.is_internal))

    async def partitions(self, names: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Return the partition indexes of these topics by name, by default of all that are not internal, in order.

        One request: a topic that is not there, or not yet, is left out. Raises KafkaError.
        """
        topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in sorted(names))

        async def attempt() -> dict[str, tuple[int, ...]]:
            response = await self._metadata(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
            return {
                topic.name: tuple(sorted(each.partition_index for each in topic.partitions))
                for topic in sorted(response.topics, key=lambda each: each.name or "")
                if topic.name and topic.partitions and (names is not None or not topic.is_internal)
            }

        return await self._cluster.retrying(attempt)

    async def describe(self, name: str) -> Topic:
        """Return a topic with its partitions, as it is now."""
        asked = MetadataRequestTopic(name=name)

        async def attempt() -> Topic:
            response = await self._metadata(MetadataRequest(topics=(asked,), allow_auto_topic_creation=False))
            check(response.topics[0].error_code, name)
            self._cluster.metadata.update(response, every_topic=False)
            return self._cluster.metadata.topics[name]

        return await self._cluster.retrying(attempt, but=NOT_THERE)

    async def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Raise the number of partitions to a total."""
        topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=self._timeout_ms, validate_only=validate_only)

        async def attempt() -> None:
            response: CreatePartitionsResponse = await self._cluster.controller_request(request)
            answer = response.results[0]
            check(answer.error_code, name, answer.error_message)

        await self._cluster.retrying(attempt, but=NOT_THERE)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete each partition's records below an offset, -1 for all that can be read. Returns where the logs begin
        then."""
        begins: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            left = {
                topic_partition: offset for topic_partition, offset in before.items() if topic_partition not in begins
            }
            for topic in {topic_partition.topic for topic_partition in left}:
                await self._cluster.topic(topic)
            by_node: dict[int, dict[str, list[DeleteRecordsPartition]]] = defaultdict(lambda: defaultdict(list))
            for topic_partition, offset in left.items():
                asked = DeleteRecordsPartition(partition_index=topic_partition.partition, offset=offset)
                by_node[self._cluster.leader(topic_partition)][topic_partition.topic].append(asked)
            for node_id, topics in by_node.items():
                listed = tuple(
                    DeleteRecordsTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
                )
                request = DeleteRecordsRequest(topics=listed, timeout_ms=self._timeout_ms)
                response: DeleteRecordsResponse = await self._cluster.request(node_id, request)
                for topic_answer in response.topics:
                    for answer in topic_answer.partitions:
                        topic_partition = TopicPartition(topic_answer.name, answer.partition_index)
                        check(answer.error_code, str(topic_partition))
                        begins[topic_partition] = answer.low_watermark

        await self._cluster.retrying(attempt)
        return begins

    async def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return each partition's first offset at or after a timestamp in milliseconds, or at a SpecialTimestamp."""
        return await list_offsets(self._cluster, timestamps, isolation_level=int(read_committed))

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.settings.request_timeout_ms

    async def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        response: MetadataResponse = await self._cluster.any_request(request)
        check(response.error_code, "Metadata")
        return response
