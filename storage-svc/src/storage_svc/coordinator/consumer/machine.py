"""The consumer group (KIP-848) as a state machine: `handle` takes an event and returns its outcome.

    member epoch in a heartbeat   the member
    0                             joins, or joins again: it is sent the whole assignment
    as the group knows it         goes on
    the one before, and it owns   goes on: the answer that raised it was lost
      no more than is assigned
    any other                     110 FENCED_MEMBER_EPOCH: it gives up all partitions and joins again
    -1                            leaves
    -2 (static)                   is away; comes back under any member id until its session ends

A member is sent its assignment when that changes, when its heartbeat is full, and when it comes over another connection
than the last answer that had one (Kafka: not then). A client that gave up waiting has closed its connection.

Order of checks: group not there 69, full 81, instance id unknown 25, of another member 82, not released 111, member
unknown 25, epoch 110, pattern 128. Checks that need no group (42, 112) come before: `limits.heartbeat_fault`.

The group stays as it is but for memory in no record (`step`): a change makes a new group, which counts once the log has
accepted its records. Members that speak the classic protocol in a consumer group: `classic_members`. Owner: the
coordinator that calls `handle`, from one thread. Kafka: GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.caller import caller, instance_fault, refused, unknown_member
from storage_svc.coordinator.consumer.classic_members import on_heartbeat, on_join, on_leave, on_sync
from storage_svc.coordinator.consumer.events import ConsumerAnswer, ConsumerEvent, ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup, Draft, Topics
from storage_svc.coordinator.consumer.member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    ResolvedPattern,
)
from storage_svc.coordinator.consumer.migration import NOT_MIGRATED, consumer_group_of
from storage_svc.coordinator.consumer.rebalance import bump, cause, fence, reconcile, update_target
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings, Environment
from storage_svc.coordinator.consumer.step import ConsumerOutcome, Step, answers_to
from storage_svc.coordinator.machine.events import (
    RECOVERY,
    Configured,
    Installed,
    PatternsResolved,
    Recover,
    Removed,
    Timer,
    TimerFired,
    TimerKind,
)
from storage_svc.coordinator.machine.outcome import CancelTimer, Record, SetTimer, TimerChange
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason
from storage_svc.coordinator.topic_pattern import InvalidPatternError, compile_pattern


def handle(group: ConsumerGroup, event: ConsumerEvent, environment: Environment) -> ConsumerOutcome:
    """Return the outcome of the event."""
    if type(event) is ConsumerHeartbeat and _is_unchanged(group, event, environment.topics):
        return _session_again(group, event, environment.settings)
    return _handle(Step(Draft(group), environment), event)


def take_over(classic: Group, heartbeat: ConsumerHeartbeat, environment: Environment) -> ConsumerOutcome:
    """Return the outcome of a heartbeat in a group of the classic protocol: a join makes it a consumer group."""
    if heartbeat.member_epoch != JOIN_EPOCH:
        return ConsumerOutcome(classic, answers_to(heartbeat, not_a_consumer_group(classic.group_id)))
    migrated = consumer_group_of(classic, environment)
    if migrated is None:
        message = f"Cannot upgrade classic group {classic.group_id} to consumer group."
        return ConsumerOutcome(classic, answers_to(heartbeat, refused(NOT_MIGRATED, message)))
    outcome = begin_with(*migrated, heartbeat, environment)
    if not outcome.records:  # the heartbeat is refused
        outcome.entity = classic
    outcome.to_replaced = Removed(ErrorCode.REBALANCE_IN_PROGRESS)
    return outcome


def begin_with(
    group: ConsumerGroup, records: Iterable[Record], heartbeat: ConsumerHeartbeat, environment: Environment
) -> ConsumerOutcome:
    """Return the outcome of the first heartbeat in a group that these records make out of a classic one."""
    step = Step(Draft(group, records), environment)
    for member in group.members.values():
        step.start_session(member)
    return _handle(step, heartbeat)


def _handle(step: Step, event: ConsumerEvent) -> ConsumerOutcome:
    group = step.group
    answer = _HANDLERS[type(event)](step, event)
    if isinstance(answer, HeartbeatAnswer) and answer.error:
        return ConsumerOutcome(group, answers_to(event, answer))
    return step.outcome(event, answer)


def not_a_consumer_group(group_id: str) -> HeartbeatAnswer:
    return refused(NOT_MIGRATED, f"Group {group_id} is not a consumer group.")


# --- heartbeat --------------------------------------------------------------------------------------------------------


def _is_unchanged(group: ConsumerGroup, heartbeat: ConsumerHeartbeat, topics: Topics) -> bool:
    """Return whether the heartbeat and its answer carry no news: most do not.

    `_on_consumer_heartbeat` would then only start the session again.
    """
    member = group.members.get(heartbeat.member_id)
    return (
        member is not None
        and heartbeat.instance_id is None
        and heartbeat.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and member.epoch > JOIN_EPOCH
        and member.state is MemberState.STABLE
        and not group.patterns
        and not member.pattern
        and _updated(member, heartbeat) is member
        and group.answers_again(topics.version, heartbeat.member_id, heartbeat.connection_id)
    )


def _session_again(
    group: ConsumerGroup, heartbeat: ConsumerHeartbeat, settings: ConsumerGroupSettings
) -> ConsumerOutcome:
    session = Timer(TimerKind.SESSION, heartbeat.member_id)
    answer = HeartbeatAnswer(
        member_id=heartbeat.member_id,
        member_epoch=heartbeat.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )
    timers: list[TimerChange] = [SetTimer(session, settings.session_timeout_ms)]
    return ConsumerOutcome(group, answers_to(heartbeat, answer), timers, quiet=group)


def _on_consumer_heartbeat(step: Step, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer:
    if heartbeat.member_epoch < JOIN_EPOCH:
        return _on_leave(step, heartbeat)
    member = caller(step, heartbeat)
    if isinstance(member, HeartbeatAnswer):
        return member
    updated = _updated(member, heartbeat)
    if fault := _pattern_fault(member, updated):
        return fault
    is_changed = _subscribe(step, member, updated)
    step.resolve_patterns = _needs_resolving(step, updated.pattern)
    update_target(step)
    moved = reconcile(step, updated, heartbeat.owned, subscription_changed=is_changed)
    step.start_session(moved)
    is_informed = heartbeat.is_full or moved.assigned != member.assigned or _has_missed(step.group, heartbeat)
    if is_informed:
        step.note_informed(moved.member_id, heartbeat.connection_id)
    return HeartbeatAnswer(
        member_id=moved.member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=step.environment.settings.heartbeat_interval_ms,
        assignment=moved.assigned if is_informed else None,
    )


def _has_missed(group: ConsumerGroup, heartbeat: ConsumerHeartbeat) -> bool:
    """Return whether the member may not know its assignment.

    A member may keep its epoch while its assignment changes. If it missed that answer, no later heartbeat shows it.
    Over a connection that lasts it has received all answers.
    """
    return (
        heartbeat.member_epoch == JOIN_EPOCH or group.informed_over.get(heartbeat.member_id) != heartbeat.connection_id
    )


def _subscribe(step: Step, member: ConsumerMember, updated: ConsumerMember) -> bool:
    """Put the updated member into the group, raise the group epoch if that is due, and return whether its subscription
    has changed."""
    if updated is not member and updated != member:
        step.draft.put_subscription(updated)
        step.draft.forget_unused_patterns()
    pattern_changed = updated.pattern != member.pattern
    topics_changed = updated.topics != member.topics
    # A pattern that is not resolved yet raises the epoch when it is.
    is_due = topics_changed or (pattern_changed and (not updated.pattern or updated.pattern in step.group.patterns))
    if is_due or step.group.hashed_version != step.environment.topics.version:
        bump(step, cause(member) if is_due else None)
    return topics_changed or pattern_changed


def _pattern_fault(member: ConsumerMember, updated: ConsumerMember) -> HeartbeatAnswer | None:
    if updated.pattern and updated.pattern != member.pattern:
        try:
            compile_pattern(updated.pattern)
        except InvalidPatternError as error:
            return refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{updated.pattern}` is not a valid regular expression: {error}.",
            )
    return None


def _updated(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member as the heartbeat describes it; the same object when that is no change, as for most."""
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
        return False  # No member subscribes by pattern, or one asks for it itself.
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
    bump(step, RebalanceReason.TOPICS_CHANGED if is_due else None)
    step.note_resolved(event.version)


