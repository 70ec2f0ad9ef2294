"""SyncGroup: how the leader's assignment reaches the members.

While the group completes a rebalance every sync is parked. The leader's brings the assignment, which is stored; once it
is durable the group is stable, and all that are parked are answered. A sync that comes later is answered at once. Who
has not synced when the rebalance timeout is over is out.
"""

from __future__ import annotations

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import SYNC_TIMER, GroupState, Sync, SyncAnswer
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.classic.pending_writes import Assignments


def on_sync(group: Group, sync: Sync) -> None:
    if error := _error(group, sync):
        group.answer(sync.request, SyncAnswer(error=error))
        return
    member = group.members[sync.member_id]
    group.pending_syncs.discard(sync.member_id)
    if not group.pending_syncs:
        group.cancel_timer(SYNC_TIMER)
    if group.state is GroupState.STABLE:
        _answer(group, sync.request, member)
        return
    group.refuse_parked_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync_request = sync.request
    if sync.member_id == group.members.leader_id and not group.writes.has_assignments(group.generation_id):
        assignments = {member_id: sync.assignments.get(member_id, b"") for member_id in group.members.ids()}
        group.store(Assignments(group.generation_id, assignments), assignments)


def _error(group: Group, sync: Sync) -> ErrorCode:
    if error := group.call_error(sync.member_id, sync.instance_id, sync.generation_id):
        return error
    if sync.protocol_type is not None and sync.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sync.protocol_name is not None and sync.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def _answer(group: Group, request: int, member: Member) -> None:
    answer = SyncAnswer(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
    group.answer(request, answer)
    group.start_session(member)


def on_assignments_stored(group: Group, write: Assignments, error: ErrorCode) -> None:
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != write.generation_id:
        return  # A new rebalance began meanwhile.
    if error:
        group.refuse_parked_syncs(error)
        group.prepare_rebalance()
        return
    group.enter(GroupState.STABLE)
    for member in group.members:
        member.assignment = write.assignments.get(member.member_id, b"")
        if member.sync_request is not None:
            _answer(group, member.sync_request, member)
            member.sync_request = None


def on_sync_timer(group: Group) -> None:
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) and group.pending_syncs:
        group.expel(*group.pending_syncs)
