"""The events of the transaction machine, and the answer and the facts in its outcomes.

A `request` is the number under which the caller of an event waits for its answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.machine.events import Recover
from storage_svc.coordinator.machine.outcome import Answer, Outcome
from storage_svc.coordinator.transactions.transaction import NONE, Entry, Transaction
from storage_svc.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId with a transactional id."""

    timeout_ms: int
    #: Producer id and epoch of a producer that goes on after an error (KIP-360).
    expected: tuple[int, int] | None = None
    request: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AddPartitions:
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    #: The transaction.version of the client: 2 for an implicit addition, else 0.
    client_version: int = 0
    request: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    producer_id: int
    producer_epoch: int
    commit: bool
    #: 2 for EndTxn from version 5 on, else 0.
    client_version: int = 0
    request: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AbortTimedOut:
    """The sweep: abort the transaction, if it has timed out, and fence its producer."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Forget the transactional id, if it was not used for this long."""

    expiration_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The end of the write of the pending state's record."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Partitions that have their marker, or need none."""

    partitions: frozenset[TopicPartition]


#: The events of callers.
Call = InitProducer | AddPartitions | EndTransaction
#: All events. `Recover` is the first one after a load, and follows some time after the record of a complete transaction
#: was refused.
Event = Call | AbortTimedOut | Expire | Stored | MarkersWritten | Recover


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NONE
    producer_epoch: int = NONE


@dataclass(slots=True)
class TransactionOutcome(Outcome[Entry | None]):
    """An outcome without an entity: the transactional id is forgotten. A record is the `Transaction` to write."""

    #: The partitions that need the marker of the stored state.
    markers: frozenset[TopicPartition] = frozenset()
    #: The record has the producer id that the machine was offered.
    takes_id: bool = False
    #: The event needs a producer id, and none was offered: nothing has changed, and the same event may follow with one.
    needs_id: bool = False


def answered(entry: Entry | None, call: Call, answer: TransactionAnswer) -> TransactionOutcome:
    """Return the outcome that answers a call at once, and changes nothing."""
    return TransactionOutcome(entry, [Answer(call.request, answer)])


def written(
    stored: Transaction | None,
    target: Transaction,
    call: Call | None = None,
    answer: TransactionAnswer | None = None,
    *,
    takes_id: bool = False,
) -> TransactionOutcome:
    """Return the outcome that writes the record of a state (DEAD: its tombstone); `Stored` follows.

    The call is answered when the record is durable; with its error if that fails.
    """
    answers = [] if call is None or answer is None else [Answer(call.request, answer, TransactionAnswer)]
    return TransactionOutcome(Entry(stored, target), answers, records=(target,), stored=Stored, takes_id=takes_id)
