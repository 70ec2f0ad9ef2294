"""The producers of a partition: their epochs, their last five batches, and their open transactions.

A producer numbers its records; sequences wrap from 2^31 - 1 to 0. The answer to a batch depends on its sequence:

    the number after the producer's last one    accepted
    that of one of its last five batches        the original offset is returned
    0 under a new epoch                         accepted
    any number of an unknown producer           accepted

A transactional batch needs a transaction, which is open here under the batch's epoch. If none is, the caller has asked
the coordinator whether the partition is in the producer's transaction, and has a guard that stands (guards.py). While a
transaction is open its producer may write nothing outside it. A control batch ends it (`end`); it may also raise the
producer's epoch, and with it forget the five batches.

A snapshot file (snapshot_file.py) knows only the last batch of each producer. After a start the windows of the
producers it named are not complete; the missing batches are searched for when a producer needs them
(producer_look_back.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from protocol_lib.errors import NO_ERROR, ErrorCode
from protocol_lib.records.control import EndTransactionMarker
from protocol_lib.records.header import TRANSACTIONAL

from storage_svc.log.batch.header import Header
from storage_svc.log.producers.guards import Guards
from storage_svc.log.producers.open_transactions import OpenTransactions
from storage_svc.log.producers.snapshot_file import (
    ENTRY_SIZE,
    decode_snapshot,
    encode_snapshot,
    pack_entry,
    producer_id_of,
)

_WINDOW: Final = 5
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_NOTHING: Final = -1
#: The first transaction.version that raises the producer's epoch with each marker, and the epoch that is never raised.
_NEWER_EPOCH_VERSION: Final = 2
_EPOCH_MAX: Final = 0x7FFF

#: Producers that are packed for a snapshot in one step: 1 ms.
_PACKED_TOGETHER: Final = 1000

#: `check`'s result for a batch whose transaction is not verified.
UNVERIFIED: Final = -2


@final
class ProducedBatch(NamedTuple):
    """One batch of a producer, as remembered."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the batch's first record."""
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK


_NO_BATCH: Final = ProducedBatch(_NOTHING, _NOTHING, 0, -1)


