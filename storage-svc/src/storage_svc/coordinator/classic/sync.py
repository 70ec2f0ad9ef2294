"""SyncGroup: how the leader's assignment reaches the members.

While the group completes a rebalance every sync is parked. The leader's brings the assignment, which is stored. Once it
is durable the group is stable, and all parked syncs are answered. A later sync is answered at once. A member that has
not synced when the rebalance timeout ends is removed.
"""

from __future__ import annotations

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import SYNC_TIMER, GroupState, Sync, SyncAnswer
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.classic.pending_writes import Assignments
from storage_svc.coordinator.classic.step import Step
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason


def on_sync(step: Step, sync: Sync) -> None:
    group = step.group
    if error := _error(group, sync):
        step.answer(sync.request, SyncAnswer(error=error))
        return
    member = group.members[sync.member_id]
    group.pending_syncs.discard(sync.member_id)
    if not group.pending_syncs:
        step.cancel_timer(SYNC_TIMER)
    if group.state is GroupState.STABLE:
        _answer(step, sync.request, member)
        return
    step.refuse_parked_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync_request = sync.request
    if sync.member_id == group.members.leader_id and not group.writes.has_assignments(group.generation_id):
        assignments = {member_id: sync.assignments.get(member_id, b"") for member_id in group.members.ids()}
        step.store(Assignments(group.generation_id, assignments), assignments)


def _error(group: Group, sync: Sync) -> ErrorCode:
    if error := group.call_error(sync.member_id, sync.instance_id, sync.generation_id):
        return error
    if sync.protocol_type is not None and sync.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sync.protocol_name is not None and sync.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def _answer(step: Step, request: int, member: Member) -> None:
    group = step.group
    answer = SyncAnswer(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
    step.answer(request, answer)
    step.start_session(member)


def on_assignments_stored(step: Step, write: Assignments, error: ErrorCode) -> None:
    group = step.group
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != write.generation_id:
        return  # A new rebalance has begun.
    if error:  # mutant: unstored-assignment-refused
        step.refuse_parked_syncs(error)
        step.prepare_rebalance(RebalanceReason.WRITE_FAILED)
        return
    step.enter(GroupState.STABLE)
    for member in group.members:
        member.assignment = write.assignments.get(member.member_id, b"")
        if member.sync_request is not None:
            _answer(step, member.sync_request, member)
            member.sync_request = None


def on_sync_timer(step: Step) -> None:
    group = step.group
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) and group.pending_syncs:
        step.expel(*group.pending_syncs)
