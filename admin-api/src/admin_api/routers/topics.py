"""Topics: list, look at, enlarge; create and delete one or many together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

from broker_contract import topics_pb2
from broker_contract.acls import CLUSTER_NAME, Operation
from fastapi import FastAPI, Query, Request, Response
from service_chassis.http import audit

from admin_api import errors
from admin_api.needs import HIDES, Calls, in_body, on_topic
from admin_api.paging import PageQuery
from admin_api.rights import CLUSTER as CLUSTER_RESOURCE
from admin_api.rights import TOPIC, Action, refusal
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.topics import (
    CreatedTopic,
    CreateTopicRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    NewTopic,
    Topic,
    TopicFailure,
    TopicList,
    TopicsCreation,
    TopicsDeletion,
    UpdatePartitionCountRequest,
)
from admin_api.storage import StorageCalls
from admin_api.view import ClusterView, TopicName, View

#: Every partition is stored once: durability is storage's volume, not a second copy of ours.
REPLICATION_FACTOR = 1
#: Kafka's operations on a topic.
TOPIC_OPERATIONS = (
    *(Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE, Operation.DELETE),
    *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ, Operation.WRITE),
)
#: Topics in one call to storage, which creates them with two syncs. It answers with some thirty configurations of each.
_PIECE = 100


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Topic (v3)")
    operations.get(f"{CLUSTER}/topics", "listKafkaTopics", list_topics, needs=HIDES)
    operations.add(
        "POST",
        f"{CLUSTER}/topics",
        "createKafkaTopic",
        create_topic,
        status_code=201,
        responses={
            200: {"model": Topic, "description": "Only checked (validate_only): it could be created."},
            201: {"description": "Created.", "headers": {"Location": {"schema": {"type": "string"}}}},
        },
        needs=in_body("CREATE cluster or topic"),
    )
    operations.get(f"{CLUSTER}/topics/{{topic_name}}", "getKafkaTopic", get_topic, needs=on_topic(Operation.DESCRIBE))
    operations.add(
        "PATCH",
        f"{CLUSTER}/topics/{{topic_name}}",
        "updatePartitionCountKafkaTopic",
        enlarge_topic,
        needs=on_topic(Operation.ALTER),
    )
    operations.change(
        "DELETE", f"{CLUSTER}/topics/{{topic_name}}", "deleteKafkaTopic", delete_topic, needs=on_topic(Operation.DELETE)
    )
    operations = Operations(app, "Topics (api/v1)")
    operations.add(
        "POST", "/api/v1/topics:create", "createTopics", create_topics, needs=in_body("CREATE cluster or topic")
    )
    operations.add("POST", "/api/v1/topics:delete", "deleteTopics", delete_topics, needs=in_body("DELETE topic"))


async def list_topics(view: ClusterView, paging: PageQuery) -> TopicList:
    """List the topics in the order of their names."""
    page = paging.cut(await view.storage.topics(), key=lambda topic: (topic.name,))
    return TopicList(
        metadata=view.links.collection("topics", next_query=page.next_query),
        data=[_topic(view, topic.name, topic.partition_count, is_internal=topic.is_internal) for topic in page.rows],
    )


async def create_topic(view: ClusterView, given: CreateTopicRequest, request: Request, response: Response) -> Topic:
    """Create a topic, or with validate_only check whether it could be created."""
    audit.note(request, topic=given.topic_name, validate_only=given.validate_only)
    await view.storage.rights.require_any(*_creation(given.topic_name))
    created = await view.storage.create_topic(_new_topic(given), validate_only=given.validate_only)
    response.status_code = 200 if given.validate_only else 201
    topic = _topic(view, given.topic_name, created.partition_count, replication_factor=created.replication_factor)
    response.headers["location"] = topic.metadata.self_url
    return topic


async def get_topic(
    view: ClusterView,
    topic_name: TopicName,
    include_authorized_operations: Annotated[
        bool, Query(description="Whether to list the operations that the caller may do.")
    ] = False,
) -> Topic:
    """Return the topic with the given name."""
    topic = await view.storage.topic(topic_name)
    found = _topic(view, topic.name, topic.partition_count, is_internal=topic.is_internal)
    if include_authorized_operations:
        may = await view.storage.rights.operations(TOPIC, topic_name, TOPIC_OPERATIONS)
        found.authorized_operations = [operation.name for operation in may]
    return found


async def enlarge_topic(
    view: ClusterView, topic_name: TopicName, given: UpdatePartitionCountRequest, request: Request
) -> Topic:
    """Add partitions to the topic. Records with the same key may go to other partitions from then on."""
    audit.note(request, partitions_count=given.partitions_count)
    await view.storage.create_partitions(topic_name, given.partitions_count)
    topic = await view.storage.topic(topic_name)
    return _topic(view, topic.name, topic.partition_count, is_internal=topic.is_internal)


async def delete_topic(view: ClusterView, topic_name: TopicName) -> None:
    """Delete the topic with its records."""
    await view.storage.delete_topic(topic_name)


async def create_topics(calls: Calls, given: CreateTopicsRequest, request: Request) -> TopicsCreation:
    """Create topics, together. The answer lists those that are created, and those that are not."""
    named = Counter(topic.topic_name for topic in given.topics)
    audit.note(request, topics=len(named), first=next(iter(named), None), validate_only=given.validate_only)
    twice = [_failure(name, errors.refused("Duplicate topic name.")) for name, count in named.items() if count > 1]
    answer = TopicsCreation(created=[], failures=twice)
    wanted: list[topics_pb2.NewTopic] = []
    refused = await _not_creatable(calls, named)
    for topic in given.topics:
        if named[topic.topic_name] == 1:
            if topic.topic_name in refused:
                answer.failures.append(_failure(topic.topic_name, refusal(TOPIC)))
                continue
            try:
                wanted.append(_new_topic(topic))
            except errors.ApiError as error:
                answer.failures.append(_failure(topic.topic_name, error))
    for at in range(0, len(wanted), _PIECE):
        piece = wanted[at : at + _PIECE]
        results: Sequence[topics_pb2.CreatedTopic | errors.ApiError]
        try:
            results = await calls.create_topics(piece, validate_only=given.validate_only)
        except errors.ApiError as error:
            if not answer.created:
                raise
            results = [error] * len(piece)  # mutant: topics-created-before
        for new, result in zip(piece, results, strict=True):
            if isinstance(result, errors.ApiError):
                answer.failures.append(_failure(new.name, result))
            else:
                count, factor = result.partition_count, result.replication_factor
                created = CreatedTopic(topic_name=new.name, partitions_count=count, replication_factor=factor)
                answer.created.append(created)
    return answer


async def delete_topics(calls: Calls, given: DeleteTopicsRequest, request: Request) -> TopicsDeletion:
    """Delete topics with their records, together. The answer lists those that are deleted, and those that are not."""
    names = list(dict.fromkeys(given.topic_names))
    audit.note(request, topics=len(names), first=names[0] if names else None)
    may = await calls.rights.only(Operation.DELETE, TOPIC, names)
    refused = {name: refusal(TOPIC) for name in names if name not in may}
    if refused:
        calls.rights.note([(Operation.DELETE, TOPIC, name) for name in refused])
    refused |= await calls.delete_topics([name for name in names if name in may])
    failures = [_failure(name, error) for name, error in refused.items()]
    return TopicsDeletion(deleted=[name for name in names if name not in refused], failures=failures)


def _creation(name: str) -> tuple[Action, Action]:
    """Return the rights of which one is needed to create a topic."""
    return (Operation.CREATE, CLUSTER_RESOURCE, CLUSTER_NAME), (Operation.CREATE, TOPIC, name)


async def _not_creatable(calls: StorageCalls, names: Iterable[str]) -> set[str]:
    """Return the names of topics that the sender may not create."""
    distinct = list(names)
    may = await calls.rights.allowed([_creation("")[0], *[_creation(name)[1] for name in distinct]])
    refused = {name for name, may_create in zip(distinct, may[1:], strict=True) if not (may[0] or may_create)}
    if refused:
        calls.rights.note([_creation(name)[1] for name in sorted(refused)])
    return refused


def _failure(name: str, error: errors.ApiError) -> TopicFailure:
    return TopicFailure(topic_name=name, error_code=error.error_code, message=error.message)


def _new_topic(given: NewTopic) -> topics_pb2.NewTopic:
    """Return the request as Kafka's client sends it. Storage checks the fields that Confluent leaves to Kafka."""
    if given.partitions_count is not None and given.partitions_count < 1:
        raise errors.refused("Number of partitions was set to an invalid non-positive value.")
    if given.replication_factor is not None and given.replication_factor < 1 and given.replication_factor != -1:
        raise errors.refused("Replication factor must be larger than 0, or -1 to use the default.")
    names = [config.name for config in given.configs]
    if len(set(names)) != len(names):
        raise errors.refused("A configuration is given twice.")
    partitions = [assignment.partition_id for assignment in given.replicas_assignments]
    if len(set(partitions)) != len(partitions):
        raise errors.refused("The replicas of a partition are given twice.")
    return topics_pb2.NewTopic(
        name=given.topic_name,
        # Kafka counts partitions and replicas itself when they are assigned, and then refuses a number.
        partition_count=-1 if partitions or given.partitions_count is None else given.partitions_count,
        replication_factor=-1 if partitions or given.replication_factor is None else given.replication_factor,
        configs=[topics_pb2.ConfigEntry(name=config.name, value=config.value) for config in given.configs],
        assignments=[
            topics_pb2.Assignment(partition=assignment.partition_id, broker_ids=assignment.broker_ids)
            for assignment in given.replicas_assignments
        ],
    )


def _topic(
    view: View,
    name: str,
    partitions_count: int,
    *,
    is_internal: bool = False,
    replication_factor: int = REPLICATION_FACTOR,
) -> Topic:
    links = view.links
    metadata = links.resource("topics", name, name=("topic", name))
    return Topic(
        metadata=metadata,
        cluster_id=view.cluster_id,
        topic_name=name,
        is_internal=is_internal,
        replication_factor=replication_factor,
        partitions_count=partitions_count,
        partitions=links.below(metadata, "partitions"),
        configs=links.below(metadata, "configs"),
        partition_reassignments=links.below(metadata, "partitions/-/reassignment"),
        authorized_operations=[],
    )
