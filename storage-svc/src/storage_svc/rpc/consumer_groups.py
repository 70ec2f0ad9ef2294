"""The messages of consumer groups (KIP-848): protobuf to the coordinator's and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker_contract import groups_pb2 as pb

from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup, Topics
from storage_svc.coordinator.consumer.member import ConsumerMember


def heartbeat_of(request: pb.ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    owned: dict[bytes, frozenset[int]] | None = None
    if request.HasField("owned"):
        owned = {}
        for row in request.owned.topics:
            owned[row.topic_id] = owned.get(row.topic_id, frozenset()) | frozenset(row.partitions)
    return ConsumerHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.group_instance_id if request.HasField("group_instance_id") else None,
        rack_id=request.rack_id if request.HasField("rack_id") else None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(request.subscribed_topic_names.names) if request.HasField("subscribed_topic_names") else None,
        pattern=request.subscribed_topic_regex if request.HasField("subscribed_topic_regex") else None,
        assignor=request.server_assignor if request.HasField("server_assignor") else None,
        owned=owned,
        client_id=request.client_id,
        client_host=request.client_host,
        connection_id=request.connection_id,
    )


def heartbeat_response(answer: HeartbeatAnswer, group_id: str) -> pb.ConsumerGroupHeartbeatResponse:
    response = pb.ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
    )
    if answer.resolve_version is not None:
        response.resolve.group_id = group_id  # not of a group: the answer
        response.resolve.version = answer.resolve_version
    if answer.assignment is not None:
        response.assignment.SetInParent()
        for topic_id, held in sorted(answer.assignment.items()):
            response.assignment.topics.add(topic_id=topic_id, partitions=sorted(held))
    return response


def described(
    group: ConsumerGroup, topics: Topics, default_assignors: Iterable[str]
) -> pb.DescribeConsumerGroupsResponse.Group:
    answer = pb.DescribeConsumerGroupsResponse.Group(group_id=group.group_id)
    answer.state = group.state.value  # not of a group: a field of the answer
    answer.group_epoch = group.epoch
    answer.assignment_epoch = group.assignment_epoch  # not of a group: a field of the answer
    answer.assignor = group.prevailing_assignor(default_assignors)
    answer.members.extend(_member(group, member, topics) for member in group.members.values())
    return answer


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> pb.DescribeConsumerGroupsResponse.Member:
    """Return a member. Partitions that it has to give up are its own until it has."""
    held: dict[bytes, list[int]] = {}
    for topic_id, partition in member.holds():
        held.setdefault(topic_id, []).append(partition)
    return pb.DescribeConsumerGroupsResponse.Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        assigned=_rows(held, topics),
        target=_rows(group.target.get(member.member_id, {}), topics),
        is_classic=member.classic is not None,
    )


def _rows(
    partitions: Mapping[bytes, Iterable[int]], topics: Topics
) -> list[pb.DescribeConsumerGroupsResponse.Partitions]:
    """Return rows of partitions; deleted topics are left out."""
    return [
        pb.DescribeConsumerGroupsResponse.Partitions(topic_id=topic_id, topic=name, partitions=sorted(each))
        for topic_id, each in sorted(partitions.items())
        if (name := topics.name_of(topic_id)) is not None
    ]
