"""OffsetFetch: the committed offsets of a group, from version 8 on of many groups.

Null topics mean all of them (from version 2 on). Before version 2 the answer has no top-level error: a group's error
is that of every partition; from then on a group with an error has no topics. `require_stable` is always met:
without transactions every committed offset is stable.
Member ids and epochs (9) are KIP-848's, checked when the group is a consumer group. Version 10 names topics by id, an
unknown one is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from broker_contract import groups_pb2, topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol_lib.schema import ZERO_UUID

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, group, topics
from gateway_svc.requests.services import Services

_TOP_LEVEL_ERROR_VERSION = 2
_MANY_GROUPS_VERSION = 8
_TOPIC_ID_VERSION = 10

_Offset = groups_pb2.FetchOffsetsResponse.Offset


async def handle(call: Call, request: OffsetFetchRequest, services: Services) -> tuple[OffsetFetchResponse, int]:
    groups = _groups(call, request)
    by_id = call.version >= _TOPIC_ID_VERSION
    ids = {}
    if by_id:
        asked = (bytes(topic.topic_id) for each in groups for topic in each.topics or ())
        ids = await services.names.existing(asked, call.correlation_id)
    answer = await services.storage.groups.fetch_offsets(
        groups_pb2.FetchOffsetsRequest(
            correlation_id=call.correlation_id, groups=[_wanted(group, ids, by_id) for group in groups]
        )
    )
    every = {found.topic for group in answer.groups for found in group.offsets}
    names = {name: topic_id for topic_id, name in ids.items()}
    if by_id and any(group.topics is None for group in groups):
        names |= await _ids_by_name(call, every - names.keys(), services)
    found = tuple(
        _group(group, result, ids, names, call.version) for group, result in zip(groups, answer.groups, strict=True)
    )
    return _response(call, found), first_error(found)


def _response(call: Call, found: tuple[OffsetFetchResponseGroup, ...]) -> OffsetFetchResponse:
    if call.version >= _MANY_GROUPS_VERSION:
        return OffsetFetchResponse(groups=found)
    return _one_group_response(found[0], call.version)


def _one_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics
        ),
    )


def _wanted(group: OffsetFetchRequestGroup, ids: dict[bytes, str], by_id: bool) -> groups_pb2.FetchOffsetsRequest.Group:
    partitions = [
        groups_pb2.TopicPartition(topic=name, partition=index)
        for topic in group.topics or ()
        if (name := ids.get(topic.topic_id) if by_id else topic.name) is not None
        for index in topic.partition_indexes
    ]
    return groups_pb2.FetchOffsetsRequest.Group(
        group_id=group.group_id,
        all=group.topics is None,
        partitions=partitions,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
    )


async def _ids_by_name(call: Call, names: set[str], services: Services) -> dict[str, bytes]:
    if not names:
        return {}
    answer = await services.storage.topics.describe_topics(
        topics_pb2.DescribeTopicsRequest(
            correlation_id=call.correlation_id, topics=[topics_pb2.TopicRef(name=name) for name in sorted(names)]
        )
    )
    return {topic.name: topic.id for topic in answer.topics if not topic.error_code}


def _group(
    group: OffsetFetchRequestGroup,
    result: groups_pb2.FetchOffsetsResponse.Group,
    ids: dict[bytes, str],
    names: dict[str, bytes],
    version: int,
) -> OffsetFetchResponseGroup:
    by_id = version >= _TOPIC_ID_VERSION
    topics: list[OffsetFetchResponseTopics] = []
    offsets = iter(result.offsets)
    if result.error_code and version >= _TOP_LEVEL_ERROR_VERSION:
        pass  # The group's error says it all.
    elif group.topics is None:
        for name, found in groupby(offsets, key=lambda each: each.topic):
            if not by_id or name in names:
                topics.append(_topic(name, names.get(name, ZERO_UUID), list(found)))
    else:
        for topic in group.topics:
            name = ids.get(topic.topic_id) if by_id else topic.name
            if name is None:
                unknown = [
                    _Offset(partition=index, offset=-1, leader_epoch=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                    for index in topic.partition_indexes
                ]
                topics.append(_topic("", topic.topic_id, unknown))
            elif result.error_code:
                nothing = [_Offset(partition=index, offset=-1, leader_epoch=-1) for index in topic.partition_indexes]
                topics.append(_topic(name, topic.topic_id, nothing))
            else:
                topics.append(_topic(name, topic.topic_id, [next(offsets) for _ in topic.partition_indexes]))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(topics), error_code=result.error_code)


def _topic(name: str, topic_id: bytes, offsets: Sequence[_Offset]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=each.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in offsets
        ),
    )


def _one_group_response(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    told_per_partition = group.error_code if version < _TOP_LEVEL_ERROR_VERSION else 0
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=told_per_partition or each.error_code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )


def _groups(call: Call, request: OffsetFetchRequest) -> Sequence[OffsetFetchRequestGroup]:
    return request.groups if call.version >= _MANY_GROUPS_VERSION else (_one_group(request),)


def resources(call: Call, request: OffsetFetchRequest, services: Services) -> Iterable[Resource]:
    """Return the groups and the topics named. Of all topics, those that may not be described are left out."""
    groups = _groups(call, request)
    named = ((topic.name, bytes(topic.topic_id)) for each in groups for topic in each.topics or ())
    return [
        *(group(Operation.DESCRIBE, each.group_id) for each in groups),
        *topics(Operation.DESCRIBE, named, services.names),
    ]


def refuse(call: Call, request: OffsetFetchRequest, error: int, _services: Services) -> None:
    """Answer each group with the error, before version 2 each partition."""
    refused = tuple(
        OffsetFetchResponseGroup(
            group_id=each.group_id,
            topics=tuple(
                _topic(
                    topic.name,
                    topic.topic_id,
                    [_Offset(partition=index, offset=-1, leader_epoch=-1) for index in topic.partition_indexes],
                )
                for topic in each.topics or ()
            )
            if call.version < _TOP_LEVEL_ERROR_VERSION
            else (),
            error_code=error,
        )
        for each in _groups(call, request)
    )
    call.answer(_response(call, refused), error)


HANDLER = Handler(ApiKey.OFFSET_FETCH, 0, 10, handle, resources=resources, refuse=refuse)
