"""OffsetFetch: the committed offsets of a group, from version 8 on of many groups.

Null topics mean all of them (from version 2 on). Before version 2 the answer has no top-level error: a group's error
is that of every partition. From then on a group with an error has no topics. With `require_stable` (7, KIP-447) a
partition is UNSTABLE_OFFSET_COMMIT while an open transaction has committed its offset. Member ids and epochs (9) are
KIP-848's, checked when the group is a consumer group. Version 10 names topics by id, an unknown one is
UNKNOWN_TOPIC_ID.

A partition that a group names twice is answered twice, as Apache Kafka does, up to a thousand names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

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
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, group, topics
from gateway_svc.requests.turns import PIECE, REPEATED_MAX, AnswerMemory, in_turns

_TOP_LEVEL_ERROR_VERSION = 2
_MANY_GROUPS_VERSION = 8
_TOPIC_ID_VERSION = 10

#: Groups that storage is asked for without a turn for others: each may have thousands of offsets.
_GROUPS_PIECE: Final = 1
#: Bytes that a partition's row takes, without its metadata.
_ROW_BYTES: Final = 200

_Offset = groups_pb2.FetchOffsetsResponse.Offset

#: The name or id of a topic, and the number of a partition.
_Key = tuple[bytes | str, int]


async def handle(call: Call, request: OffsetFetchRequest, context: GroupContext) -> tuple[OffsetFetchResponse, int]:
    groups = _groups(call, request)
    ids = {}
    if call.version >= _TOPIC_ID_VERSION:
        asked = (bytes(topic.topic_id) for each in groups for topic in each.topics or ())
        ids = await context.names.existing(asked, call.correlation_id)
    memory = AnswerMemory(call.size)
    found = []
    async for pieces in in_turns(groups, _GROUPS_PIECE):
        for each in pieces:
            fetch = _GroupFetch(call, each, ids, context, memory, require_stable=request.require_stable)
            found.append(await fetch.answer())
    return _response(call, found), first_error(found)


def _response(call: Call, found: Sequence[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if call.version >= _MANY_GROUPS_VERSION:
        return OffsetFetchResponse(groups=tuple(found))
    # The rows of the only group are those of the older versions: `_row` and `_topic` make them so.
    (group,) = found
    topics: Any = group.topics
    return OffsetFetchResponse(error_code=group.error_code, topics=topics)


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


class _GroupFetch:
    """The offsets of one group, asked of storage a piece of the partitions at a time."""

    def __init__(
        self,
        call: Call,
        group: OffsetFetchRequestGroup,
        ids: Mapping[bytes, str],
        context: GroupContext,
        memory: AnswerMemory,
        *,
        require_stable: bool,
    ) -> None:
        self._call = call
        self._group = group
        self._ids = ids
        self._context = context
        self._memory = memory
        self._require_stable = require_stable

    async def answer(self) -> OffsetFetchResponseGroup:
        if not self._call.rights.may(Operation.DESCRIBE, ResourceType.GROUP, self._group.group_id):
            return _refused(self._call, self._group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        topics: Sequence[Any] = ()
        if self._group.topics is None:
            error, offsets = await self._ask(())
            if not error:
                topics = await self._all_topics(offsets)
        else:
            error, topics = await self._named_topics(self._group.topics)
        return OffsetFetchResponseGroup(group_id=self._group.group_id, topics=tuple(topics), error_code=error)

    async def _all_topics(self, offsets: Sequence[_Offset]) -> list[Any]:
        by_id = self._call.version >= _TOPIC_ID_VERSION
        names = {name: topic_id for topic_id, name in self._ids.items()}
        if by_id:
            names |= await _ids_by_name(self._call, {each.topic for each in offsets} - names.keys(), self._context)
        rows: dict[str, list[Any]] = {}
        async for piece in in_turns(offsets):
            for each in piece:
                if (not by_id or each.topic in names) and self._may_describe(each.topic):
                    rows.setdefault(each.topic, []).append(_row(self._call.version, each))
        return [_topic(self._call.version, name, names.get(name, ZERO_UUID), found) for name, found in rows.items()]

    def _may_describe(self, topic: str) -> bool:
        return self._call.rights.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    async def _named_topics(self, asked: Sequence[OffsetFetchRequestTopics]) -> tuple[int, Sequence[Any]]:
        """Return the group's error, and a row for each partition as often as it is named, up to REPEATED_MAX names."""
        version, error = self._call.version, 0
        by_id = version >= _TOPIC_ID_VERSION
        names = [self._ids.get(topic.topic_id) if by_id else topic.name for topic in asked]
        keys = [
            [(bytes(topic.topic_id) if name is None else name, index) for index in topic.partition_indexes]
            for name, topic in zip(names, asked, strict=True)
        ]
        partitions = dict.fromkeys(chain.from_iterable(keys))
        rows: dict[_Key, Any] = {}
        async for piece in in_turns(tuple(partitions) or (None,)):
            wanted = [
                (each[0], each[1])
                for each in piece
                if each is not None and isinstance(each[0], str) and self._may_describe(each[0])
            ]
            if not error:
                error, found = await self._ask(wanted)
            if error and version >= _TOP_LEVEL_ERROR_VERSION:
                return error, ()  # the group's error says it all
            offsets = iter(found)
            for each in piece:
                if each is None:
                    continue
                offset = _Offset(partition=each[1], offset=-1, leader_epoch=-1, error_code=error)
                if not isinstance(each[0], str):
                    offset.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                elif not self._may_describe(each[0]):
                    offset.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif not error:
                    offset = next(offsets)
                rows[each] = _row(version, offset)
        topics: list[Any] = []
        count = sum(map(len, keys))
        if len(rows) < count:
            if count > REPEATED_MAX:
                keys = _once(keys)
            else:  # the rows are there once, but each is sent as often as it is named
                self._memory.take(sum(_ROW_BYTES + len(rows[key].metadata or "") for named in keys for key in named))
        async for piece_of_topics in in_turns(list(zip(names, asked, keys, strict=True)), 5 * PIECE):
            for name, topic, named in piece_of_topics:
                topics.append(_topic(version, name or "", topic.topic_id, [rows[key] for key in named]))
        return error, topics

    async def _ask(self, partitions: Sequence[tuple[str, int]]) -> tuple[int, Sequence[_Offset]]:
        """Return the group's error and the offsets of these partitions, or of all if the client wants all."""
        group = self._group
        wanted = groups_pb2.FetchOffsetsRequest.Group(
            group_id=group.group_id,
            all=group.topics is None,
            partitions=[groups_pb2.TopicPartition(topic=name, partition=index) for name, index in partitions],
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
        answer = await self._context.groups.fetch_offsets(
            groups_pb2.FetchOffsetsRequest(
                correlation_id=self._call.correlation_id, groups=[wanted], require_stable=self._require_stable
            )
        )
        (result,) = answer.groups
        self._memory.take(answer.ByteSize() + _ROW_BYTES * len(result.offsets))
        return result.error_code, result.offsets


def _once(keys: Sequence[Sequence[_Key]]) -> list[list[_Key]]:
    """Return the keys of each topic without those that came before."""
    left = set(chain.from_iterable(keys))
    kept: list[list[_Key]] = []
    for named in keys:
        kept.append([key for key in dict.fromkeys(named) if key in left])
        left.difference_update(named)
    return kept


async def _ids_by_name(call: Call, names: set[str], context: GroupContext) -> dict[str, bytes]:
    if not names:
        return {}
    answer = await context.topics.describe_topics(
        topics_pb2.DescribeTopicsRequest(
            correlation_id=call.correlation_id, topics=[topics_pb2.TopicRef(name=name) for name in sorted(names)]
        )
    )
    return {topic.name: topic.id for topic in answer.topics if not topic.error_code}


def _row(version: int, offset: _Offset) -> Any:
    row = OffsetFetchResponsePartitions if version >= _MANY_GROUPS_VERSION else OffsetFetchResponsePartition
    return row(
        partition_index=offset.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error_code,
    )


def _topic(version: int, name: str, topic_id: bytes, rows: Sequence[Any]) -> Any:
    if version >= _MANY_GROUPS_VERSION:
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=tuple(rows))
    return OffsetFetchResponseTopic(name=name, partitions=tuple(rows))


