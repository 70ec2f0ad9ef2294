"""JoinGroup: which callers are let in, which are answered at once, and which wait until the rebalance ends.

Order of checks: dead 15, full 81, no common protocol 23. Then by caller: a new member gets an id (79) or is parked, a
pending one is parked, a static one that lost its id gets its own place again. All others must be members.

A static member that comes back while the group is stable changes nothing for the others. Its new id is stored, then it
is sent the current generation. A client that still uses the old id is fenced (82).
"""

from __future__ import annotations

from typing import Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import GroupState, Join, JoinAnswer, session_timer
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.classic.pending_writes import Replacement
from storage_svc.coordinator.classic.step import Step
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason

#: The longest life of an id that was handed out with MEMBER_ID_REQUIRED, in milliseconds: its client joins at once.
PENDING_MEMBER_TIMEOUT_MS: Final = 60_000
#: The time for which a new member's join may be parked while its client may be dead (Kafka's value).
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState


def on_join(step: Step, join: Join) -> None:
    group, members = step.group, step.group.members
    if group.state is _DEAD:
        _refuse(step, join, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not _has_room(group, join):
        _refuse(step, join, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if join.member_id in members or join.member_id in members.pending:
            step.expel(join.member_id)
    elif not _supports_protocols(group, join):
        _refuse(step, join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif not join.member_id:
        _on_new_join(step, join)
    elif join.member_id in members.pending and join.instance_id is None:
        _add(step, join.member_id, join)
    elif error := members.error(join.member_id, join.instance_id):
        _refuse(step, join, error)
    else:
        _on_known_join(step, join, members[join.member_id])


def _refuse(step: Step, join: Join, error: ErrorCode, member_id: str | None = None) -> None:
    member_id = join.member_id if member_id is None else member_id
    step.answer(join.request, JoinAnswer(error=error, member_id=member_id))


def _has_room(group: Group, join: Join) -> bool:
    """Return whether the caller is let in, as Kafka decides it. Pending ids take no place."""
    members, size_max = group.members, group.limits.size_max
    if group.state is _EMPTY:
        return True
    member = members.get(join.member_id)
    if group.state is _PREPARING:
        return (member is not None and member.join_request is not None) or members.joined_count() < size_max
    return member is not None or len(members) < size_max


def _supports_protocols(group: Group, join: Join) -> bool:
    if not join.protocol_type or not join.protocols:
        return False
    if group.state is _EMPTY or not group.members:
        return True
    return group.protocol_type == join.protocol_type and any(group.members.support(name) for name, _ in join.protocols)


def _on_new_join(step: Step, join: Join) -> None:
    group = step.group
    if join.instance_id is not None:
        known = group.members.by_instance(join.instance_id)
        if known is None:
            _add(step, join.new_member_id, join)
        else:
            _replace_static(step, known, join)
    elif join.require_known_member_id:
        dropped = group.members.expect(join.new_member_id)
        if dropped is not None:
            step.remove(dropped)
        step.set_timer(session_timer(join.new_member_id), min(join.session_timeout_ms, PENDING_MEMBER_TIMEOUT_MS))
        _refuse(step, join, ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id)
    else:
        _add(step, join.new_member_id, join)


def _add(step: Step, member_id: str, join: Join) -> None:
    group = step.group
    group.initial_delay.note_newcomer()
    if not group.members:
        group.protocol_type = join.protocol_type
    group.members.add(Member.joining(member_id, join))
    step.set_timer(session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    step.prepare_rebalance(RebalanceReason.MEMBER_JOINED)
    step.maybe_complete_join()


def _on_known_join(step: Step, join: Join, member: Member) -> None:
    group = step.group
    unchanged = member.protocols == join.protocols
    if group.state is _COMPLETING and unchanged:
        # It may have missed the answer to its first JoinGroup: the same answer again.
        step.answer_join(join.request, member)
    elif group.state is _STABLE and unchanged and member.member_id != group.members.leader_id:
        step.answer_join(join.request, member)
    else:
        group.members.update(member, join)
        # The client asked again, most likely on a new connection: only the newest request is kept.
        step.refuse_parked_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        group.members.park(member, join.request)
        step.prepare_rebalance(RebalanceReason.LEADER_REJOINED if unchanged else RebalanceReason.SUBSCRIPTION_CHANGED)
        step.maybe_complete_join()


def _replace_static(step: Step, previous: Member, join: Join) -> None:
    """Give a static member that came back without its id a new one; a client that uses the old one is fenced."""
    group = step.group
    previous_leader = group.members.leader_id or ""
    member = previous.renamed(join.new_member_id)
    member.update(join)
    group.members.park(member, join.request)
    step.replace(previous, member)
    if group.state is _STABLE and group.protocol_name == group.members.select_protocol():
        write = Replacement(
            group.generation_id, member.member_id, previous, previous_leader, join.supports_skipping_assignment
        )
        step.store(write, {known.member_id: known.assignment for known in group.members})
    else:
        # Completing: the leader may be assigning to the old id at this moment.
        step.prepare_rebalance(RebalanceReason.MEMBER_JOINED)
        step.maybe_complete_join()


def on_replacement_stored(step: Step, write: Replacement, error: ErrorCode) -> None:
    group = step.group
    member = group.members.get(write.member_id)
    if member is None or member.join_request is None:
        return  # It left, was replaced again, or a rebalance has answered it.
    if group.state is not _STABLE or group.generation_id != write.generation_id:
        return  # A rebalance will answer it.
    request = member.join_request
    group.members.park(member, None)
    if error:
        step.replace(member, write.previous)  # mutant: static-id-taken-back
        step.answer(request, JoinAnswer(error=error))
        return
    step.start_session(member)
    if write.supports_skipping_assignment:
        step.answer_join(request, member, skip=member.member_id == group.members.leader_id)  # mutant: skip-assignment
    else:
        # Before KIP-814 no answer could make a leader skip the assignment: it sees its old id as the leader's.
        step.answer_join(request, member, leader=write.previous_leader)
