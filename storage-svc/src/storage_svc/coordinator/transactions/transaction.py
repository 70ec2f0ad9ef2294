"""The transaction of one transactional id: its state, and the transitions that are legal.

    state           entered by                            left by
    Empty           InitProducerId                        AddPartitionsToTxn, AddOffsetsToTxn, Produce 12 -> Ongoing
    Ongoing         the first partition                   EndTxn -> Prepare*; time-out, InitProducerId -> PrepareAbort
    PrepareCommit   EndTxn, once its record is durable    the last marker -> CompleteCommit
    PrepareAbort    the same                              the last marker -> CompleteAbort
    Complete*       the last marker                       the next transaction, InitProducerId -> Empty, expiration
    Dead            expiration, until its tombstone is durable

No record has the state Dead. PrepareEpochFence is a part of the step from Ongoing to PrepareAbort, and never stays.

With transaction.version 2 every EndTxn raises the producer epoch (KIP-890), so that no late request of the transaction
before can reach the next one. An abort is then legal in Empty and Complete* too: a client that does not know whether
its transaction began ends it all the same. Kafka: TransactionMetadata, TransactionState.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from protocol_lib.internal.transaction_log import TransactionState

from storage_svc.topic_partition import TopicPartition

#: Epochs from here on are not sent to clients: one more is left to fence the last one.
EPOCH_EXHAUSTED: Final = 32_766
EPOCH_MAX: Final = 32_767
NONE: Final = -1
#: The transaction.version from which on EndTxn raises the epoch.
EPOCH_BUMP_VERSION: Final = 2

_S = TransactionState
#: State -> the states it may follow.
LEGAL: Final = {
    _S.EMPTY: frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
    _S.ONGOING: frozenset((_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
    _S.PREPARE_COMMIT: frozenset((_S.ONGOING,)),
    _S.PREPARE_ABORT: frozenset((_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
    _S.COMPLETE_COMMIT: frozenset((_S.PREPARE_COMMIT,)),
    _S.COMPLETE_ABORT: frozenset((_S.PREPARE_ABORT,)),
    _S.DEAD: frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
}
#: The states whose markers are being written.
PREPARED: Final = frozenset((_S.PREPARE_COMMIT, _S.PREPARE_ABORT))
COMPLETE: Final = frozenset((_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT))
#: The states in which a transactional id may expire.
IDLE: Final = frozenset((_S.EMPTY, *COMPLETE))
#: Kafka's names, as DescribeTransactions and ListTransactions have them.
STATE_NAMES: Final = {state: "".join(part.capitalize() for part in state.name.split("_")) for state in _S}


class IllegalTransitionError(Exception):
    """A bug: the machine has decided on a transition that is not in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction as its record describes it. Times are in milliseconds since 1970."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    #: The partitions that have no marker yet. Empty in the states of IDLE.
    partitions: frozenset[TopicPartition] = field(default=frozenset())
    start_ms: int = NONE
    #: The producer id before the last transition.
    previous_producer_id: int = NONE
    #: The id that takes the place of one with exhausted epochs when the transaction is complete.
    next_producer_id: int = NONE
    #: The epoch that the client had before the last raise; lost by a restart, as in Kafka.
    last_producer_epoch: int = NONE
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_EXHAUSTED

    @property
    def is_timeless(self) -> bool:
        """Whether the transaction never times out (KIP-939's two-phase commit, from a log of Apache Kafka)."""
        return self.timeout_ms == 2**31 - 1

    def timed_out(self, now_ms: int) -> bool:
        return self.state is _S.ONGOING and not self.is_timeless and self.start_ms + self.timeout_ms < now_ms

    def expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in IDLE and self.update_ms <= now_ms - expiration_ms

    def _become(self, state: TransactionState, **changes: object) -> Transaction:
        if self.state not in LEGAL[state]:
            raise IllegalTransitionError(f"{self.transactional_id}: from {self.state.name} to {state.name}")
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)  # type: ignore[arg-type]

    def initialized(
        self, *, producer_id: int, producer_epoch: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """Return the transaction after InitProducerId, for a producer of this id and epoch."""
        return self._become(
            _S.EMPTY,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NONE,
            update_ms=now_ms,
        )

    def with_partitions(self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """Return the transaction with more partitions; it begins with the first ones."""
        return self._become(
            _S.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=self.start_ms if self.state is _S.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """Return the transaction as it waits for its markers.

        Args:
            client_version: from 2 on, the markers get the next epoch.
            next_producer_id: takes the place of this one at the end, unless it is -1.
        """
        epoch, last = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP_VERSION:
            epoch, last = min(epoch + 1, EPOCH_MAX), epoch  # mutant: epoch-bumped
        return self._become(
            _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is _S.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return the transaction as it is when all its markers are written."""
        renewed = self.next_producer_id != NONE and self.client_version >= EPOCH_BUMP_VERSION
        return self._become(
            _S.COMPLETE_COMMIT if self.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
            producer_id=self.next_producer_id if renewed else self.producer_id,
            producer_epoch=0 if renewed else self.producer_epoch,
            next_producer_id=NONE,
            partitions=frozenset(),
            update_ms=now_ms,
        )

    def dead(self) -> Transaction:
        """Return the transaction as it expires."""
        return self._become(_S.DEAD, partitions=frozenset())

    def without(self, partitions: frozenset[TopicPartition]) -> Transaction:
        """Return the transaction without partitions that have their marker."""
        return replace(self, partitions=self.partitions - partitions)


@dataclass(frozen=True, slots=True)
class Entry:
    """A transactional id as the coordinator holds it: the durable state, and the transition under way."""

    #: None until the first record of a new transactional id is durable.
    stored: Transaction | None
    #: The state after the record that is being written. Complete*: its markers are written first.
    pending: Transaction | None = None

    def check_invariants(self) -> None:
        stored, pending = self.stored, self.pending
        assert stored is not None or pending is not None
        if stored is not None:
            assert stored.producer_id >= 0
            assert 0 <= stored.producer_epoch <= EPOCH_MAX
            assert stored.state not in (_S.DEAD, _S.PREPARE_EPOCH_FENCE)
            assert not (stored.partitions and stored.state in IDLE)
            assert (stored.state in PREPARED) == (pending is not None and pending.state in COMPLETE)
        if pending is not None:
            assert stored is None or stored.state in LEGAL[pending.state]
