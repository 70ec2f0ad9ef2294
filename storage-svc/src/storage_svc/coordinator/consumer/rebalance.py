"""The steps a change of a consumer group takes: group epoch, target assignment, the member's own reconciliation.

    a subscription or a topic changed  -> group epoch + 1                        (`bump`)
    group epoch > assignment epoch     -> target assignment for the group epoch  (`update_target`)
    target epoch != member epoch       -> the member's next step towards it      (`reconcile`)
    a member goes                      -> its records go, group epoch + 1        (`fence`)

A target is computed at most once per assignment interval; until then members go on with the one there is. A group whose
last member of the new protocol goes turns into a classic one, if it may. Kafka: GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage_svc.coordinator.consumer.assignors import ASSIGNORS
from storage_svc.coordinator.consumer.assignors.group_view import GroupView, MemberView
from storage_svc.coordinator.consumer.group import metadata_hash
from storage_svc.coordinator.consumer.member import JOIN_EPOCH, ConsumerMember, MemberState, Partitions
from storage_svc.coordinator.consumer.migration import downgrade, may_downgrade
from storage_svc.coordinator.consumer.reconciliation import Target, reconciled
from storage_svc.coordinator.consumer.step import Step
from storage_svc.coordinator.machine.events import TimerKind
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason


def bump(step: Step, reason: RebalanceReason | None) -> None:
    """Raise the group epoch if there is a reason, or if the topics that the group reads have changed."""
    topics = step.environment.topics
    group = step.group
    found = metadata_hash(group.subscribed_topics(), topics)
    if reason is not None or found != group.metadata_hash:
        step.rebalance = reason or RebalanceReason.TOPICS_CHANGED
        step.draft.put_epoch(group.epoch + 1, found)
    step.note_hashed(topics.version)


def cause(member: ConsumerMember) -> RebalanceReason:
    """Return the reason that another subscription is, by the member as it was before."""
    return RebalanceReason.MEMBER_JOINED if member.epoch == JOIN_EPOCH else RebalanceReason.SUBSCRIPTION_CHANGED


def update_target(step: Step) -> None:
    group, now_ms = step.group, step.environment.now_ms
    if group.assignment_epoch >= group.epoch or not _may_assign(step):
        return
    assignor = ASSIGNORS[group.prevailing_assignor(step.environment.settings.assignors)]
    assignment = assignor(_view(step))
    for member_id in sorted(group.members):
        wanted = {topic_id: frozenset(each) for topic_id, each in assignment.get(member_id, {}).items() if each}
        if group.target.get(member_id) != wanted:
            step.draft.put_target(member_id, wanted)
    step.draft.put_assignment_epoch(group.epoch, now_ms)


def _may_assign(step: Step) -> bool:
    """Return whether the assignment interval is over. It also is when the last assignment, whose time the log keeps
    across restarts, lies in the future: the clock was set back."""
    since_ms, interval_ms = step.group.assignment_timestamp_ms, step.environment.settings.assignment_interval_ms
    return since_ms == 0 or interval_ms == 0 or not since_ms <= step.environment.now_ms < since_ms + interval_ms


def _view(step: Step) -> GroupView:
    group, topics = step.group, step.environment.topics
    members = {
        member_id: MemberView(
            group.members[member_id].instance_id,
            group.topic_ids(group.members[member_id], topics),
            group.target.get(member_id, {}),
        )
        for member_id in sorted(group.members)
    }
    found = (topics.get(name) for name in group.subscribed_topics())
    counts = {topic.id: topic.partition_count for topic in found if topic is not None}
    return GroupView(members, counts, group.is_homogeneous())


def reconcile(
    step: Step, member: ConsumerMember, owned: Partitions | None, *, subscription_changed: bool
) -> ConsumerMember:
    """Return the member after its next step, or the same member if there is none to take."""
    group = step.group
    if not subscription_changed and member.is_reconciled_to(group.assignment_epoch):
        return member
    target = Target(
        group.assignment_epoch,
        group.target.get(member.member_id, {}),
        group.topic_ids(member, step.environment.topics),
    )
    moved = reconciled(
        member,
        target,
        owned,
        lambda topic_id, partition: group.is_taken(member.member_id, topic_id, partition),
        subscription_changed=subscription_changed,
    )
    if moved == member:
        return member
    step.draft.put_current(moved)
    if moved.classic is None:
        if moved.state is MemberState.UNREVOKED_PARTITIONS:
            step.set_timer(TimerKind.REBALANCE, moved.member_id, moved.rebalance_timeout_ms)
        else:
            step.cancel_timer(TimerKind.REBALANCE, moved.member_id)
    return moved


def fence(step: Step, members: Iterable[ConsumerMember]) -> None:
    """Remove these members. Their partitions are free; the others get them with the next target."""
    leaving = {member.member_id for member in members}
    if not leaving:
        return
    if may_downgrade(step.group, leaving, step.environment):
        downgrade(step, leaving, rebalance=True)
        return
    for member_id in sorted(leaving):
        step.draft.remove(member_id)
        step.cancel_timers(member_id)
    step.draft.forget_unused_patterns()
    # mutant: rebalance-reason
    bump(step, RebalanceReason.MEMBER_FAILED if step.expelled_by else RebalanceReason.MEMBER_LEFT)