def _refused(call: Call, group: OffsetFetchRequestGroup, error: int) -> OffsetFetchResponseGroup:
    topics = ()
    if call.version < _TOP_LEVEL_ERROR_VERSION:
        topics = tuple(
            _topic(
                call.version,
                topic.name,
                topic.topic_id,
                [
                    _row(call.version, _Offset(partition=index, offset=-1, leader_epoch=-1, error_code=error))
                    for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        )
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=error)


def _groups(call: Call, request: OffsetFetchRequest) -> Sequence[OffsetFetchRequestGroup]:
    return request.groups if call.version >= _MANY_GROUPS_VERSION else (_one_group(request),)


def resources(call: Call, request: OffsetFetchRequest, context: GroupContext) -> Iterable[Resource]:
    """Return the groups and the topics named. Of all topics, those that may not be described are left out."""
    groups = _groups(call, request)
    named = ((topic.name, bytes(topic.topic_id)) for each in groups for topic in each.topics or ())
    return [
        *(group(Operation.DESCRIBE, each.group_id) for each in groups),
        *topics(Operation.DESCRIBE, named, context.names),
    ]


def refuse(call: Call, request: OffsetFetchRequest, error: int, _context: object) -> OffsetFetchResponse:
    """Return each group with the error, before version 2 each partition."""
    return _response(call, [_refused(call, each, error) for each in _groups(call, request)])


HANDLER = Handler(
    ApiKey.OFFSET_FETCH,
    0,
    10,
    handle,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.GROUP, ResourceType.TOPIC}),
)
