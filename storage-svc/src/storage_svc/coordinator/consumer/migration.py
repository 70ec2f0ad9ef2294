"""A group with members goes from the classic protocol to KIP-848's, and back (Kafka's online migration). Pure.

    a KIP-848 member joins a classic group     its members become classic members of a consumer group, with their
                                               assignments; parked joins and syncs are answered 27
    the last KIP-848 member leaves             the others become a classic group again and rebalance
    a static member that spoke KIP-848 comes   the same, without a rebalance if its subscription is as it was
      back with the classic protocol

Epochs and generations go on counting: the one becomes the other. Kafka: ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from protocol_lib import consumer_protocol
from protocol_lib.consumer_protocol import Assignment, TopicPartitions
from protocol_lib.errors import ErrorCode, ProtocolError
from protocol_lib.internal.consumer_group import ClassicMemberMetadata, ClassicProtocol

from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.member import Member, common_protocols, select_protocol
from storage_svc.coordinator.consumer.group import ConsumerGroup, Topics
from storage_svc.coordinator.consumer.member import ConsumerMember, Partitions
from storage_svc.coordinator.consumer.records import classic_record
from storage_svc.coordinator.consumer.settings import Environment
from storage_svc.coordinator.consumer.step import Step
from storage_svc.coordinator.machine.outcome import Record

# --- to a consumer group ----------------------------------------------------------------------------------------------


def may_upgrade(group: Group, environment: Environment) -> bool:
    settings = environment.settings
    return (
        settings.migration_policy.may_upgrade
        and group.protocol_type == consumer_protocol.PROTOCOL_TYPE
        and len(group.members) <= settings.size_max
    )


def upgraded(group: Group, topics: Topics) -> ConsumerGroup | None:
    """Return the same group as a consumer group; None when data of a member is unreadable, or would be lost."""
    protocol_name = group.protocol_name or group.members.select_protocol()
    try:
        members = [_consumer_member(member, protocol_name, group.generation_id, topics) for member in group.members]
    except (ProtocolError, ValueError):
        return None
    return ConsumerGroup.migrated(group.group_id, members, group.generation_id, topics)


def upgrade_records(made: ConsumerGroup) -> list[Record]:
    return [classic_record(made.group_id, None), *made.all_records()]


def consumer_group_of(group: Group, environment: Environment) -> tuple[ConsumerGroup, list[Record]] | None:
    """Return the consumer group that a classic group turns into, with its records; None if it may not turn into one."""
    if not group.members:
        tombstones = [classic_record(group.group_id, None)] if group.generation_id else []
        return ConsumerGroup(group.group_id), tombstones
    made = upgraded(group, environment.topics) if may_upgrade(group, environment) else None
    return None if made is None else (made, upgrade_records(made))


def _consumer_member(member: Member, protocol_name: str, generation_id: int, topics: Topics) -> ConsumerMember:
    """Return a classic member as a member of a consumer group.

    Raises:
        ProtocolError: its subscription or assignment cannot be read.
        ValueError: its assignment carries data of an assignor that is not ours.
    """
    assigned: dict[bytes, dict[int, int]] = {}
    if member.assignment:
        assignment = consumer_protocol.decode_assignment(member.assignment)
        if assignment.user_data:
            raise ValueError("user data of a custom assignor would be lost")
        for topic_id, partitions in partitions_by_id(assignment.assigned_partitions, topics).items():
            assigned[topic_id] = dict.fromkeys(partitions, generation_id)
    subscription = consumer_protocol.decode_subscription(member.metadata(protocol_name))
    return ConsumerMember(
        member_id=member.member_id,
        epoch=generation_id,
        previous_epoch=generation_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned=assigned,
        revoking={},
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(session_timeout_ms: int, protocols: Iterable[tuple[str, bytes]]) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=tuple(ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols),
    )


def partitions_by_id(rows: Iterable[TopicPartitions], topics: Topics) -> Partitions:
    """Return the partitions by topic id; topics that do not exist are left out."""
    found: dict[bytes, frozenset[int]] = {}
    for row in rows:
        topic = topics.get(row.topic)
        if topic is not None:
            found[topic.id] = found.get(topic.id, frozenset()) | frozenset(row.partitions)
    return found


# --- to a classic group -----------------------------------------------------------------------------------------------


def may_downgrade(group: ConsumerGroup, leaving: Set[str], environment: Environment) -> bool:
    """Return whether the remaining members all speak the classic protocol, and may be a classic group."""
    staying = [member for member_id, member in group.members.items() if member_id not in leaving]
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and bool(common_protocols(map(_classic_member, staying)))
        and environment.settings.migration_policy.may_downgrade
        and len(staying) <= environment.classic_limits.size_max
    )


def downgrade(step: Step, leaving: Set[str], *, rebalance: bool) -> None:
    """End the step with the group as a classic one, without the members that leave."""
    group, environment = step.group, step.environment
    staying = [_classic_member(member) for member_id, member in group.members.items() if member_id not in leaving]
    protocol_name = select_protocol(staying)
    members = [
        replace(
            known,
            assignment=encode_assignment(
                group.target.get(known.member_id, {}), known.metadata(protocol_name), environment.topics
            ),
        )
        for known in staying
    ]
    made = Group.migrated(group.group_id, members, group.epoch, environment.classic_limits, environment.now_ms)
    step.draft.records.extend(group.tombstones())
    assignments = {known.member_id: known.assignment for known in members}
    step.draft.records.append(classic_record(group.group_id, made.stored(assignments)))
    step.become_classic(made, rebalance=rebalance)


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=tuple((each.name, bytes(each.metadata)) for each in member.classic.supported_protocols),
    )


def encode_assignment(partitions: Partitions, metadata: bytes, topics: Topics) -> bytes:
    """Return an assignment for a classic member: in its subscription's version, existing topics by name."""
    rows = tuple(
        TopicPartitions(topic=name, partitions=tuple(sorted(each)))
        for topic_id, each in partitions.items()
        if (name := topics.name_of(topic_id)) is not None
    )
    version = int.from_bytes(metadata[:2], "big", signed=True)
    known = max(0, min(version, consumer_protocol.VERSION_MAX))
    return consumer_protocol.encode_assignment(Assignment(assigned_partitions=rows), known)


#: The error that a caller of the other protocol gets of a group that cannot be migrated.
NOT_MIGRATED = ErrorCode.GROUP_ID_NOT_FOUND
