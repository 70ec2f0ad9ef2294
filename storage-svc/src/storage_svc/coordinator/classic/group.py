"""A classic consumer group: its state, and the steps by which a rebalance takes it from one generation to the next.

    EMPTY or STABLE or COMPLETING --prepare_rebalance--> PREPARING: joins are parked until all are in, or time is up
    PREPARING --complete_join--> COMPLETING: every member knows the new generation; syncs are parked
    COMPLETING --the leader's assignment is durable (syncing.py)--> STABLE

Pure: no clock, no I/O. What is to be done is collected in `out`, in order. Which event leads to which step is the
business of group_machine.py, joining.py and syncing.py; nobody else changes a group. Kafka: ClassicGroup.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataValue

from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    VALID_PREVIOUS,
    Answer,
    AnswerValue,
    CancelTimer,
    GroupState,
    Instruction,
    JoinAnswer,
    JoinedMember,
    SetTimer,
    Store,
    SyncAnswer,
    Timer,
    session_timer,
)
from storage_svc.coordinator.classic.initial_delay import InitialDelay
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.classic.membership import Membership
from storage_svc.coordinator.classic.pending_writes import Emptied, PendingWrites, Write

_HISTORY_LENGTH: Final = 16

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState


class InvalidTransitionError(Exception):
    """A bug: a state was to be entered from one that `VALID_PREVIOUS` does not list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    initial_rebalance_delay_ms: int = 3000
    size_max: int = 2**31 - 1


