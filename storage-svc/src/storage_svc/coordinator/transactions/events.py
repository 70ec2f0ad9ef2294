"""The events of the transaction machine, its answer and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.transactions.transaction import NONE, Entry, Transaction
from storage_svc.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId with a transactional id."""

    timeout_ms: int
    #: Producer id and epoch of a producer that goes on after an error (KIP-360).
    expected: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    #: The transaction.version of the client: 2 for an implicit addition, else 0.
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class EndTransaction:
    producer_id: int
    producer_epoch: int
    commit: bool
    #: 2 for EndTxn from version 5 on, else 0.
    client_version: int = 0


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


@dataclass(frozen=True, slots=True)
class Recover:
    """The first event after a load; also sent some time after the record of a complete transaction was refused."""


Event = InitProducer | AddPartitions | EndTransaction | AbortTimedOut | Expire | Stored | MarkersWritten | Recover


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NONE
    producer_epoch: int = NONE


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The decision about one event; the host performs it in the order of the fields."""

    #: None: the transactional id is forgotten.
    entry: Entry | None
    #: The state to write; `Stored` follows. DEAD: its tombstone.
    record: Transaction | None = None
    #: The partitions that need the marker of the stored state.
    markers: frozenset[TopicPartition] = field(default=frozenset())
    #: The caller's answer, sent once the record is durable. A record that fails is answered with its error.
    answer: TransactionAnswer | None = None
    #: The complete transaction must be written again later: `Recover` follows.
    must_recover: bool = False
    #: The record has the producer id that the machine was offered.
    takes_id: bool = False
    #: The event needs a producer id, and none was offered: nothing has changed, and the same event may follow with one.
    needs_id: bool = False