# --- begin and end ----------------------------------------------------------------------------------------------------


def _on_installed(step: Step, _: Installed | Recover) -> None:
    """Start the sessions of members that were just loaded, and the time in which they give up partitions. `Recover`
    does so where none runs."""
    for member in step.group.members.values():
        timeout_ms = step.environment.settings.session_timeout_ms
        step.set_timer(TimerKind.SESSION, member.member_id, timeout_ms, if_absent=True)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            step.set_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms, if_absent=True)


def _on_removed(step: Step, _: Removed) -> None:
    step.timers.append(CancelTimer(RECOVERY))
    for member_id in step.group.members:
        step.cancel_timers(member_id)


def _on_configured(step: Step, _: Configured) -> None:
    step.draft.renew()


# --- leaving ----------------------------------------------------------------------------------------------------------


def _on_leave(step: Step, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer:
    group = step.group
    answer = HeartbeatAnswer(member_id=heartbeat.member_id, member_epoch=heartbeat.member_epoch)
    if heartbeat.instance_id is None:
        member = group.members.get(heartbeat.member_id)
        if member is None:
            return unknown_member(step, heartbeat.member_id)
        fence(step, [member])
        return answer
    known = group.by_instance(heartbeat.instance_id)
    if fault := instance_fault(known, heartbeat):
        return fault
    assert known is not None
    if heartbeat.member_epoch == STATIC_LEAVE_EPOCH:
        step.draft.put_current(known.away())
        step.cancel_timer(TimerKind.REBALANCE, known.member_id)
    else:
        fence(step, [known])
    return answer


def _on_timer(step: Step, event: TimerFired) -> None:
    member = step.group.members.get(event.timer.member_id)
    if member is None:
        return
    if event.timer.kind is TimerKind.REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return
    step.expelled_by = event.timer
    fence(step, [member])


_HANDLERS: Final[Mapping[type, Callable[[Step, Any], ConsumerAnswer | None]]] = {
    ConsumerHeartbeat: _on_consumer_heartbeat,
    PatternsResolved: _on_patterns_resolved,
    Configured: _on_configured,
    Installed: _on_installed,
    Recover: _on_installed,
    Removed: _on_removed,
    TimerFired: _on_timer,
    Join: on_join,
    Sync: on_sync,
    Heartbeat: on_heartbeat,
    Leave: on_leave,
}