class Group:
    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        #: Wall clock time of the event that is being handled.
        self.now_ms = now_ms
        #: Wall clock time of the last change of state; offsets of an empty group expire from here.
        self.state_timestamp_ms = now_ms
        #: Completed rebalances.
        self.generation_id = 0
        #: Fixed by the first member; "" until there was one.
        self.protocol_type = ""
        #: The chosen protocol of the current generation; None while the group is empty.
        self.protocol_name: str | None = None
        self.members = Membership()
        #: Members that have not sent SyncGroup in this generation.
        self.pending_syncs: set[str] = set()
        self.initial_delay = InitialDelay(limits.initial_rebalance_delay_ms)
        self.writes = PendingWrites()
        self.out: list[Instruction] = []
        self._history: deque[str] = deque(maxlen=_HISTORY_LENGTH)

    @classmethod
    def restore(
        cls, group_id: str, stored: GroupMetadataValue, limits: GroupLimits, now_ms: int
    ) -> tuple[Group, list[Instruction]]:
        """The group as the log holds it; loaded members get a full session timeout."""
        group = cls(group_id, limits, now_ms)
        group.protocol_type = stored.protocol_type
        group.generation_id = stored.generation
        if stored.current_state_timestamp >= 0:
            group.state_timestamp_ms = stored.current_state_timestamp
        if not stored.members:
            return group, []
        group.state = GroupState.STABLE
        group.protocol_name = stored.protocol or ""
        for stored_member in stored.members:
            group.members.add(Member.restored(stored_member, group.protocol_name))
        group.members.elect(stored.leader)
        for member in group.members:
            group.start_session(member)
        return group, group.take_out()

    def take_out(self) -> list[Instruction]:
        out, self.out = self.out, []
        return out

    def is_idle(self) -> bool:
        """Nothing would be lost by forgetting the group (but for its committed offsets)."""
        return self.state is _EMPTY and not self.members.pending and not self.writes

    def enter(self, state: GroupState) -> None:
        self._history.append(f"{self.state.value}->{state.value}@{self.generation_id}")
        if self.state not in VALID_PREVIOUS[state]:
            raise InvalidTransitionError(f"group {self.group_id!r}: {', '.join(self._history)}")
        self.state = state
        self.state_timestamp_ms = self.now_ms

    # --- rebalance ------------------------------------------------------------------------------------------------

    def prepare_rebalance(self) -> None:
        """Begins to wait for joins, if the group's state allows that and it does not yet."""
        if self.state not in VALID_PREVIOUS[_PREPARING]:
            return
        if self.state is _COMPLETING:
            self.refuse_parked_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        if self.pending_syncs:
            self.pending_syncs.clear()
            self.cancel_timer(SYNC_TIMER)
        delay_ms = self.members.rebalance_timeout_ms()
        if self.state is _EMPTY:
            delay_ms = self.initial_delay.begin(delay_ms)
        self.enter(_PREPARING)
        self.set_timer(JOIN_TIMER, delay_ms)

    def maybe_complete_join(self) -> None:
        """Ends the join phase if everybody is in."""
        if self.state is not _PREPARING or self.initial_delay.is_running or self.members.pending:
            return
        if self.members.joined_count() == len(self.members):
            self.complete_join()

    def complete_join(self) -> None:
        """End of the join phase: dynamic members that did not come are out; the others get the new generation."""
        for member in list(self.members):
            if member.join_request is None and member.instance_id is None:
                self.remove(member.member_id)
        self.initial_delay.end()
        if self.members and not self.members.elect_joined_leader():
            # Only static members, none of which came: wait until they do or their sessions end.
            self.set_timer(JOIN_TIMER, self.members.rebalance_timeout_ms())
            return
        self.cancel_timer(JOIN_TIMER)
        self.generation_id += 1
        if not self.members:
            self.protocol_name = None
            self.enter(_EMPTY)
            self.store(Emptied(), {})
            return
        self.protocol_name = self.members.select_protocol()
        self.enter(_COMPLETING)
        self.pending_syncs = set(self.members.ids())
        for member in self.members:
            if member.join_request is not None:
                self.answer_join(member.join_request, member)
                member.join_request = None
            member.is_new = False
            self.start_session(member)
        self.set_timer(SYNC_TIMER, self.members.rebalance_timeout_ms())

    # --- members --------------------------------------------------------------------------------------------------

    def call_error(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Why a sync, heartbeat or commit of a member is refused, whatever else the state says."""
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.members.error(member_id, instance_id):
            return error
        return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def remove(self, member_id: str) -> None:
        """Forgets a member or pending member; whatever it has parked is answered UNKNOWN_MEMBER_ID, so that it joins
        again if it is alive."""
        self.cancel_timer(session_timer(member_id))
        self.pending_syncs.discard(member_id)
        member = self.members.remove(member_id)
        if member is not None:
            self.refuse_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def expel(self, *member_ids: str, is_told: bool = False) -> None:
        """Removes them; the others rebalance. Somebody who was pending only was no part of the generation: at most a
        rebalance that goes on ends sooner, unless it says itself that it leaves, which Kafka takes for a change."""
        had_members = is_told or any(member_id in self.members for member_id in member_ids)
        for member_id in member_ids:
            self.remove(member_id)
        if had_members and self.state is not _EMPTY:
            self.prepare_rebalance()
        self.maybe_complete_join()

    def replace(self, previous: Member, member: Member) -> None:
        """Puts `member` into the place of `previous`, whose parked calls are fenced."""
        self.refuse_parked(previous, ErrorCode.FENCED_INSTANCE_ID)
        self.cancel_timer(session_timer(previous.member_id))
        self.members.replace(previous, member)
        if previous.member_id in self.pending_syncs:
            self.pending_syncs.remove(previous.member_id)
            self.pending_syncs.add(member.member_id)
        self.start_session(member)

    # --- instructions ---------------------------------------------------------------------------------------------

    def answer(self, request: int, value: AnswerValue) -> None:
        self.out.append(Answer(request, value))

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.out.append(SetTimer(timer, delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self.out.append(CancelTimer(timer))

    def start_session(self, member: Member) -> None:
        self.set_timer(session_timer(member.member_id), member.session_timeout_ms)

    def answer_join(self, request: int, member: Member, *, leader: str | None = None, skip: bool = False) -> None:
        """The current generation, with all members' metadata if this is its leader (and is told so)."""
        protocol_name = self.protocol_name or ""
        leader = self.members.leader_id or "" if leader is None else leader
        members: tuple[JoinedMember, ...] = ()
        if leader == member.member_id:
            members = tuple(
                JoinedMember(known.member_id, known.instance_id, known.metadata(protocol_name))
                for known in self.members
            )
        answer = JoinAnswer(
            member_id=member.member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
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
            self.answer(member.join_request, JoinAnswer(error=error, member_id=member.member_id))
            member.join_request = None

    def refuse_parked_sync(self, member: Member, error: ErrorCode) -> None:
        if member.sync_request is not None:
            self.answer(member.sync_request, SyncAnswer(error=error))
            member.sync_request = None

    def refuse_parked_syncs(self, error: ErrorCode) -> None:
        """The members stay. Their sessions start again: they may have run out, ignored, while the calls were parked."""
        for member in self.members:
            if member.sync_request is not None:
                self.refuse_parked_sync(member, error)
                self.start_session(member)

    def store(self, write: Write, assignments: Mapping[str, bytes]) -> None:
        self.out.append(Store(self.writes.begin(write), self.stored(assignments)))

    def stored(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """The group as it is now, with these assignments, as it is written to the log."""
        name = self.protocol_name
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation_id,
            protocol=name,
            leader=self.members.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=tuple(member.stored(name or "", assignments.get(member.member_id, b"")) for member in self.members),
        )

    def check_invariants(self) -> None:
        """What must hold between events. For tests."""
        self.members.check_invariants()
        joins = [member for member in self.members if member.join_request is not None]
        syncs = [member for member in self.members if member.sync_request is not None]
        assert (len(self.members) == 0) >= (self.state in (_EMPTY, _DEAD)), self.state
        assert self.pending_syncs <= set(self.members.ids())
        assert not self.pending_syncs or self.state in (_COMPLETING, _STABLE)
        assert not self.initial_delay.is_running or self.state is _PREPARING
        assert not syncs or self.state is _COMPLETING
        assert all(member.member_id not in self.pending_syncs for member in syncs)
        if self.state in (_COMPLETING, _STABLE):
            assert self.protocol_name in self.members.common_protocols()
            assert not any(member.is_new for member in self.members)
            assert {member.member_id for member in joins} <= self.writes.replacing()
        if self.state is _PREPARING and not self.initial_delay.is_running and not self.members.pending:
            assert len(joins) < len(self.members), "everybody has joined, and the rebalance goes on"
