"""Events and timers that the machine of every kind of group understands.

Each kind adds more events: `classic.events`, `consumer.events`. Durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from protocol_lib.errors import ErrorCode


class TimerKind(StrEnum):
    #: Silence after which a member is removed.
    SESSION = "session"
    #: Bounds the wait for members to join: all members of a classic group, one classic member of a consumer group.
    JOIN = "join"
    #: Bounds the wait for SyncGroup: of all members of a classic group, of one classic member of a consumer group.
    SYNC = "sync"
    #: Bounds the time in which a member of a consumer group gives up partitions.
    REBALANCE = "rebalance"
    #: The time until a group gets `Recover`.
    RECOVERY = "recovery"


class Timer(NamedTuple):
    """One timer of a group; `member_id` is empty for a timer of the group as a whole."""

    kind: TimerKind
    member_id: str = ""


RECOVERY: Final = Timer(TimerKind.RECOVERY)


@dataclass(slots=True)
class TimerFired:
    timer: Timer


@dataclass(slots=True)
class Installed:
    """The first event of a group that was loaded from the log, or that replaces one of the other protocol: sessions
    start."""

    #: The members have to join again.
    rebalance: bool = False


@dataclass(slots=True)
class Configured:
    """The group's own configs have changed: answers from before do not hold any more. Classic groups have none."""


@dataclass(slots=True)
class PatternsResolved:
    """The topics that match the group's patterns now. A classic group, which it may have become, has no patterns."""

    topics: Mapping[str, frozenset[str]]
    version: int


@dataclass(slots=True)
class Removed:
    """The group is not hosted any more: every parked call is answered with `error`, and no timer fires."""

    error: ErrorCode


@dataclass(slots=True)
class Recover:
    """An event of the group has raised: its effect may be there in part, and its timers are not set."""
