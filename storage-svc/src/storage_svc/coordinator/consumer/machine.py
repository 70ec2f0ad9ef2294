"""The consumer group (KIP-848) as a state machine: `handle` takes an event and gives the outcome that follows from it.

    member epoch in a heartbeat   is answered
    0                             joins, or joins again: the whole assignment
    as the group knows it         goes on
    the one before, and it owns   goes on: the answer that raised it was lost
      no more than is assigned
    any other                     110 FENCED_MEMBER_EPOCH: it gives everything up and joins again
    -1                            is out
    -2 (static)                   is away; comes back under any member id until its session ends

What a member has is told when it changes, when the member says everything, and when its heartbeat comes over another
connection than the last one that was told (Kafka: not then). A client that gave up waiting has closed its connection.

Order of checks: group not there 69, full 81, instance id unknown 25, of another member 82, not given back 111, member
unknown 25, epoch 110, pattern 128. What needs no group (42, 112) is checked before: `admission.heartbeat_fault`.

Members that speak the classic protocol in a consumer group: `classic_members`. Owner: the coordinator that calls
`handle`, from one thread. Kafka: GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from storage_svc.coordinator.consumer.classic_members import on_heartbeat, on_join, on_leave, on_sync
from storage_svc.coordinator.consumer.events import (
    ConsumerAnswer,
    ConsumerEvent,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerTimer,
    ConsumerTimerFired,
    ConsumerTimerKind,
    Environment,
    HeartbeatAnswer,
    Outcome,
    PatternsResolved,
    SetConsumerTimer,
    Step,
)
from storage_svc.coordinator.consumer.group import ConsumerGroup, Draft, Topics
from storage_svc.coordinator.consumer.member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
    ResolvedPattern,
)
from storage_svc.coordinator.consumer.rebalance import bump, fence, reconcile, update_target
from storage_svc.coordinator.consumer.records import ConsumerRecord
from storage_svc.coordinator.patterns.topic_pattern import InvalidPatternError, compile_pattern


def handle(
    group: ConsumerGroup,
    event: ConsumerEvent,
    environment: Environment,
    *,
    written: list[ConsumerRecord] | None = None,
) -> Outcome:
    """What follows from the event; the group stays as it is.

    Args:
        written: records that stand before the event's own: those of a classic group that turned into this one.
    """
    if type(event) is ConsumerHeartbeat and not written and says_nothing_new(group, event, environment.topics):
        return _session_again(group, event, environment.settings)
    step = Step(Draft(group, written or ()), environment)
    if written:
        for member in group.members.values():
            step.start_session(member)  # The timers of the group before are gone with it.
    answer = _HANDLERS[type(event)](step, event)
    if isinstance(answer, HeartbeatAnswer) and answer.error:
        return Outcome(group, answer=answer)
    return step.outcome(answer)


def refused(error: ErrorCode, message: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(error=error, message=message)


# --- heartbeat --------------------------------------------------------------------------------------------------------


def says_nothing_new(group: ConsumerGroup, heartbeat: ConsumerHeartbeat, topics: Topics) -> bool:
    """Whether the member has what it shall have, the group is as it was, and nothing is to be told: most heartbeats
    are such, and all that `_on_consumer_heartbeat` would do is to start the session again."""
    member = group.members.get(heartbeat.member_id)
    return (
        member is not None
        and heartbeat.instance_id is None
        and heartbeat.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and member.epoch > JOIN_EPOCH
        and member.state is MemberState.STABLE
        and group.hashed_version == topics.version
        and not group.patterns
        and not member.pattern
        and _updated(member, heartbeat) is member
        and group.told_over.get(member.member_id) == heartbeat.connection_id
    )


def _session_again(group: ConsumerGroup, heartbeat: ConsumerHeartbeat, settings: ConsumerGroupSettings) -> Outcome:
    session = ConsumerTimer(ConsumerTimerKind.SESSION, heartbeat.member_id)
    answer = HeartbeatAnswer(
        member_id=heartbeat.member_id,
        member_epoch=heartbeat.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )
    return Outcome(group, answer=answer, timers=[SetConsumerTimer(session, settings.session_timeout_ms)])


def _on_consumer_heartbeat(step: Step, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer:
    if heartbeat.member_epoch < JOIN_EPOCH:
        return _on_leave(step, heartbeat)
    group, settings = step.group, step.environment.settings
    if len(group.members) >= settings.size_max and heartbeat.member_id not in group.members:
        return refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has {settings.size_max} members: it is full.")
    member = _known(step, heartbeat) if heartbeat.instance_id is None else _known_static(step, heartbeat)
    if isinstance(member, HeartbeatAnswer):
        return member
    updated = _updated(member, heartbeat)
    if updated is not member and updated != member:
        if updated.pattern and updated.pattern != member.pattern:
            try:
                compile_pattern(updated.pattern)
            except InvalidPatternError as error:
                return refused(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{updated.pattern}` is not a valid regular expression: {error}.",
                )
        step.draft.put_subscription(updated)
        step.draft.forget_unused_patterns()
    pattern_changed = updated.pattern != member.pattern
    topics_changed = updated.topics != member.topics
    # A pattern that is not resolved yet raises the epoch when it is.
    is_due = topics_changed or (pattern_changed and (not updated.pattern or updated.pattern in step.group.patterns))
    if is_due or step.group.hashed_version != step.environment.topics.version:
        bump(step, is_due=is_due)
    step.resolve_patterns = _needs_resolving(step, updated.pattern)
    update_target(step)
    moved = reconcile(step, updated, heartbeat.owned, subscription_changed=topics_changed or pattern_changed)
    step.start_session(moved)
    # It may keep its epoch while what it has changes: if it missed that answer, nothing it says later shows it. Over a
    # connection that lasts it has heard all answers.
    is_told = (
        heartbeat.member_epoch == JOIN_EPOCH
        or heartbeat.is_full
        or moved.assigned != member.assigned
        or step.group.told_over.get(moved.member_id) != heartbeat.connection_id
    )
    if is_told:
        step.group.told_over[moved.member_id] = heartbeat.connection_id
    return HeartbeatAnswer(
        member_id=moved.member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=moved.assigned if is_told else None,
    )


def _known(step: Step, heartbeat: ConsumerHeartbeat) -> ConsumerMember | HeartbeatAnswer:
    member = step.group.members.get(heartbeat.member_id)
    if member is not None:
        return _epoch_fault(member, heartbeat.member_epoch, heartbeat.owned) or member
    if heartbeat.member_epoch == JOIN_EPOCH:
        return ConsumerMember.new(heartbeat.member_id)
    return _unknown_member(step, heartbeat.member_id)


def _known_static(step: Step, heartbeat: ConsumerHeartbeat) -> ConsumerMember | HeartbeatAnswer:
    known = step.group.by_instance(heartbeat.instance_id or "")
    if heartbeat.member_epoch != JOIN_EPOCH:
        if fault := _instance_fault(known, heartbeat):
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


def _instance_fault(known: ConsumerMember | None, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer | None:
    if known is None:
        return refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {heartbeat.instance_id} is unknown.")
    if known.member_id != heartbeat.member_id:
        return refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {heartbeat.member_id} with instance id {heartbeat.instance_id} was fenced by member"
            f" {known.member_id}.",
        )
    return None


def _unknown_member(step: Step, member_id: str) -> HeartbeatAnswer:
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


def _updated(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> ConsumerMember:
    """The member with what the heartbeat says anew; itself when that is nothing, as of most heartbeats."""
    timeout_ms = heartbeat.rebalance_timeout_ms
    if (
        heartbeat.topics is None
        and heartbeat.pattern is None
        and not (heartbeat.instance_id or heartbeat.rack_id or heartbeat.assignor)
        and timeout_ms == -1
        and heartbeat.client_id == member.client_id
        and heartbeat.client_host == member.client_host
        and member.classic is None
    ):
        return member
    return replace(
        member,
        instance_id=heartbeat.instance_id or member.instance_id,
        rack_id=heartbeat.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=heartbeat.assignor or member.assignor,
        topics=member.topics if heartbeat.topics is None else heartbeat.topics,
        pattern=member.pattern if heartbeat.pattern is None else heartbeat.pattern,
        client_id=heartbeat.client_id,
        client_host=heartbeat.client_host,
        classic=None,
    )


# --- patterns ---------------------------------------------------------------------------------------------------------


def _needs_resolving(step: Step, pattern: str) -> bool:
    group = step.group
    if not pattern and not group.patterns:
        return False  # Nobody subscribes by pattern, or who does asks for it.
    wanted = group.subscribed_patterns()
    if not wanted:
        return False
    return wanted != group.patterns.keys() or group.resolved_version != step.environment.topics.version


def _on_patterns_resolved(step: Step, event: PatternsResolved) -> None:
    is_due = False
    for pattern in sorted(step.group.subscribed_patterns() & event.topics.keys()):
        topics = event.topics[pattern]
        known = step.group.patterns.get(pattern)
        if known is None or known.topics != topics:
            is_due = is_due or topics != (frozenset() if known is None else known.topics)
            step.draft.put_pattern(pattern, ResolvedPattern(topics, event.version, step.environment.now_ms))
    bump(step, is_due=is_due)
    step.group.resolved_version = event.version


# --- leaving ----------------------------------------------------------------------------------------------------------


def _on_leave(step: Step, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer:
    group = step.group
    answer = HeartbeatAnswer(member_id=heartbeat.member_id, member_epoch=heartbeat.member_epoch)
    if heartbeat.instance_id is None:
        member = group.members.get(heartbeat.member_id)
        if member is None:
            return _unknown_member(step, heartbeat.member_id)
        fence(step, [member])
        return answer
    known = group.by_instance(heartbeat.instance_id)
    if fault := _instance_fault(known, heartbeat):
        return fault
    assert known is not None
    if heartbeat.member_epoch == STATIC_LEAVE_EPOCH:
        step.draft.put_current(known.away())
        step.cancel_timer(ConsumerTimerKind.REBALANCE, known.member_id)
    else:
        fence(step, [known])
    return answer


def _on_timer(step: Step, event: ConsumerTimerFired) -> None:
    member = step.group.members.get(event.timer.member_id)
    if member is None:
        return
    if event.timer.kind is ConsumerTimerKind.REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return
    fence(step, [member])


_HANDLERS: Final[Mapping[type, Callable[[Step, Any], ConsumerAnswer | None]]] = {
    ConsumerHeartbeat: _on_consumer_heartbeat,
    PatternsResolved: _on_patterns_resolved,
    ConsumerTimerFired: _on_timer,
    Join: on_join,
    Sync: on_sync,
    Heartbeat: on_heartbeat,
    Leave: on_leave,
}
