"""One event of a classic group being handled: the steps that change the group, and the outcome they add up to.

    EMPTY or STABLE or COMPLETING --prepare_rebalance--> PREPARING: joins are parked until all are in, or time is up
    PREPARING --complete_join--> COMPLETING: every member knows the new generation; syncs are parked
    COMPLETING --the leader's assignment is durable (sync.py)--> STABLE

`machine.py`, `join_phase.py` and `sync.py` decide which event leads to which step. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataKey

from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    VALID_PREVIOUS,
    AnswerValue,
    GroupState,
    JoinAnswer,
    JoinedMember,
    Stored,
    SyncAnswer,
    session_timer,
)
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.classic.pending_writes import Emptied, Write
from storage_svc.coordinator.machine.events import Timer
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, Outcome, SetTimer
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState


class Step:
    def __init__(self, group: Group, now_ms: int) -> None:
        """Begin to handle an event; `now_ms` is wall clock time."""
        self.group = group
        self.now_ms = now_ms
        self.outcome = Outcome(group)

    def enter(self, state: GroupState) -> None:
        self.group.enter(state, self.now_ms)

    # --- rebalance ------------------------------------------------------------------------------------------------

    def prepare_rebalance(self, reason: RebalanceReason) -> None:
        """Begin to wait for joins, if the group's state allows that and the group does not wait yet."""
        group = self.group
        if group.state not in VALID_PREVIOUS[_PREPARING]:
            return
        if group.state is _COMPLETING:
            self.refuse_parked_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members:  # those of the generation before do not hold any more
                member.assignment = b""
        if group.pending_syncs:
            group.pending_syncs.clear()
            self.cancel_timer(SYNC_TIMER)
        delay_ms = group.members.rebalance_timeout_ms()
        if group.state is _EMPTY:
            delay_ms = group.initial_delay.begin(delay_ms)
        self.enter(_PREPARING)
        self.outcome.rebalance = reason
        self.set_timer(JOIN_TIMER, delay_ms)

    def maybe_complete_join(self) -> None:
        """End the join phase if every member has joined."""
        group = self.group
        if group.state is not _PREPARING or group.initial_delay.is_running or group.members.pending:
            return
        if group.members.joined_count() == len(group.members):
            self.complete_join()

    def complete_join(self) -> None:
        """End the join phase: remove dynamic members that did not join, send the others the new generation."""
        group = self.group
        for member in list(group.members):
            if member.join_request is None and member.instance_id is None:
                self.remove(member.member_id)
        group.initial_delay.end()
        if group.members and not group.members.elect_joined_leader():
            # Only static members, none of which came: wait until they do or their sessions end.
            self.set_timer(JOIN_TIMER, group.members.rebalance_timeout_ms())
            return
        self.cancel_timer(JOIN_TIMER)
        group.generation_id += 1
        if not group.members:
            group.protocol_name = None
            self.enter(_EMPTY)
            self.store(Emptied(), {})
            return
        group.protocol_name = group.members.select_protocol()
        self.enter(_COMPLETING)
        group.pending_syncs = set(group.members.ids())
        for member in group.members:
            if member.join_request is not None:
                self.answer_join(member.join_request, member)
                group.members.park(member, None)
            member.is_new = False
            self.start_session(member)
        self.set_timer(SYNC_TIMER, group.members.rebalance_timeout_ms())

    # --- members --------------------------------------------------------------------------------------------------

    def remove(self, member_id: str) -> None:
        """Forget a member or pending member. Its parked calls are answered UNKNOWN_MEMBER_ID: a live client joins
        again."""
        self.cancel_timer(session_timer(member_id))
        self.group.pending_syncs.discard(member_id)
        member = self.group.members.remove(member_id)
        if member is not None:
            self.refuse_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def expel(self, *member_ids: str, has_left: bool = False) -> None:
        """Remove these; the others rebalance.

        A pending member was no part of the generation. Without it a rebalance under way ends sooner, no more. One that
        sent LeaveGroup itself (`has_left`) counts as a change, as in Kafka.
        """
        had_members = has_left or any(member_id in self.group.members for member_id in member_ids)
        for member_id in member_ids:
            self.remove(member_id)
        if had_members and self.group.state is not _EMPTY:
            self.prepare_rebalance(RebalanceReason.MEMBER_LEFT if has_left else RebalanceReason.MEMBER_FAILED)
        self.maybe_complete_join()

    def replace(self, previous: Member, member: Member) -> None:
        """Put `member` into the place of `previous`, whose parked calls are fenced."""
        group = self.group
        self.refuse_parked(previous, ErrorCode.FENCED_INSTANCE_ID)
        self.cancel_timer(session_timer(previous.member_id))
        group.members.replace(previous, member)
        if previous.member_id in group.pending_syncs:
            group.pending_syncs.remove(previous.member_id)
            group.pending_syncs.add(member.member_id)
        self.start_session(member)

    # --- the outcome ----------------------------------------------------------------------------------------------

    def answer(self, request: int, value: AnswerValue) -> None:
        self.outcome.answers.append(Answer(request, value))

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.outcome.timers.append(SetTimer(timer, delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self.outcome.timers.append(CancelTimer(timer))

    def start_session(self, member: Member) -> None:
        self.set_timer(session_timer(member.member_id), member.session_timeout_ms)

    def store(self, write: Write, assignments: Mapping[str, bytes]) -> None:
        """Write the group with these assignments; `Stored` follows. At most once an event."""
        group = self.group
        self.outcome.records = [(GroupMetadataKey(group=group.group_id), group.stored(assignments))]
        self.outcome.stored = partial(Stored, group.writes.begin(write))

    def answer_join(self, request: int, member: Member, *, leader: str | None = None, skip: bool = False) -> None:
        """Answer with the current generation; the leader also gets the metadata of all members.

        Args:
            leader: the id to show as the leader's; the leader itself if None.
        """
        group = self.group
        protocol_name = group.protocol_name or ""
        leader = group.members.leader_id or "" if leader is None else leader
        members: tuple[JoinedMember, ...] = ()
        if leader == member.member_id:
            members = tuple(
                JoinedMember(known.member_id, known.instance_id, known.metadata(protocol_name))
                for known in group.members
            )
        answer = JoinAnswer(
            member_id=member.member_id,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=protocol_name,
            leader=leader,
            skip_assignment=skip,
            members=members,
        )
        self.answer(request, answer)

    def refuse_parked(self, member: Member, error: ErrorCode) -> None:
        self.refuse_parked_join(member, error)
        self.refuse_parked_sync(member, error)

    def refuse_parked_join(self, member: Member, error: ErrorCode) -> None:
        if member.join_request is not None:
            member_id = "" if error == ErrorCode.UNKNOWN_MEMBER_ID else member.member_id  # as in Kafka: join as nobody
            self.answer(member.join_request, JoinAnswer(error=error, member_id=member_id))
            self.group.members.park(member, None)

    def refuse_parked_sync(self, member: Member, error: ErrorCode) -> None:
        if member.sync_request is not None:
            self.answer(member.sync_request, SyncAnswer(error=error))
            member.sync_request = None

    def refuse_parked_syncs(self, error: ErrorCode) -> None:
        """Refuse every parked sync. Sessions start again: they may have run out, ignored, while the calls were
        parked."""
        for member in self.group.members:
            if member.sync_request is not None:
                self.refuse_parked_sync(member, error)
                self.start_session(member)
