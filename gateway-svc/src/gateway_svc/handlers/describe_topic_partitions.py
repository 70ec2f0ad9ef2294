"""DescribeTopicPartitions: partitions of topics in name order, page by page (KIP-966).

A page has at most 2,000 partitions (Kafka's max.request.partition.size.limit), or fewer if the client says so. Its
cursor names the first partition of the next one. A cursor whose topic the request does not name is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker_contract import topics_pb2
from broker_contract.leadership import partition_leaders
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol_lib.schema import ZERO_UUID

from gateway_svc.handlers.metadata import partition_of
from gateway_svc.handlers.partitions import described
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TopicContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topics_called
from gateway_svc.requests.rights import Rights, topic_operations
from gateway_svc.requests.turns import in_turns

PAGE_PARTITIONS_MAX: Final = 2000


async def handle(
    call: Call, request: DescribeTopicPartitionsRequest, context: TopicContext
) -> tuple[DescribeTopicPartitionsResponse, int]:
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics if cursor is None or topic.name >= cursor.topic_name})
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)):
        return _refused(request, ErrorCode.INVALID_REQUEST)
    rights = call.rights
    allowed = [name for name in names if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)]
    denied = [_denied(name) for name in names if name not in set(allowed)] if len(allowed) < len(names) else []
    brokers = await context.membership.brokers(call.client.listener)
    node_ids = [each.node_id for each in brokers]
    page = _Page(min(PAGE_PARTITIONS_MAX, max(request.response_partition_limit, 1)), node_ids, rights)
    if request.topics:
        async for piece in in_turns(allowed):
            if not page.add_all(piece, await described(call, context.topics, piece), cursor):
                break
    else:
        found = [
            topic
            for topic in await described(call, context.topics, None)
            if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        page.add_all([topic.name for topic in found], found, cursor)
    topics = (*page.topics, *denied)
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=page.next)
    return response, first_error(topics)


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=())


class _Page:
    """One answer."""

    def __init__(self, limit: int, node_ids: Sequence[int], rights: Rights) -> None:
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        #: the first partition of the next page
        self.next: Cursor | None = None
        self._left = limit
        self._node_ids = node_ids
        self._rights = rights

    def add_all(self, names: Iterable[str], found: Iterable[topics_pb2.Topic], cursor: Cursor | None) -> bool:
        """Add topics from the cursor on while there is room; return whether there may be more."""
        for name, topic in zip(names, found, strict=True):
            if cursor is not None and name < cursor.topic_name:
                continue
            begin = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
            if not self.add(name, topic, begin):
                return False
        return True

    def add(self, name: str, found: topics_pb2.Topic, begin: int) -> bool:
        """Add a topic from its partition `begin` on while there is room; return whether there may be more."""
        if not self._left:
            self.next = Cursor(topic_name=name, partition_index=0)
            return False
        epochs = found.leader_epochs[begin : begin + self._left]
        leaders = partition_leaders(self._node_ids, name, found.partition_count)
        self._left -= len(epochs)
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=found.error_code,
                name=name,
                topic_id=found.id or ZERO_UUID,
                is_internal=found.is_internal,
                partitions=tuple(_partition(index, epoch, leaders[index]) for index, epoch in enumerate(epochs, begin)),
                topic_authorized_operations=topic_operations(self._rights, name),
            )
        )
        if begin + len(epochs) >= found.partition_count:
            return True
        self.next = Cursor(topic_name=name, partition_index=begin + len(epochs))
        return False


def _partition(index: int, leader_epoch: int, leader: int) -> DescribeTopicPartitionsResponsePartition:
    partition = partition_of(index, leader_epoch, leader)
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error_code,
        partition_index=index,
        leader_id=partition.leader_id,
        leader_epoch=leader_epoch,
        replica_nodes=partition.replica_nodes,
        isr_nodes=partition.isr_nodes,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=(),
    )


def _refused(request: DescribeTopicPartitionsRequest, code: int) -> tuple[DescribeTopicPartitionsResponse, int]:
    topics = tuple(
        DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=())
        for topic in request.topics
    )
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics), code


def resources(_call: Call, request: DescribeTopicPartitionsRequest, _context: object) -> Iterable[Resource]:
    """Return the topics named. Of all topics, those that may not be described are left out, not refused."""
    return topics_called(Operation.DESCRIBE, (topic.name for topic in request.topics))


def refuse(
    _call: Call, request: DescribeTopicPartitionsRequest, error: int, _context: object
) -> DescribeTopicPartitionsResponse:
    response, _ = _refused(request, error)
    return response


HANDLER = Handler(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    0,
    0,
    handle,
    context=TopicContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
)
