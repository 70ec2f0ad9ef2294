"""ConsumerGroupDescribe: epochs, members and assignments of consumer groups (KIP-848); their type from version 1 on.

A group that is not there, or is a classic one, is GROUP_ID_NOT_FOUND: clients then ask DescribeGroups.
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

from gateway_svc.handlers.describe_groups import ALL_GROUP_OPERATIONS
from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler

_MEMBER_TYPE_VERSION = 1
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


async def handle(
    call: Call, request: ConsumerGroupDescribeRequest, services: Services
) -> tuple[ConsumerGroupDescribeResponse, int]:
    answer = await services.storage.groups.describe_consumer_groups(
        groups_pb2.DescribeConsumerGroupsRequest(correlation_id=call.correlation_id, group_ids=request.group_ids)
    )
    groups = tuple(_group(each, call.version, request.include_authorized_operations) for each in answer.groups)
    error = next((each.error_code for each in groups if each.error_code), 0)
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups), error


def _group(
    group: groups_pb2.DescribeConsumerGroupsResponse.Group, version: int, wants_operations: bool
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
        authorized_operations=ALL_GROUP_OPERATIONS
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


HANDLER = TaskHandler(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, handle)
