"""The classic consumer group as a pure state machine: events in, instructions out, no clock, no I/O.

How each state answers (`=` as to its left; codes are Kafka's). States and what they mean: `group_events.GroupState`.

    event                     Empty          Preparing      Completing                 Stable                     Dead
    Join, new dynamic, v4+    79 and an id, pending until its session timeout                                  =  15
    Join, known or pending    start          park           same metadata: current     follower, same metadata:   15
                                                            generation; else rebalance current; else rebalance
    Join, unknown id          25             =              =                          =                          15
    Sync                      25             27             park; the leader's call    assignment                 15
                                                            stores, then Stable
    Heartbeat                 25             27             0                          0                          15
    Commit by a member        25             0              27                         0                          15
    Commit, generation < 0    0              25             25                         25                         15
    Leave                     25             complete the   rebalance                  rebalance                  15
                                             join if all in

Order of checks: dead 15, instance id of another member 82, unknown member 25, generation 22, protocol 23.

Timers: JOIN is the initial delay (from Empty; extended while new members arrive) or the rebalance timeout; SYNC bounds
the wait for every member's SyncGroup; SESSION runs per member and per pending member, is restarted by heartbeats,
commits and answered joins and syncs, and for a new member whose join is parked it is `NEW_MEMBER_JOIN_TIMEOUT_MS`.

Owner: the coordinator that calls `handle`, from one thread. Kafka: ClassicGroup, GroupMetadataManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.group_events import (
    JOIN_TIMER,
    SYNC_TIMER,
    VALID_PREVIOUS,
    Answer,
    CancelTimer,
    Commit,
    ErrorAnswer,
    Event,
    GroupState,
    Heartbeat,
    Instruction,
    Join,
    JoinAnswer,
    JoinedMember,
    Leave,
    LeaveAnswer,
    Leaver,
    Retire,
    SetTimer,
    Store,
    Stored,
    Sync,
    SyncAnswer,
    TimerFired,
    TimerKind,
    session_timer,
)
from storage_svc.coordinator.member import Member
from storage_svc.coordinator.membership import Membership
from storage_svc.coordinator.offsets import StoredGroup

#: A new member whose parked client died is invisible until then (Kafka's value).
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
_HISTORY_LENGTH: Final = 16

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState


class InvalidTransitionError(Exception):
    """A bug: a state was to be entered from one that `VALID_PREVIOUS` does not list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    initial_rebalance_delay_ms: int = 3000
    size_max: int = 2**31 - 1


@dataclass(slots=True)
class _Assignments:
    """A pending store: the leader's assignment of a generation."""

    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(slots=True)
class _Replacement:
    """A pending store: a static member came back under a new id while the group is stable."""

    generation_id: int
    member_id: str
    previous: Member
    previous_leader: str
    supports_skipping_assignment: bool


