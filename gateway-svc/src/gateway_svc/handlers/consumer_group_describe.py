"""ConsumerGroupDescribe: epochs, members and assignments of consumer groups (KIP-848); their type from version 1 on.

Each group is answered once, however often it is named. A group that is not there, or is a classic one, is
GROUP_ID_NOT_FOUND: clients then ask DescribeGroups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from protocol_lib.messages.metadata import NO_AUTHORIZED_OPERATIONS

from gateway_svc.handlers.describe_groups import GROUPS_PIECE
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import ALL_GROUP_OPERATIONS, Operation, Resource, ResourceType, group, group_of
from gateway_svc.requests.rights import Rights, Rows
from gateway_svc.requests.turns import AnswerMemory, in_turns, keep_duplicates

_MEMBER_TYPE_VERSION = 1
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1
_HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    call: Call, request: ConsumerGroupDescribeRequest, context: GroupContext
) -> tuple[ConsumerGroupDescribeResponse, int]:
    groups = []
    memory = AnswerMemory(call.size)
    async for group_ids in in_turns(keep_duplicates(request.group_ids), GROUPS_PIECE):
        answer = await context.groups.describe_consumer_groups(
            groups_pb2.DescribeConsumerGroupsRequest(correlation_id=call.correlation_id, group_ids=group_ids)
        )
        memory.take(answer.ByteSize())
        for each in answer.groups:
            described = _group(each, call.version, request.include_authorized_operations, call.rights)
            if not _may_see_topics(call.rights, each):
                described.error_code, described.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN_TOPICS
                described.members = ()
            groups.append(described)
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=tuple(groups)), first_error(groups)


def _may_see_topics(rights: Rights, group: groups_pb2.DescribeConsumerGroupsResponse.Group) -> bool:
    """Return whether the client may describe every topic that the group's members subscribe to or are assigned."""
    if rights.are_total:
        return True
    names = {name for each in group.members for name in each.subscribed_topic_names}
    names |= {row.topic for each in group.members for rows in (each.assigned, each.target) for row in rows}
    return all(rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names)


def _group(
    group: groups_pb2.DescribeConsumerGroupsResponse.Group, version: int, wants_operations: bool, rights: Rights
) -> DescribedGroup:
    is_missing = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        error_code=group.error_code,
        error_message=f"Group {group.group_id} not found." if is_missing else None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_member(each, version) for each in group.members),
        authorized_operations=rights.operations(ALL_GROUP_OPERATIONS, ResourceType.GROUP, group.group_id)
        if wants_operations and not group.error_code
        else NO_AUTHORIZED_OPERATIONS,
    )


def _member(member: groups_pb2.DescribeConsumerGroupsResponse.Member, version: int) -> Member:
    fields = {}
    if version >= _MEMBER_TYPE_VERSION:  # KIP-1099
        fields["member_type"] = _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
        rack_id=member.rack_id if member.HasField("rack_id") else None,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
        **fields,
    )


def _assignment(rows: Iterable[groups_pb2.DescribeConsumerGroupsResponse.Partitions]) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=each.topic_id, topic_name=each.topic, partitions=tuple(each.partitions))
            for each in rows
        )
    )


def resources(_call: Call, request: ConsumerGroupDescribeRequest, _context: object) -> Iterable[Resource]:
    return [group(Operation.DESCRIBE, each) for each in request.group_ids]


def refuse(
    _call: Call, request: ConsumerGroupDescribeRequest, error: int, _context: object
) -> ConsumerGroupDescribeResponse:
    groups = tuple(
        DescribedGroup(
            error_code=error,
            error_message=None,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
        )
        for group_id in keep_duplicates(request.group_ids)
    )
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


HANDLER = Handler(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    0,
    1,
    handle,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.GROUP}),
    rows=Rows("group_ids", "groups", group_of(Operation.DESCRIBE)),
)
