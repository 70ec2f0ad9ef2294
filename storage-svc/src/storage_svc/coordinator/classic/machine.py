"""The classic group as a state machine: `handle` takes an event and returns the outcome that follows from it.

How each state answers (`=` as to its left; codes are Kafka's). The states: `classic.events.GroupState`.

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
    in a transaction, member  25             0              0                          0                          15
    in a transaction, none    0              0              0                          0                          15
    Leave of a member         25             complete the   rebalance                  rebalance                  15
                                             join if all in
    Leave of a pending one    forget         complete the   rebalance                  rebalance                  15
                                             join if all in

Order of checks: dead 15, instance id of another member 82, unknown member 25, generation 22, protocol 23.

Timers: JOIN is the initial delay (from Empty; extended while new members arrive) or the rebalance timeout; SYNC bounds
the wait for every member's SyncGroup; SESSION runs per member and per pending member, is restarted by heartbeats,
commits and answered joins and syncs, and for a new member whose join is parked it is `NEW_MEMBER_JOIN_TIMEOUT_MS`.

The group changes in place. A decision that needs the log waits for `Stored`: until then the group remembers it in its
`writes`, and an error takes it back. Owner: the coordinator that calls `handle`, from one thread. Kafka:
GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Commit,
    ErrorAnswer,
    Event,
    GroupState,
    Heartbeat,
    Join,
    Leave,
    LeaveAnswer,
    Leaver,
    Retire,
    Stored,
    Sync,
    session_timer,
)
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.join_phase import PENDING_MEMBER_TIMEOUT_MS, on_join, on_replacement_stored
from storage_svc.coordinator.classic.pending_writes import Assignments, Replacement
from storage_svc.coordinator.classic.step import Step
from storage_svc.coordinator.classic.sync import on_assignments_stored, on_sync, on_sync_timer
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
from storage_svc.coordinator.machine.outcome import Outcome, SetTimer
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState


def handle(group: Group, event: Event, now_ms: int) -> Outcome[Group]:
    """Change the group and return the outcome of the event. `now_ms` is wall clock time."""
    step = Step(group, now_ms)
    _HANDLERS[type(event)](step, event)
    return step.outcome


# --- heartbeat, commit, leave -----------------------------------------------------------------------------------------


def _on_heartbeat(step: Step, heartbeat: Heartbeat) -> None:
    group = step.group
    error = group.call_error(heartbeat.member_id, heartbeat.instance_id, heartbeat.generation_id)
    if not error:
        step.start_session(group.members[heartbeat.member_id])
        if group.state is _PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    step.answer(heartbeat.request, ErrorAnswer(error))


def _on_commit(step: Step, commit: Commit) -> None:
    step.answer(commit.request, ErrorAnswer(_commit_error(step, commit)))


def _commit_error(step: Step, commit: Commit) -> ErrorCode:
    group = step.group
    if group.state is _DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.state is _EMPTY and commit.generation_id < 0:
        return ErrorCode.NONE
    if commit.generation_id < 0 and not commit.member_id and commit.instance_id is None:
        # While the group has members only they commit; before KIP-447 a transactional commit named none.
        return ErrorCode.NONE if commit.is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = group.call_error(commit.member_id, commit.instance_id, commit.generation_id)
    if error or commit.is_transactional:
        return error
    if group.state is _COMPLETING:  # mutant: no-commit-while-completing
        return ErrorCode.REBALANCE_IN_PROGRESS
    step.start_session(group.members[commit.member_id])
    return ErrorCode.NONE


def _on_leave(step: Step, leave: Leave) -> None:
    if step.group.state is _DEAD:
        step.answer(leave.request, LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, ()))
        return
    leaving: dict[str, None] = {}
    errors = tuple(_leave_error(step.group, leaver, leaving) for leaver in leave.members)
    step.answer(leave.request, LeaveAnswer(ErrorCode.NONE, errors))
    if leaving:
        step.expel(*leaving, has_left=True)


def _leave_error(group: Group, leaver: Leaver, leaving: dict[str, None]) -> ErrorCode:
    """Return why this one cannot leave; NONE puts it among those that do. A member leaves once."""
    member_id = leaver.member_id
    if not member_id and leaver.instance_id is not None:
        # An operator removes a static member by its name alone.
        named = group.members.by_instance(leaver.instance_id)
        member_id = "" if named is None else named.member_id
    if member_id in leaving:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_pending = member_id in group.members.pending
    error = ErrorCode.NONE if is_pending else group.members.error(member_id, leaver.instance_id)
    if not error:
        leaving[member_id] = None
    return error


# --- timers, writes ---------------------------------------------------------------------------------------------------


def _on_timer(step: Step, event: TimerFired) -> None:
    match event.timer.kind:
        case TimerKind.JOIN:
            _on_join_timer(step)
        case TimerKind.SYNC:
            on_sync_timer(step)
        case TimerKind.SESSION:
            _on_session_timer(step, event.timer.member_id)


def _on_join_timer(step: Step) -> None:
    if step.group.state is not _PREPARING:
        return
    delay_ms = step.group.initial_delay.extend()
    if delay_ms is None:
        step.complete_join()
    else:
        step.set_timer(JOIN_TIMER, delay_ms)


def _on_session_timer(step: Step, member_id: str) -> None:
    members = step.group.members
    member = members.get(member_id)
    if member is not None and not member.is_new and (member.join_request, member.sync_request) != (None, None):
        return  # Its call is parked here; its session starts again with the answer.
    if member is not None or member_id in members.pending:
        step.expel(member_id)


def _on_stored(step: Step, stored: Stored) -> None:
    match step.group.writes.end(stored.write):
        case Assignments() as write:
            on_assignments_stored(step, write, stored.error)
        case Replacement() as write:
            on_replacement_stored(step, write, stored.error)


# --- begin and end ----------------------------------------------------------------------------------------------------


def _on_installed(step: Step, installed: Installed) -> None:
    """Start full sessions for the members of a group that was loaded, or that was a consumer group."""
    for member in step.group.members:
        step.start_session(member)
    if installed.rebalance:
        step.prepare_rebalance(RebalanceReason.PROTOCOL_CHANGED)


def _on_recover(step: Step, _: Recover) -> None:
    """Start sessions that do not run, and a rebalance: some members may have come or gone without one."""
    group, members = step.group, step.group.members
    for member in members:
        _start_if_absent(step, session_timer(member.member_id), member.session_timeout_ms)
    for member_id in members.pending:
        _start_if_absent(step, session_timer(member_id), PENDING_MEMBER_TIMEOUT_MS)
    if group.state is _PREPARING:
        _start_if_absent(step, JOIN_TIMER, members.rebalance_timeout_ms())
    elif group.state is not _DEAD and (members or group.state is not _EMPTY):
        step.prepare_rebalance(RebalanceReason.RECOVERED)
    step.maybe_complete_join()


def _start_if_absent(step: Step, timer: Timer, delay_ms: int) -> None:
    step.outcome.timers.append(SetTimer(timer, delay_ms, if_absent=True))


def _on_removed(step: Step, removed: Removed) -> None:
    members = step.group.members
    for member in members:
        step.refuse_parked(member, removed.error)
        step.cancel_timer(session_timer(member.member_id))
    for member_id in members.pending:
        step.cancel_timer(session_timer(member_id))
    step.cancel_timer(JOIN_TIMER)
    step.cancel_timer(SYNC_TIMER)
    step.cancel_timer(RECOVERY)


def _on_retire(step: Step, _: Retire) -> None:
    if step.group.state is _EMPTY:
        for member_id in list(step.group.members.pending):
            step.remove(member_id)
        step.enter(_DEAD)


def _on_other_kind(_: Step, _event: Configured | PatternsResolved) -> None:
    """Change nothing: the event is for groups of another kind."""


_HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    Join: on_join,
    Sync: on_sync,
    Heartbeat: _on_heartbeat,
    Leave: _on_leave,
    Commit: _on_commit,
    TimerFired: _on_timer,
    Stored: _on_stored,
    Installed: _on_installed,
    Recover: _on_recover,
    Removed: _on_removed,
    Retire: _on_retire,
    Configured: _on_other_kind,
    PatternsResolved: _on_other_kind,
}
