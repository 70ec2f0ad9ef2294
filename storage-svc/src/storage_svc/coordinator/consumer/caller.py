"""The member that a ConsumerGroupHeartbeat comes from, or the reason to refuse it.

`machine` has the order of these checks.
"""

from __future__ import annotations

from dataclasses import replace

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
)
from storage_svc.coordinator.consumer.step import Step


def refused(error: ErrorCode, message: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(error=error, message=message)


def caller(step: Step, heartbeat: ConsumerHeartbeat) -> ConsumerMember | HeartbeatAnswer:
    """Return the member that calls, or the refusal."""
    size_max = step.environment.settings.size_max
    if len(step.group.members) >= size_max and heartbeat.member_id not in step.group.members:
        return refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has {size_max} members: it is full.")
    return _known(step, heartbeat) if heartbeat.instance_id is None else _known_static(step, heartbeat)


def _known(step: Step, heartbeat: ConsumerHeartbeat) -> ConsumerMember | HeartbeatAnswer:
    member = step.group.members.get(heartbeat.member_id)
    if member is not None:
        return _epoch_fault(member, heartbeat.member_epoch, heartbeat.owned) or member
    if heartbeat.member_epoch == JOIN_EPOCH:
        return ConsumerMember.new(heartbeat.member_id)
    return unknown_member(step, heartbeat.member_id)


def _known_static(step: Step, heartbeat: ConsumerHeartbeat) -> ConsumerMember | HeartbeatAnswer:
    known = step.group.by_instance(heartbeat.instance_id or "")
    if heartbeat.member_epoch != JOIN_EPOCH:
        if fault := instance_fault(known, heartbeat):
            return fault
        assert known is not None
        return _epoch_fault(known, heartbeat.member_epoch, heartbeat.owned) or known
    if known is None:
        return step.group.members.get(heartbeat.member_id) or ConsumerMember.new(heartbeat.member_id)
    if known.classic is None and known.epoch != STATIC_LEAVE_EPOCH:
        return refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {heartbeat.member_id} with instance id {heartbeat.instance_id} cannot join the group"
            f" because the instance id is owned by {known.member_id} member.",
        )
    member = replace(known, member_id=heartbeat.member_id, epoch=JOIN_EPOCH, previous_epoch=0)
    step.draft.replace(known, member)
    step.cancel_timers(known.member_id)
    return member


def instance_fault(known: ConsumerMember | None, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer | None:
    if known is None:
        return refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {heartbeat.instance_id} is unknown.")
    if known.member_id != heartbeat.member_id:
        return refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {heartbeat.member_id} with instance id {heartbeat.instance_id} was fenced by member"
            f" {known.member_id}.",
        )
    return None


def unknown_member(step: Step, member_id: str) -> HeartbeatAnswer:
    message = f"Member {member_id} is not a member of group {step.group.group_id}."
    return refused(ErrorCode.UNKNOWN_MEMBER_ID, message)


def _epoch_fault(member: ConsumerMember, epoch: int, owned: Partitions | None) -> HeartbeatAnswer | None:
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        return refused(ErrorCode.FENCED_MEMBER_EPOCH, "The member must abandon all its partitions and rejoin.")
    if epoch in (JOIN_EPOCH, member.epoch):
        return None
    is_answer_lost = epoch < member.epoch and epoch == member.previous_epoch and owned is not None
    if is_answer_lost and all(
        partitions <= member.assigned.get(topic_id, {}).keys() for topic_id, partitions in (owned or {}).items()
    ):
        return None
    relation = "greater" if epoch > member.epoch else "smaller"
    return refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )
