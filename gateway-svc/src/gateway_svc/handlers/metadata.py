"""Metadata: the brokers, the controller, and the leader of each partition.

Brokers are the live gateways, with the address each advertises on the listener this request came in on. The one with
the lowest node id is the controller. Any gateway serves any partition: leadership, spread evenly, only tells clients
where to go. A partition has one replica, its leader, since storage keeps each partition once.

Topics: version 0 means all of them by an empty list, later versions by null. Unknown names are created when the
client allows it (before version 4 always) and auto.create.topics.enable is on. Topics are named by id from version 12
on; in 10 and 11 that is answered INVALID_REQUEST, as Apache Kafka does. An id counts with any name: Java sends
an empty one. If a request has any id, its names are ignored. Each topic is answered once. Apache Kafka does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_contract import topics_pb2
from broker_contract.leadership import partition_leaders
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.metadata import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol_lib.schema import ZERO_UUID
from service_chassis.steps import TaskSteps

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TopicContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import CLUSTER_NAME, ConfigType, Operation, Resource, ResourceType, topics
from gateway_svc.requests.rights import cluster_operations, topic_operations
from gateway_svc.requests.turns import PIECE, in_turns
from gateway_svc.storage.gateway_lease import Broker

_BY_ID_VERSION = 12
#: Kafka's type of a broker as a resource with configs.


async def handle(call: Call, request: MetadataRequest, context: TopicContext) -> tuple[MetadataResponse, int]:
    brokers = await context.membership.brokers(call.client.listener)
    found = await _topics(call, request, context, [each.node_id for each in brokers])
    operations = NO_AUTHORIZED_OPERATIONS
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(call.rights)
    return _response(context, brokers, found, operations), first_error(found)


def _response(
    context: TopicContext, brokers: Sequence[Broker], described: tuple[MetadataResponseTopic, ...], operations: int
) -> MetadataResponse:
    return MetadataResponse(
        brokers=tuple(MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port) for each in brokers),
        cluster_id=context.membership.cluster_id,
        controller_id=brokers[0].node_id,
        topics=described,
        cluster_authorized_operations=operations,
    )


async def _topics(
    call: Call, request: MetadataRequest, context: TopicContext, node_ids: Sequence[int]
) -> tuple[MetadataResponseTopic, ...]:
    asked = request.topics
    every = asked is None or (call.version == 0 and not asked)
    named = () if every or asked is None else asked
    if not every and not named:
        return ()
    if call.version < _BY_ID_VERSION and any(topic.topic_id != ZERO_UUID or topic.name is None for topic in named):
        return tuple(
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id, partitions=()
            )
            for topic in named
        )
    rights, shows_operations = call.rights, request.include_topic_authorized_operations
    named_topics = [(None, ZERO_UUID)] if every else _asked(call, request)
    denied: list[MetadataResponseTopic] = []
    if not rights.are_total and not every:
        named_topics, denied = _judged(call, context, named_topics)
    described: list[MetadataResponseTopic] = []
    steps = TaskSteps(PIECE)
    async for piece in in_turns(named_topics):
        for found in await _found(call, request, context, [] if every else piece, every=every):
            await steps.count(1 + len(found.leader_epochs))
            if not found.error_code:
                context.names.learn(found.id, found.name)
            if every and not rights.may(Operation.DESCRIBE, ResourceType.TOPIC, found.name):
                continue
            shown = shows_operations and found.error_code != ErrorCode.UNKNOWN_TOPIC_ID
            operations = topic_operations(rights, found.name) if shown else NO_AUTHORIZED_OPERATIONS
            described.append(_topic(found, node_ids, operations, call.version))
    return (*described, *denied)


def _judged(
    call: Call, context: TopicContext, asked: Sequence[tuple[str | None, bytes]]
) -> tuple[list[tuple[str | None, bytes]], list[MetadataResponseTopic]]:
    """Return the topics that the client may describe or that do not exist, and the rows of the others."""
    rights, names = call.rights, context.names
    allowed, denied = [], []
    for name, topic_id in asked:
        called = name if topic_id == ZERO_UUID else names.name_of(topic_id)
        if called is None or rights.may(Operation.DESCRIBE, ResourceType.TOPIC, called):
            allowed.append((name, topic_id))
        else:
            # Ids are no secret. Names and ids are never answered together: that would tell that the topic exists.
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            denied.append(MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=()))
    return allowed, denied


async def _found(
    call: Call,
    request: MetadataRequest,
    context: TopicContext,
    piece: Sequence[tuple[str | None, bytes]],
    *,
    every: bool,
) -> Sequence[topics_pb2.Topic]:
    """Return a piece of the topics, or all of them, from storage, which creates those that the client may create."""

    async def describe(refs: Sequence[tuple[str | None, bytes]], *, creates: bool) -> Sequence[topics_pb2.Topic]:
        answer = await context.topics.describe_topics(
            topics_pb2.DescribeTopicsRequest(
                correlation_id=call.correlation_id,
                all=every,
                topics=[_ref(name, topic_id) for name, topic_id in refs],
                auto_create=creates,
            )
        )
        return answer.topics

    rights = call.rights
    if (
        every
        or rights.are_total
        or not request.allow_auto_topic_creation
        or rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    ):
        return await describe(piece, creates=request.allow_auto_topic_creation)
    fixed = {(n, i) for n, i in piece if n is not None and not rights.may(Operation.CREATE, ResourceType.TOPIC, n)}
    left = iter(await describe([each for each in piece if each not in fixed], creates=True))
    kept = iter(await describe([each for each in piece if each in fixed], creates=False) if fixed else ())
    found = [next(kept) if each in fixed else next(left) for each in piece]
    missing = [
        (index, name)
        for index, (name, topic) in enumerate(zip((name for name, _ in piece), found, strict=True))
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and (name, ZERO_UUID) in fixed
    ]
    if missing and await _creates_topics(call, context):
        for index, name in missing:
            found[index] = topics_pb2.Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name or "")
    return found


async def _creates_topics(call: Call, context: TopicContext) -> bool:
    """Return whether the broker creates unknown topics."""
    asked = topics_pb2.ConfigResource(
        type=ConfigType.BROKER, name=str(context.membership.node_id), keys=["auto.create.topics.enable"]
    )
    answer = await context.topics.describe_configs(
        topics_pb2.DescribeConfigsRequest(
            correlation_id=call.correlation_id, asking_broker=context.membership.node_id, resources=[asked]
        )
    )
    return any(config.value == "true" for resource in answer.resources for config in resource.configs)


def _ref(name: str | None, topic_id: bytes) -> topics_pb2.TopicRef:
    if name is None or topic_id != ZERO_UUID:
        return topics_pb2.TopicRef(id=topic_id)
    return topics_pb2.TopicRef(name=name)


def _asked(call: Call, request: MetadataRequest) -> list[tuple[str | None, bytes]]:
    """Return the (name, id) of the topics that are answered, each once: those with an id, or all if none has one."""
    named = request.topics or ()
    ids = [bytes(topic.topic_id) for topic in named if topic.topic_id != ZERO_UUID]
    if ids and call.version >= _BY_ID_VERSION:
        return [(None, topic_id) for topic_id in dict.fromkeys(ids)]  # mutant: metadata-topic-ids
    return [(name, ZERO_UUID) for name in dict.fromkeys(topic.name for topic in named)]


def _topic(found: topics_pb2.Topic, node_ids: Sequence[int], operations: int, version: int) -> MetadataResponseTopic:
    leaders = partition_leaders(node_ids, found.name, len(found.leader_epochs))
    return MetadataResponseTopic(
        error_code=found.error_code,
        name=found.name or (None if version >= _BY_ID_VERSION else ""),
        topic_id=found.id or ZERO_UUID,
        is_internal=found.is_internal,
        partitions=tuple(
            partition_of(index, epoch, leader)
            for index, (epoch, leader) in enumerate(zip(found.leader_epochs, leaders, strict=True))
        ),
        topic_authorized_operations=operations,
    )


def partition_of(index: int, leader_epoch: int, leader: int) -> MetadataResponsePartition:
    """Return a partition with its one replica, its leader."""
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=leader_epoch,
        replica_nodes=(leader,),
        isr_nodes=(leader,),
    )


def resources(call: Call, request: MetadataRequest, context: TopicContext) -> Iterable[Resource]:
    """Return the topics named. Of all topics, those that may not be described are left out, not refused."""
    return topics(Operation.DESCRIBE, _asked(call, request), context.names)


async def refuse(
    call: Call, request: MetadataRequest, error: int, context: TopicContext
) -> tuple[MetadataResponse, int]:
    """Answer with the brokers, which every client may see, and no topic but those asked for, each with the error."""
    by_id = call.version >= _BY_ID_VERSION
    refused = tuple(
        MetadataResponseTopic(
            error_code=error,
            name=name if by_id else name or "",
            topic_id=topic_id,
            partitions=(),
        )
        for name, topic_id in _asked(call, request)
    )
    brokers = await context.membership.brokers(call.client.listener)
    return _response(context, brokers, refused, NO_AUTHORIZED_OPERATIONS), error


HANDLER = Handler(
    ApiKey.METADATA,
    0,
    13,
    handle,
    context=TopicContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
)