@dataclass(slots=True)
class Producer:
    """One producer id."""

    epoch: int
    #: The producer's last batches under this epoch, oldest first.
    batches: list[ProducedBatch]
    #: The time of its last batch or marker, by our clock.
    seen_ms: int
    #: The largest timestamp of its last batch, or its last marker's.
    timestamp: int = -1
    coordinator_epoch: int = -1
    #: The first offset of its open transaction; -1 when none is open.
    transaction_first_offset: int = _NOTHING
    #: Whether `batches` is all there is to remember, even if it is short.
    complete: bool = True

    @property
    def lacks_batches(self) -> bool:
        """Whether the log may hold batches that belong into the window."""
        return not self.complete and 0 < len(self.batches) < _WINDOW

    def copy(self) -> Producer:
        """Return a copy with a list of batches for itself."""
        return Producer(
            self.epoch,
            self.batches.copy(),
            self.seen_ms,
            self.timestamp,
            self.coordinator_epoch,
            self.transaction_first_offset,
            self.complete,
        )

    def pack(self, producer_id: int) -> bytes:
        """Return the producer's entry of a snapshot file."""
        last_sequence, last_offset, delta, _ = self.batches[-1] if self.batches else _NO_BATCH
        return pack_entry(
            producer_id,
            self.epoch,
            last_sequence,
            last_offset,
            delta,
            self.timestamp,
            self.coordinator_epoch,
            self.transaction_first_offset,
        )

    def enter_epoch(self, epoch: int) -> None:
        """Enter this epoch; under a new one no batch is known."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []
            self.complete = True


@dataclass(slots=True)
class ProducerState:
    """The producers of one log, owned by its PartitionLog. `take_back` undoes every `add` since the last `keep`."""

    producers: dict[int, Producer] = field(default_factory=dict)
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    #: Those of transactions that may begin here, and of open ones whose requests have waited.
    guards: Guards = field(default_factory=Guards, compare=False, repr=False)
    #: Batches below this offset were not replayed: a snapshot stood for them.
    replayed_from: int = 0
    _before: dict[int, Producer | None] = field(default_factory=dict)
    #: The entries of a snapshot file, one after the other, and the place of each producer's among them.
    _entries: bytearray = field(default_factory=bytearray, compare=False, repr=False)
    _places: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    #: The producers that came, changed or went since their entries were written.
    _changed: set[int] = field(default_factory=set, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.producers)

    # -- data ---------------------------------------------------------------------------------------------------------

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, delta: int, transactional: bool, verified: bool
    ) -> int | ProducedBatch:
        """Judge a client's batch: return an error code, 0 to accept it, or the batch that it repeats.

        The code is UNVERIFIED if the batch belongs to a transaction that is not open here, and the caller has not
        `verified` it. Its sequence is judged after that, as in Kafka.
        """
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        # mutant: transaction-before-sequence
        if transactional and not verified and not self.is_open(producer_id, epoch):
            return UNVERIFIED
        if producer is not None:
            if epoch != producer.epoch:
                if first_sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                batches = producer.batches
                if first_sequence != ((batches[-1].last_sequence + 1) & _SEQUENCE_MASK if batches else 0):
                    return self._repeated(producer, first_sequence, delta)
        if transactional:
            return NO_ERROR
        return NO_ERROR if producer is None or producer.transaction_first_offset < 0 else ErrorCode.INVALID_TXN_STATE

    @staticmethod
    def _repeated(producer: Producer, first_sequence: int, delta: int) -> int | ProducedBatch:
        last_sequence = (first_sequence + delta) & _SEQUENCE_MASK
        for batch in producer.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == delta:
                return batch  # mutant: duplicate-found
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def check_epoch(self, producer_id: int, epoch: int) -> int:
        """Return an error code, or 0, for a coordinator's batch, whose sequence means nothing."""
        producer = self.producers.get(producer_id)
        return ErrorCode.INVALID_PRODUCER_EPOCH if producer is not None and epoch < producer.epoch else NO_ERROR

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this producer is open under this epoch."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset >= 0 and producer.epoch == epoch

    def add(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset: int,
        delta: int,
        timestamp: int,
        transactional: bool,
        now_ms: int,
    ) -> None:
        """Add a checked batch of records that is about to be written."""
        producer = self.producers.get(producer_id)
        if producer_id not in self._before:
            self._before[producer_id] = producer and producer.copy()
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch, [], now_ms)
        elif producer.epoch != epoch:
            producer.enter_epoch(epoch)
        last_sequence = (first_sequence + delta) & _SEQUENCE_MASK if first_sequence >= 0 else _NOTHING
        batches = producer.batches
        batches.append(ProducedBatch(last_sequence, last_offset, delta, timestamp))
        if len(batches) > _WINDOW:
            del batches[0]
        producer.seen_ms = now_ms
        producer.timestamp = timestamp
        self._changed.add(producer_id)  # mutant: changed-producer-packed
        if transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = last_offset - delta
            self.transactions.begin(producer_id, last_offset - delta)

    def keep(self) -> None:
        """Keep the batches that were added: they are written."""
        if self._before:
            self._before.clear()
            self.transactions.keep()
            if len(self._changed) >= _PACKED_TOGETHER:  # mutant: many-producers-packed-early
                self._pack()

    def take_back(self) -> None:
        """Forget the batches that were added since the last `keep`: they were not written."""
        self._changed.update(self._before)
        for producer_id, before in self._before.items():
            if before is None:
                del self.producers[producer_id]
            else:
                self.producers[producer_id] = before
        self._before.clear()
        self.transactions.take_back()

    # -- transactions -------------------------------------------------------------------------------------------------

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> int:
        """Return 0 if this marker may end the transaction, else an error code.

        Before transaction.version 2 a marker has its transaction's epoch. From 2 on it has a newer one, and a marker
        of the open transaction's epoch is a late one of an earlier transaction (Kafka's ProducerAppendInfo).
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            return NO_ERROR
        is_late = epoch == producer.epoch and transaction_version >= _NEWER_EPOCH_VERSION
        # mutant: late-marker-ignored
        if epoch < producer.epoch or (is_late and producer.transaction_first_offset >= 0 and epoch < _EPOCH_MAX):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED if coordinator_epoch < producer.coordinator_epoch else NO_ERROR

    def open_since(self, producer_id: int) -> int:
        """Return the first offset of the producer's open transaction, -1 when none is open."""
        producer = self.producers.get(producer_id)
        return _NOTHING if producer is None else producer.transaction_first_offset

    def end(
        self, producer_id: int, epoch: int, coordinator_epoch: int, marker_offset: int, timestamp: int, now_ms: int
    ) -> None:
        """Note that a marker is written: the producer's transaction, if one is open, is over."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch, [], now_ms)
        producer.enter_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = _NOTHING
        producer.timestamp = timestamp
        producer.seen_ms = now_ms
        self._changed.add(producer_id)  # mutant: ended-producer-packed
        self.transactions.end(producer_id, marker_offset)

    # -- recovery
    # ---------------------------------------------------------------------------------------------------------

    def replay(self, header: Header, now_ms: int) -> None:
        """Add a batch of records that was found in the log, with any sequence."""
        transactional = bool(header.attributes & TRANSACTIONAL)
        if header.producer_id >= 0 and (header.base_sequence >= 0 or transactional):
            self.add(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
                transactional,
                now_ms,
            )
            self.keep()

    def replay_marker(self, header: Header, marker: EndTransactionMarker, now_ms: int) -> None:
        """Add a control batch that was found in the log."""
        self.end(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            header.last_offset,
            header.max_timestamp,
            now_ms,
        )

    def remember_before(self, header: Header) -> None:
        """Add a batch from before the replayed ones, newest first, to a window that the snapshot left short."""
        producer = self.producers.get(header.producer_id)
        if producer is None or not producer.lacks_batches:
            return
        if header.producer_epoch != producer.epoch or header.base_sequence < 0:
            producer.complete = header.producer_epoch < producer.epoch
        elif header.last_offset < producer.batches[0].last_offset:
            last_sequence = (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK
            batch = ProducedBatch(last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            producer.batches.insert(0, batch)

    def expire(self, before_ms: int, step: int = sys.maxsize) -> Iterator[None]:
        """Forget producers that were silent since then, unless they have an open transaction.

        Yield after each `step` producers: the state may change then.
        """
        everyone = list(self.producers)
        for first in range(0, len(everyone), step):
            for producer_id in everyone[first : first + step]:
                producer = self.producers.get(producer_id)
                if producer and producer.seen_ms < before_ms and producer.transaction_first_offset < 0:
                    del self.producers[producer_id]
                    self._changed.add(producer_id)  # mutant: expired-producer-left-out
            yield

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the content of a snapshot file.

        A roll does this on the event loop, perhaps for a hundred thousand producers. Only those that have changed
        since they were packed last are packed, and `keep` lets no more than _PACKED_TOGETHER gather.
        """
        self._pack()
        return encode_snapshot(self._entries)

    def _pack(self) -> None:
        entries, places = self._entries, self._places
        for producer_id in self._changed:
            producer = self.producers.get(producer_id)
            if producer is None:
                self._leave_out(producer_id)
                continue
            begin = places.setdefault(producer_id, len(entries))
            entries[begin : begin + ENTRY_SIZE] = producer.pack(producer_id)
        self._changed.clear()

    def _leave_out(self, producer_id: int) -> None:
        """Put the last entry into the place of this producer's, if it has one."""
        begin = self._places.pop(producer_id, None)
        if begin is not None:
            last = self._entries[-ENTRY_SIZE:]
            del self._entries[-ENTRY_SIZE:]
            if begin < len(self._entries):
                self._entries[begin : begin + ENTRY_SIZE] = last
                self._places[producer_id_of(last)] = begin

    def load(self, data: bytes, offset: int, now_ms: int) -> None:
        """Take the state, which must be empty, from the content of the snapshot file of this offset.

        Raises:
            UnreadableSnapshot: it is damaged; the state is empty then.
        """
        for entry in decode_snapshot(data):
            batches = [ProducedBatch(*entry[2:6])] if entry.last_offset >= 0 else []
            self.producers[entry.producer_id] = Producer(
                entry.producer_epoch,
                batches,
                now_ms,
                entry.timestamp,
                entry.coordinator_epoch,
                max(_NOTHING, entry.transaction_first_offset),
                complete=not batches,
            )
        self._changed.update(self.producers)
        self._pack()  # in the thread of a start, not at the first batch
        firsts = {key: producer.transaction_first_offset for key, producer in self.producers.items()}
        self.transactions.restore({key: first for key, first in firsts.items() if first >= 0})
        self.replayed_from = offset