class Group:
    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
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
        #: During the initial delay: how much longer it may be extended. None otherwise.
        self._initial_remaining_ms: int | None = None
        #: During the initial delay: a member came since the timer was set.
        self._new_member_added = False
        #: write number -> what to do once it is durable.
        self._writes: dict[int, _Assignments | _Replacement | None] = {}
        self._next_write = 1
        self._now_ms = now_ms
        self._out: list[Instruction] = []
        self._history: deque[str] = deque(maxlen=_HISTORY_LENGTH)
        self._handlers: dict[type, Callable[..., None]] = {
            Join: self._on_join,
            Sync: self._on_sync,
            Heartbeat: self._on_heartbeat,
            Leave: self._on_leave,
            Commit: self._on_commit,
            TimerFired: self._on_timer,
            Stored: self._on_stored,
            Retire: self._on_retire,
        }

    @classmethod
    def restore(
        cls, group_id: str, stored: StoredGroup, limits: GroupLimits, now_ms: int
    ) -> tuple[Group, list[Instruction]]:
        """The group as the log holds it; loaded members get a full session timeout."""
        group = cls(group_id, limits, now_ms)
        group.protocol_type = stored.protocol_type
        group.generation_id = stored.generation_id
        if stored.state_timestamp_ms >= 0:
            group.state_timestamp_ms = stored.state_timestamp_ms
        if not stored.members:
            return group, []
        group.state = GroupState.STABLE
        group.protocol_name = stored.protocol_name or ""
        for stored_member in stored.members:
            group.members.add(Member.restored(stored_member, group.protocol_name))
        group.members.elect(stored.leader)
        for member in group.members:
            group._start_session(member)
        return group, group._take_out()

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """The instructions that follow from the event. `now_ms` is wall clock time."""
        self._now_ms = now_ms
        self._handlers[type(event)](event)
        return self._take_out()

    def is_idle(self) -> bool:
        """Nothing would be lost by forgetting the group (but for its committed offsets)."""
        return self.state is _EMPTY and not self.members.pending and not self._writes

    def _take_out(self) -> list[Instruction]:
        out, self._out = self._out, []
        return out

    # --- join -----------------------------------------------------------------------------------------------------

    def _on_join(self, join: Join) -> None:
        if self.state is _DEAD:
            self._refuse_join(join, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._has_room_for(join):
            self._refuse_join(join, ErrorCode.GROUP_MAX_SIZE_REACHED)
            if join.member_id in self.members or join.member_id in self.members.pending:
                self._remove(join.member_id)
                self._after_removal()
        elif not self._supports_protocols(join):
            self._refuse_join(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not join.member_id:
            self._on_new_join(join)
        elif join.member_id in self.members.pending and join.instance_id is None:
            self._add(join.member_id, join)
        elif error := self.members.error(join.member_id, join.instance_id):
            self._refuse_join(join, error)
        else:
            self._on_known_join(join, self.members[join.member_id])

    def _refuse_join(self, join: Join, error: ErrorCode, member_id: str | None = None) -> None:
        member_id = join.member_id if member_id is None else member_id
        self._out.append(Answer(join.request, JoinAnswer(error=error, member_id=member_id)))

    def _has_room_for(self, join: Join) -> bool:
        """A member that is known is let in; while a rebalance is prepared only if it is parked already (Kafka)."""
        if self.state is _EMPTY:
            return join.member_id in self.members.pending or len(self.members.pending) < self.limits.size_max
        if self.state is _PREPARING:
            member = self.members.get(join.member_id)
            if member is not None and member.join_request is not None:
                return True
            taken = self.members.joined_count()
        else:
            if join.member_id in self.members:
                return True
            taken = len(self.members)
        return taken + len(self.members.pending - {join.member_id}) < self.limits.size_max

    def _supports_protocols(self, join: Join) -> bool:
        if not join.protocol_type or not join.protocols:
            return False
        if self.state is _EMPTY or not self.members:
            return True
        common = self.members.common_protocols()
        return self.protocol_type == join.protocol_type and any(name in common for name, _ in join.protocols)

    def _on_new_join(self, join: Join) -> None:
        if join.instance_id is not None:
            known = self.members.by_instance(join.instance_id)
            if known is None:
                self._add(join.new_member_id, join)
            else:
                self._replace_static(known, join)
        elif join.require_known_member_id:
            self.members.pending.add(join.new_member_id)
            self._out.append(SetTimer(session_timer(join.new_member_id), join.session_timeout_ms))
            self._refuse_join(join, ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id)
        else:
            self._add(join.new_member_id, join)

    def _on_known_join(self, join: Join, member: Member) -> None:
        unchanged = member.protocols == join.protocols
        if self.state is _COMPLETING and unchanged:
            # It may have missed the answer to its first JoinGroup: the same answer again.
            self._answer_join(join.request, member)
        elif self.state is _STABLE and unchanged and member.member_id != self.members.leader_id:
            self._answer_join(join.request, member)
        else:
            member.take(join)
            self._park_join(member, join.request)
            self._prepare_rebalance()
            self._maybe_complete_join()

    def _add(self, member_id: str, join: Join) -> None:
        if self._initial_remaining_ms is not None:
            self._new_member_added = True
        if not self.members:
            self.protocol_type = join.protocol_type
        member = Member.joining(member_id, join)
        self.members.add(member)
        self._out.append(SetTimer(session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS))
        self._prepare_rebalance()
        self._maybe_complete_join()

    def _replace_static(self, previous: Member, join: Join) -> None:
        """A static member came back without its id: it gets a new one, whoever still uses the old one is fenced."""
        previous_leader = self.members.leader_id or ""
        member = previous.renamed(join.new_member_id)
        member.take(join)
        member.join_request = join.request
        self._replace(previous, member)
        if self.state is _STABLE and self.protocol_name == self.members.select_protocol():
            self._store(
                _Replacement(
                    generation_id=self.generation_id,
                    member_id=member.member_id,
                    previous=previous,
                    previous_leader=previous_leader,
                    supports_skipping_assignment=join.supports_skipping_assignment,
                ),
                {known.member_id: known.assignment for known in self.members},
            )
        else:
            # Completing: the leader may be assigning to the old id at this moment.
            self._prepare_rebalance()
            self._maybe_complete_join()

    def _replace(self, previous: Member, member: Member) -> None:
        """Puts `member` into the place of `previous`, whose parked calls are fenced."""
        self._answer_parked(previous, ErrorCode.FENCED_INSTANCE_ID)
        self._out.append(CancelTimer(session_timer(previous.member_id)))
        self.members.replace(previous, member)
        if previous.member_id in self.pending_syncs:
            self.pending_syncs.remove(previous.member_id)
            self.pending_syncs.add(member.member_id)
        self._start_session(member)

    def _park_join(self, member: Member, request: int) -> None:
        if member.join_request is not None:
            # The client asked again, most likely on a new connection: only the newest request is kept.
            self._refuse_parked_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join_request = request

    def _answer_join(self, request: int, member: Member, *, leader: str | None = None, skip: bool = False) -> None:
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
        self._out.append(Answer(request, answer))

    # --- rebalance ------------------------------------------------------------------------------------------------

    def _prepare_rebalance(self) -> None:
        if self.state not in VALID_PREVIOUS[_PREPARING]:
            return
        if self.state is _COMPLETING:
            self._refuse_parked_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_syncs()
        delay_ms = self.members.rebalance_timeout_ms()
        if self.state is _EMPTY:
            initial_delay_ms = self.limits.initial_rebalance_delay_ms
            self._initial_remaining_ms = max(delay_ms - initial_delay_ms, 0)
            self._new_member_added = False
            delay_ms = initial_delay_ms
        self._enter(_PREPARING)
        self._out.append(SetTimer(JOIN_TIMER, delay_ms))

    def _maybe_complete_join(self) -> None:
        if self.state is not _PREPARING or self._initial_remaining_ms is not None or self.members.pending:
            return
        if self.members.joined_count() == len(self.members):
            self._complete_join()

    def _on_join_timer(self) -> None:
        if self.state is not _PREPARING:
            return
        remaining_ms = self._initial_remaining_ms
        if remaining_ms and self._new_member_added:
            delay_ms = min(self.limits.initial_rebalance_delay_ms, remaining_ms)
            self._initial_remaining_ms = remaining_ms - delay_ms
            self._new_member_added = False
            self._out.append(SetTimer(JOIN_TIMER, delay_ms))
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        """End of the join phase: dynamic members that did not come are out; the others get the new generation."""
        for member in list(self.members):
            if member.join_request is None and member.instance_id is None:
                self._remove(member.member_id)
        if self.members and not self.members.elect_joined_leader():
            # Only static members, none of which came: wait until they do or their sessions end.
            self._initial_remaining_ms = None
            self._out.append(SetTimer(JOIN_TIMER, self.members.rebalance_timeout_ms()))
            return
        self._initial_remaining_ms = None
        self._out.append(CancelTimer(JOIN_TIMER))
        self.generation_id += 1
        if not self.members:
            self.protocol_name = None
            self._enter(_EMPTY)
            self._store(None, {})
            return
        self.protocol_name = self.members.select_protocol()
        self._enter(_COMPLETING)
        self.pending_syncs = set(self.members.ids())
        for member in self.members:
            if member.join_request is not None:
                self._answer_join(member.join_request, member)
                member.join_request = None
            member.is_new = False
            self._start_session(member)
        self._out.append(SetTimer(SYNC_TIMER, self.members.rebalance_timeout_ms()))

    # --- sync -----------------------------------------------------------------------------------------------------

    def _on_sync(self, sync: Sync) -> None:
        error = self._call_error(sync.member_id, sync.instance_id, sync.generation_id)
        if not error and sync.protocol_type is not None and sync.protocol_type != self.protocol_type:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not error and sync.protocol_name is not None and sync.protocol_name != self.protocol_name:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not error and self.state is _PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error:
            self._out.append(Answer(sync.request, SyncAnswer(error=error)))
            return
        member = self.members[sync.member_id]
        self.pending_syncs.discard(sync.member_id)
        if not self.pending_syncs:
            self._out.append(CancelTimer(SYNC_TIMER))
        if self.state is _STABLE:
            self._answer_sync(sync.request, member)
            return
        self._answer_sync_error(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_request = sync.request
        if sync.member_id == self.members.leader_id and not self._is_storing_assignments():
            assignments = {member_id: sync.assignments.get(member_id, b"") for member_id in self.members.ids()}
            self._store(_Assignments(self.generation_id, assignments), assignments)

    def _is_storing_assignments(self) -> bool:
        return any(
            isinstance(write, _Assignments) and write.generation_id == self.generation_id
            for write in self._writes.values()
        )

    def _answer_sync(self, request: int, member: Member) -> None:
        answer = SyncAnswer(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )
        self._out.append(Answer(request, answer))
        self._start_session(member)

    def _answer_sync_error(self, member: Member, error: ErrorCode) -> None:
        if member.sync_request is not None:
            self._out.append(Answer(member.sync_request, SyncAnswer(error=error)))
            member.sync_request = None

    def _refuse_parked_syncs(self, error: ErrorCode) -> None:
        """The members stay. Their sessions start again: they may have run out, ignored, while the calls were parked."""
        for member in self.members:
            if member.sync_request is not None:
                self._answer_sync_error(member, error)
                self._start_session(member)

    def _stop_waiting_for_syncs(self) -> None:
        if self.pending_syncs:
            self.pending_syncs.clear()
            self._out.append(CancelTimer(SYNC_TIMER))

    def _on_sync_timer(self) -> None:
        if self.state not in (_COMPLETING, _STABLE) or not self.pending_syncs:
            return
        for member_id in list(self.pending_syncs):
            self._remove(member_id)
        self._after_removal()

    # --- heartbeat, commit, leave ---------------------------------------------------------------------------------

    def _on_heartbeat(self, heartbeat: Heartbeat) -> None:
        error = self._call_error(heartbeat.member_id, heartbeat.instance_id, heartbeat.generation_id)
        if not error:
            self._start_session(self.members[heartbeat.member_id])
            if self.state is _PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._out.append(Answer(heartbeat.request, ErrorAnswer(error)))

    def _on_commit(self, commit: Commit) -> None:
        self._out.append(Answer(commit.request, ErrorAnswer(self._commit_error(commit))))

    def _commit_error(self, commit: Commit) -> ErrorCode:
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.state is _EMPTY and commit.generation_id < 0:
            return ErrorCode.NONE
        if commit.generation_id < 0 and not commit.member_id and commit.instance_id is None:
            # While the group has members only they commit.
            return ErrorCode.UNKNOWN_MEMBER_ID
        if error := self._call_error(commit.member_id, commit.instance_id, commit.generation_id):
            return error
        if self.state is _COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._start_session(self.members[commit.member_id])
        return ErrorCode.NONE

    def _on_leave(self, leave: Leave) -> None:
        if self.state is _DEAD:
            self._out.append(Answer(leave.request, LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, ())))
            return
        errors = tuple(self._leave(leaver) for leaver in leave.members)
        self._out.append(Answer(leave.request, LeaveAnswer(ErrorCode.NONE, errors)))
        if ErrorCode.NONE in errors:
            self._after_removal()

    def _leave(self, leaver: Leaver) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            # An operator removes a static member by its name alone.
            named = self.members.by_instance(leaver.instance_id)
            member_id = "" if named is None else named.member_id
        if member_id in self.members.pending and leaver.instance_id is None:
            self._remove(member_id)
            return ErrorCode.NONE
        if error := self.members.error(member_id, leaver.instance_id):
            return error
        self._remove(member_id)
        return ErrorCode.NONE

    # --- timers, writes, retirement -------------------------------------------------------------------------------

    def _on_timer(self, event: TimerFired) -> None:
        match event.timer.kind:
            case TimerKind.JOIN:
                self._on_join_timer()
            case TimerKind.SYNC:
                self._on_sync_timer()
            case TimerKind.SESSION:
                self._on_session_timer(event.timer.member_id)

    def _on_session_timer(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None and not member.is_new and (member.join_request, member.sync_request) != (None, None):
            return  # Its call is parked here; its session starts again with the answer.
        if member is not None or member_id in self.members.pending:
            self._remove(member_id)
            self._after_removal()

    def _on_stored(self, stored: Stored) -> None:
        write = self._writes.pop(stored.write)
        if isinstance(write, _Assignments):
            self._on_assignments_stored(write, stored.error)
        elif isinstance(write, _Replacement):
            self._on_replacement_stored(write, stored.error)

    def _on_assignments_stored(self, write: _Assignments, error: ErrorCode) -> None:
        if self.state is not _COMPLETING or self.generation_id != write.generation_id:
            return  # A new rebalance began meanwhile.
        if error:
            self._refuse_parked_syncs(error)
            self._prepare_rebalance()
            return
        self._enter(_STABLE)
        for member in self.members:
            member.assignment = write.assignments.get(member.member_id, b"")
            if member.sync_request is not None:
                self._answer_sync(member.sync_request, member)
                member.sync_request = None

    def _on_replacement_stored(self, write: _Replacement, error: ErrorCode) -> None:
        member = self.members.get(write.member_id)
        if member is None or member.join_request is None:
            return  # It left, was replaced again, or a rebalance has answered it.
        if self.state is not _STABLE or self.generation_id != write.generation_id:
            return  # A rebalance will answer it.
        request, member.join_request = member.join_request, None
        if error:
            self._replace(member, write.previous)
            self._out.append(Answer(request, JoinAnswer(error=error)))
            return
        self._start_session(member)
        if write.supports_skipping_assignment:
            self._answer_join(request, member, skip=member.member_id == self.members.leader_id)
        else:
            # Before KIP-814 a leader could not be told to skip the assignment: it is shown its old id as leader.
            self._answer_join(request, member, leader=write.previous_leader)

    def _on_retire(self, _: Retire) -> None:
        if self.state is _EMPTY:
            for member_id in list(self.members.pending):
                self._remove(member_id)
            self._enter(_DEAD)

    # --- state ----------------------------------------------------------------------------------------------------

    def _enter(self, state: GroupState) -> None:
        self._history.append(f"{self.state.value}->{state.value}@{self.generation_id}")
        if self.state not in VALID_PREVIOUS[state]:
            raise InvalidTransitionError(f"group {self.group_id!r}: {', '.join(self._history)}")
        self.state = state
        self.state_timestamp_ms = self._now_ms

    def _store(self, write: _Assignments | _Replacement | None, assignments: Mapping[str, bytes]) -> None:
        number = self._next_write
        self._next_write += 1
        self._writes[number] = write
        self._out.append(Store(number, self.stored(assignments)))

    def stored(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        """The group as it is written to the log."""
        name = self.protocol_name
        return StoredGroup(
            protocol_type=self.protocol_type,
            generation_id=self.generation_id,
            protocol_name=name,
            leader=self.members.leader_id,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(member.stored(name or "", assignments.get(member.member_id, b"")) for member in self.members),
        )

    def _remove(self, member_id: str) -> None:
        """Forgets a member or pending member; whatever it has parked is answered UNKNOWN_MEMBER_ID, so that it joins
        again if it is alive."""
        self._out.append(CancelTimer(session_timer(member_id)))
        self.pending_syncs.discard(member_id)
        member = self.members.remove(member_id)
        if member is not None:
            self._answer_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def _after_removal(self) -> None:
        if self.state is not _EMPTY:
            self._prepare_rebalance()
            self._maybe_complete_join()

    def _answer_parked(self, member: Member, error: ErrorCode) -> None:
        self._refuse_parked_join(member, error)
        self._answer_sync_error(member, error)

    def _refuse_parked_join(self, member: Member, error: ErrorCode) -> None:
        if member.join_request is not None:
            self._out.append(Answer(member.join_request, JoinAnswer(error=error, member_id=member.member_id)))
            member.join_request = None

    def _start_session(self, member: Member) -> None:
        self._out.append(SetTimer(session_timer(member.member_id), member.session_timeout_ms))

    def _call_error(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Why a sync, heartbeat or commit of a member is refused, whatever else the state says."""
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.members.error(member_id, instance_id):
            return error
        return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def check_invariants(self) -> None:
        """What must hold between events. For tests."""
        self.members.check_invariants()
        joins = [member for member in self.members if member.join_request is not None]
        syncs = [member for member in self.members if member.sync_request is not None]
        assert (len(self.members) == 0) >= (self.state in (_EMPTY, _DEAD)), self.state
        assert self.pending_syncs <= set(self.members.ids())
        assert not self.pending_syncs or self.state in (_COMPLETING, _STABLE)
        assert self._initial_remaining_ms is None or self.state is _PREPARING
        assert not syncs or self.state is _COMPLETING
        assert all(member.member_id not in self.pending_syncs for member in syncs)
        if self.state in (_COMPLETING, _STABLE):
            assert self.protocol_name in self.members.common_protocols()
            assert not any(member.is_new for member in self.members)
            replacing = {write.member_id for write in self._writes.values() if isinstance(write, _Replacement)}
            assert {member.member_id for member in joins} <= replacing
        if self.state is _PREPARING and self._initial_remaining_ms is None and not self.members.pending:
            assert len(joins) < len(self.members), "everybody has joined, and the rebalance goes on"
