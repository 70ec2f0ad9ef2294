"""The one idiom of all machines, of groups and of transactions: an event goes in, an `Outcome` comes out.

A machine decides and performs nothing. `hosting.performer` performs every outcome, in this order:

    1. the records are appended as one batch; when the log refuses them and nothing is to be `stored`, nothing else of
       the outcome happens
    2. the entity takes the place of the one before
    3. the timers change
    4. callers are answered; an answer with `failed` waits until the newest records of the entity are durable
    5. when the records are durable, or have failed, the machine receives the event that `stored` makes, and then the
       answers that wait for these records follow

A machine thus has two ways to say "after the write". It makes a new entity, which counts once the log has accepted the
records. Or it keeps its decision open until the event that `stored` makes, which has the result of the write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.machine.events import Timer
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason

EntityT = TypeVar("EntityT")

#: (key, value), messages of protocol_lib.internal; a record without a value is a tombstone.
Record = tuple[Any, Any | None]


@dataclass(slots=True)
class Answer:
    #: The number under which the caller waits.
    request: int
    value: Any
    #: A function that makes the answer when the records cannot be stored. None: the answer depends on no record, and
    #: does not wait.
    failed: Callable[[ErrorCode], Any] | None = None


@dataclass(slots=True)
class SetTimer:
    """Start the timer, or start it again: `TimerFired` follows after `delay_ms`."""

    timer: Timer
    delay_ms: int
    #: A timer that runs already goes on as it is.
    if_absent: bool = False


@dataclass(slots=True)
class CancelTimer:
    timer: Timer


TimerChange = SetTimer | CancelTimer


@dataclass(slots=True)
class Outcome(Generic[EntityT]):
    #: The group or transaction after the event: the same object, or a new one that counts once the log has accepted the
    #: records. None: it is forgotten.
    entity: EntityT
    answers: list[Answer] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    #: The records, written as one batch: each a `Record` of a group, or the state of a transaction.
    records: Sequence[Any] = ()
    #: A function that makes the event for the end of the write: durable (NONE), or failed (an error for clients).
    stored: Callable[[ErrorCode], object] | None = None
    #: The last event of the entity that this one replaces, and the first event of the entity itself.
    to_replaced: object | None = None
    to_successor: object | None = None
    #: The cause of the rebalance that the event began; None where it began none.
    rebalance: RebalanceReason | None = None
