"""Members that speak the classic protocol in a consumer group, during an online migration.

    JoinGroup    a full heartbeat: subscription and owned partitions; answered at once, generation =
                 member epoch; there is no leader
    SyncGroup    the assignment it has reached; 27 when there is a newer target
    Heartbeat    27 when it has to join again: a newer target, partitions to give up, or partitions that came free
    LeaveGroup   is out; an administrator may name a static member of either protocol

A member that has to join again, or has joined and not synced, has its rebalance timeout to do so. Order of checks as in
`join_phase`: full 81, protocol 23, then 79 or membership (25, 82), generation 22, protocol 23. Kafka:
GroupMetadataManager.classicGroupJoinToConsumerGroup and its neighbours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from protocol_lib import consumer_protocol
from protocol_lib.errors import ErrorCode, ProtocolError

from storage_svc.coordinator.classic.events import (
    ErrorAnswer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.member import ConsumerMember, MemberState
from storage_svc.coordinator.consumer.migration import (
    classic_metadata,
    downgrade,
    encode_assignment,
    may_downgrade,
    partitions_by_id,
)
from storage_svc.coordinator.consumer.rebalance import bump, cause, fence, reconcile, update_target
from storage_svc.coordinator.consumer.step import Step
from storage_svc.coordinator.machine.events import TimerKind

# --- join -------------------------------------------------------------------------------------------------------------


def on_join(step: Step, join: Join) -> JoinAnswer:
    member_id = join.member_id or join.new_member_id
    if error := _join_error(step, join):
        shown_id = member_id if error is ErrorCode.MEMBER_ID_REQUIRED else join.member_id
        return JoinAnswer(error=error, member_id=shown_id)
    try:
        subscription = consumer_protocol.decode_subscription(join.protocols[0][1])
    except ProtocolError:
        return JoinAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR, member_id=join.member_id)
    replaced = None if join.instance_id is None else step.group.by_instance(join.instance_id)
    if join.instance_id is not None and join.member_id:
        if replaced is None:
            return JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=join.member_id)
        if replaced.member_id != join.member_id:
            return JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=join.member_id)
    may_turn = replaced is not None and _may_turn(step, replaced)
    member = _joining(step, member_id, replaced)
    updated = replace(
        member,
        instance_id=join.instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        pattern="",
        client_id=join.client_id,
        client_host=join.client_host,
        classic=classic_metadata(join.session_timeout_ms, join.protocols),
    )
    if updated != member:
        step.draft.put_subscription(updated)
        step.draft.forget_unused_patterns()
    is_changed = updated.topics != member.topics or updated.pattern != member.pattern
    if is_changed or step.group.hashed_version != step.environment.topics.version:
        bump(step, cause(member) if is_changed else None)
    owned = partitions_by_id(subscription.owned_partitions, step.environment.topics)
    must_rebalance = may_turn and step.group.assignment_epoch < step.group.epoch
    if not may_turn:
        update_target(step)
    if not must_rebalance:
        updated = reconcile(step, updated, owned, subscription_changed=is_changed)
    step.cancel_timer(TimerKind.JOIN, member_id)
    if may_turn:
        downgrade(step, frozenset(), rebalance=must_rebalance)
    else:
        step.start_session(updated)
        step.set_timer(TimerKind.SYNC, member_id, join.rebalance_timeout_ms)
    return JoinAnswer(
        member_id=member_id,
        generation_id=updated.epoch,
        protocol_type=consumer_protocol.PROTOCOL_TYPE,
        protocol_name=join.protocols[0][0],
    )


def _join_error(step: Step, join: Join) -> ErrorCode:
    """Return the reason why no member may join with this call."""
    members = step.group.members
    member_id = join.member_id or join.new_member_id
    if len(members) >= step.environment.settings.size_max and member_id not in members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _supports_protocols(step.group, join):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if join.require_known_member_id and not join.member_id and join.instance_id is None:
        return ErrorCode.MEMBER_ID_REQUIRED
    return ErrorCode.NONE


def _may_turn(step: Step, replaced: ConsumerMember) -> bool:
    """Return whether the group becomes a classic one when a classic member replaces this one."""
    group, environment = step.group, step.environment
    return (
        replaced.classic is None
        and (len(group.members) == 1 or may_downgrade(group, {replaced.member_id}, environment))
        and environment.settings.migration_policy.may_downgrade
        and len(group.members) <= environment.classic_limits.size_max
    )


def _joining(step: Step, member_id: str, replaced: ConsumerMember | None) -> ConsumerMember:
    """Return the member as it was before the call: a new one, or the static member it replaces."""
    if replaced is None:
        return step.group.members.get(member_id) or ConsumerMember.new(member_id)
    if replaced.member_id == member_id:
        return replaced
    member = replace(replaced, member_id=member_id, epoch=0, previous_epoch=0)
    step.draft.replace(replaced, member)
    step.cancel_timers(replaced.member_id)
    return member


def _supports_protocols(group: ConsumerGroup, join: Join) -> bool:
    """Return whether the caller has a protocol in common with all classic members of the group."""
    if join.protocol_type != consumer_protocol.PROTOCOL_TYPE:
        return False
    classic = [member.classic for member in group.members.values() if member.classic is not None]
    # A member that names a protocol twice supports it once.
    counts = Counter(name for metadata in classic for name in {each.name for each in metadata.supported_protocols})
    return any(counts[name] == len(classic) for name, _ in join.protocols)


# --- sync, heartbeat --------------------------------------------------------------------------------------------------


def on_sync(step: Step, sync: Sync) -> SyncAnswer:
    member = _classic_member(step.group, sync.member_id, sync.instance_id)
    if isinstance(member, ErrorCode):
        return SyncAnswer(error=member)
    if error := _sync_error(step, sync, member):
        return SyncAnswer(error=error)
    assert member.classic is not None
    step.cancel_timer(TimerKind.SYNC, member.member_id)
    step.start_session(member)
    held = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
    metadata = bytes(member.classic.supported_protocols[0].metadata)
    return SyncAnswer(
        protocol_type=sync.protocol_type,
        protocol_name=sync.protocol_name,
        assignment=encode_assignment(held, metadata, step.environment.topics),
    )


def _sync_error(step: Step, sync: Sync, member: ConsumerMember) -> ErrorCode:
    assert member.classic is not None
    if member.epoch != sync.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if sync.protocol_type not in (None, consumer_protocol.PROTOCOL_TYPE):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sync.protocol_name not in (None, member.classic.supported_protocols[0].name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if step.group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        step.set_timer(TimerKind.JOIN, member.member_id, member.rebalance_timeout_ms, if_absent=True)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def on_heartbeat(step: Step, heartbeat: Heartbeat) -> ErrorAnswer:
    member = _classic_member(step.group, heartbeat.member_id, heartbeat.instance_id)
    if isinstance(member, ErrorCode):
        return ErrorAnswer(member)
    if member.epoch != heartbeat.generation_id:
        return ErrorAnswer(ErrorCode.ILLEGAL_GENERATION)
    step.start_session(member)
    if not _must_join_again(step.group, member):
        return ErrorAnswer(ErrorCode.NONE)
    step.set_timer(TimerKind.JOIN, member.member_id, member.rebalance_timeout_ms, if_absent=True)
    return ErrorAnswer(ErrorCode.REBALANCE_IN_PROGRESS)


def _must_join_again(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
        group.is_taken(member.member_id, topic_id, partition)
        for topic_id, partitions in group.target.get(member.member_id, {}).items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
    )


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember | ErrorCode:
    """Return the caller, or the reason why it is none."""
    member = group.members.get(member_id) if instance_id is None else group.by_instance(instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.member_id != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.UNKNOWN_MEMBER_ID if member.classic is None else member


# --- leave ------------------------------------------------------------------------------------------------------------


def on_leave(step: Step, leave: Leave) -> LeaveAnswer:
    leaving: dict[str, ConsumerMember] = {}
    errors = tuple(_leave_error(step.group, leaver, leaving) for leaver in leave.members)
    fence(step, leaving.values())
    return LeaveAnswer(ErrorCode.NONE, errors)


def _leave_error(group: ConsumerGroup, leaver: Leaver, leaving: dict[str, ConsumerMember]) -> ErrorCode:
    """Return the reason why this one cannot leave; NONE puts it among those that do."""
    if leaver.instance_id is None:
        member = group.members.get(leaver.member_id)
    else:
        member = group.by_instance(leaver.instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.instance_id is not None and leaver.member_id not in ("", member.member_id):
        return ErrorCode.FENCED_INSTANCE_ID
    leaving[member.member_id] = member
    return ErrorCode.NONE
