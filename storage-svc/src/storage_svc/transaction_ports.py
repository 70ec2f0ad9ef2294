"""The two questions between the transaction coordinator and the logs: is a partition in a transaction, and end one in a
partition.

They need not live in one process: an answer may come late, and a transaction may end in between. So the caller takes a
guard before it asks, which a marker fells (log/producers/guards.py). The coordinator has markers written by a
`MarkerWriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol_lib.errors import ErrorCode

from storage_svc.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """Partitions that a producer writes to in the transaction of a transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]


class OngoingTransactions(Protocol):
    """The transactions that may write now. The transaction coordinator implements it."""

    def verify(self, claim: Claim, done: Callable[[Sequence[ErrorCode]], None]) -> None:
        """Ask whether partitions are in the ongoing transaction of exactly this id, producer and epoch.

        `done` is called once, perhaps before this returns, with the code of each partition: NONE if it is. The codes
        are those of AddPartitionsToTxn with verify_only (KIP-890). TRANSACTION_ABORTABLE: there is no ongoing
        transaction, or the partition is not in it. CONCURRENT_TRANSACTIONS: it is ending.
        """
        ...

    def add(self, claim: Claim, done: Callable[[ErrorCode], None]) -> None:
        """Add partitions to the transaction of a transaction.version 2 client, which begins if none is ongoing.

        `done` is called once, perhaps before this returns; with NONE once the addition is durable.
        """
        ...


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction, as it is written to each of its partitions."""

    producer_id: int
    producer_epoch: int
    commit: bool
    #: The leader epoch of the transactional id's partition of `__transaction_state`.
    coordinator_epoch: int
    #: The transaction.version of the client: from 2 on the epoch is newer than that of the transaction's batches.
    transaction_version: int = 0
    #: Whether it is our own coordinator's. No other one is newer, but markers from outside may have any epoch.
    is_own: bool = False


class MarkerWriter(Protocol):
    """Partition logs and groups, as the end of a transaction reaches them."""

    def write(self, partition: TopicPartition, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        """Write a marker; `done` is called once, perhaps before this returns.

        NONE: it is durable, and in `__consumer_offsets` the group has the transaction's offsets. It may be the second
        marker, or one without a transaction. UNKNOWN_TOPIC_OR_PARTITION: the partition was deleted.
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: a newer producer or coordinator has written. After any
        other code the caller writes it again.
        """
        ...
