"""Events of the classic group's machine, and the answers in its outcomes.

An event goes into `classic.machine.handle`, an `Outcome` comes out. A `request` is the number under which the caller
waits for its answer. Durations are milliseconds; Kafka error codes are values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.machine.events import Installed, Removed, Timer, TimerFired, TimerKind


class GroupState(Enum):
    """A state's value is Kafka's name for it, as ListGroups and DescribeGroups print it."""

    #: No members. Joins: a new member starts a rebalance. Heartbeat, sync, leave: UNKNOWN_MEMBER_ID. Commits from
    #: outside the group protocol (generation < 0) are allowed. Left by: a join (PREPARING), expiry or deletion (DEAD).
    EMPTY = "Empty"
    #: Waiting for members to join. Joins are parked. Heartbeat, sync: REBALANCE_IN_PROGRESS. Commits of the current
    #: generation are allowed. Left by: all members joined or the time is up (COMPLETING), no member is left (EMPTY).
    PREPARING_REBALANCE = "PreparingRebalance"
    #: Waiting for the leader's assignment. Syncs are parked, heartbeats answered normally, commits:
    #: REBALANCE_IN_PROGRESS. Left by: the assignment is durable (STABLE); a member fails, leaves, or joins with other
    #: metadata (PREPARING).
    COMPLETING_REBALANCE = "CompletingRebalance"
    #: Heartbeats and syncs are answered at once, commits of the current generation allowed. Left by: a member fails or
    #: leaves, the leader joins, a follower joins with other metadata (PREPARING).
    STABLE = "Stable"
    #: Removed. Everything is answered COORDINATOR_NOT_AVAILABLE, and the client looks for its coordinator again.
    DEAD = "Dead"


#: (from, to) -> the cause of the change of state; no other change is legal. docs/groups.md shows the table.
TRANSITIONS: Final[Mapping[tuple[GroupState, GroupState], str]] = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE): "a member joins",
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE): "all members have joined, or the time is up",
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY): "the last member has left",
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE): "the leader's assignment is durable",
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE): (
        "a member fails, leaves, or joins with other metadata; no SyncGroup in time; the assignment cannot be stored"
    ),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE): (
        "a member fails or leaves; the leader joins; a follower joins with other metadata"
    ),
    (GroupState.EMPTY, GroupState.DEAD): "deleted, or its last offset expired",
}

#: state -> the states it may be entered from.
VALID_PREVIOUS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    state: frozenset(before for before, after in TRANSITIONS if after is state) for state in GroupState
}


JOIN_TIMER: Final = Timer(TimerKind.JOIN)
SYNC_TIMER: Final = Timer(TimerKind.SYNC)


def session_timer(member_id: str) -> Timer:
    return Timer(TimerKind.SESSION, member_id)


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Join:
    request: int
    #: Empty for a new member.
    member_id: str
    #: The id a new member gets; made by the caller, since the machine has no randomness.
    new_member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    #: (protocol name, metadata) in order of preference.
    protocols: tuple[tuple[str, bytes], ...]
    require_known_member_id: bool = False
    supports_skipping_assignment: bool = False


@dataclass(slots=True, kw_only=True)
class Sync:
    request: int
    member_id: str
    generation_id: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    request: int
    member_id: str
    generation_id: int
    instance_id: str | None = None


class Leaver(NamedTuple):
    member_id: str
    instance_id: str | None = None


@dataclass(slots=True, kw_only=True)
class Leave:
    request: int
    members: Sequence[Leaver]


@dataclass(slots=True, kw_only=True)
class Commit:
    """The question whether a member may commit offsets now. The machine does not see the offsets."""

    request: int
    member_id: str
    generation_id: int
    instance_id: str | None = None
    #: The offsets are part of a transaction.
    is_transactional: bool = False


@dataclass(slots=True)
class Stored:
    """A write has ended: durable (NONE), or with an error for members (`stored.records.group_error`)."""

    #: The number of the write (`pending_writes`).
    write: int
    error: ErrorCode


@dataclass(slots=True)
class Retire:
    """The order to remove the group, if it is empty."""


Event = Join | Sync | Heartbeat | Leave | Commit | TimerFired | Stored | Retire | Installed | Removed


# --- answers ----------------------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class JoinAnswer:
    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(slots=True, kw_only=True)
class SyncAnswer:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class ErrorAnswer:
    """The answer to a heartbeat or a commit."""

    error: ErrorCode


@dataclass(slots=True)
class LeaveAnswer:
    error: ErrorCode
    members: tuple[ErrorCode, ...]


AnswerValue = JoinAnswer | SyncAnswer | ErrorAnswer | LeaveAnswer
