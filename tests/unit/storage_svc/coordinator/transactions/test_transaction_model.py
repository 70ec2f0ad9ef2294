"""The transaction machine under random calls, writes that fail, markers in any order and crashes at every step.

The model is the data: partitions with batches and markers, in which each batch has the number of the transaction that
its client believed to be in. At the end everything that was prepared is driven to its end. Then every transaction is
committed in all its partitions or in none: in all, if a client was answered so, in none if it aborted or was fenced.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.transaction_log import TransactionState
from storage_svc.coordinator.transactions.events import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    Event,
    Expire,
    InitProducer,
    MarkersWritten,
    Recover,
    Stored,
    TransactionAnswer,
    TransactionOutcome,
)
from storage_svc.coordinator.transactions.machine import fault, handle
from storage_svc.coordinator.transactions.records import decode_value, encode_value
from storage_svc.coordinator.transactions.transaction import Entry

PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0)]
TIMEOUT_MS = 1000


@dataclass
class Producer:
    """A client that has received this id and epoch."""

    producer_id: int
    producer_epoch: int
    #: The number of its transaction.
    number: int
    has_asked_to_end: bool = False


@dataclass
class Partition:
    #: (producer id, epoch, number of the transaction) of a batch, (producer id, epoch, commit) of a marker.
    log: list[tuple[int, int, int | bool]] = field(default_factory=list)

    def epoch(self, producer_id: int) -> int:
        return max((epoch for known, epoch, _ in self.log if known == producer_id), default=-1)

    def fates(self) -> dict[int, set[bool | None]]:
        """Return how each transaction's batches ended: committed, aborted, or not at all."""
        found: dict[int, set[bool | None]] = {}
        for at, (producer_id, _, what) in enumerate(self.log):
            if not isinstance(what, bool):
                end = next((w for p, _, w in self.log[at:] if p == producer_id and isinstance(w, bool)), None)
                found.setdefault(what, set()).add(end)
        return found


class Model:
    def __init__(self, version: int) -> None:
        #: The transaction.version of all clients.
        self.version = version
        self.entry: Entry | None = None
        #: The durable record, as bytes; None without one.
        self.record: bytes | None = None
        #: The write under way: its outcome, its event and the caller.
        self.write: tuple[TransactionOutcome, Event, Producer | None] | None = None
        self.markers: set[tuple[str, int]] = set()
        self.partitions = {name: Partition() for name in PARTITIONS}
        self.producers: list[Producer] = []
        self.now_ms = 1_000_000
        self.next_id = 1
        self.next_number = 0
        #: Transactions of which a client knows the end.
        self.promised: dict[int, bool] = {}
        #: Transactions that a client asked to end: whether to commit.
        self.wanted: dict[int, bool] = {}
        #: Calls that the network may deliver again.
        self.late: list[EndTransaction | AddPartitions] = []
        self.handed_out: set[tuple[int, int]] = set()

    # --- the host -------------------------------------------------------------------------------------------------

    def send(self, event: Event, producer: Producer | None = None) -> TransactionAnswer | None:
        outcome = handle("t", self.entry, event, self.now_ms, self.next_id)
        self.next_id += outcome.takes_id
        self.entry = outcome.entity
        self.markers |= outcome.markers
        answer: TransactionAnswer | None = outcome.answers[0].value if outcome.answers else None
        if outcome.records:
            assert self.write is None
            self.write = outcome, event, producer
            return None
        if answer is not None:
            self.answered(event, producer, answer)
        return answer

    def answered(self, event: Event, producer: Producer | None, answer: TransactionAnswer) -> None:
        if answer.error:
            return
        match event:
            case InitProducer():
                if event.expected is None:
                    assert (answer.producer_id, answer.producer_epoch) not in self.handed_out
                self.begin(answer.producer_id, answer.producer_epoch)
            case EndTransaction() if producer is not None:
                is_first = producer.number not in self.promised
                assert self.promised.setdefault(producer.number, event.commit) == event.commit
                if is_first and event.client_version >= 2:
                    self.begin(answer.producer_id, answer.producer_epoch)
                elif is_first:
                    self.begin(producer.producer_id, producer.producer_epoch)

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Begin the next transaction of a client; it is over with the one before."""
        self.handed_out.add((producer_id, producer_epoch))
        self.producers = [
            each for each in self.producers if (each.producer_id, each.producer_epoch) != (producer_id, producer_epoch)
        ]
        self.next_number += 1
        self.producers.append(Producer(producer_id, producer_epoch, self.next_number))

    # --- steps: each has a number for its choices -------------------------------------------------------------------

    def write_ends(self, choice: int) -> None:
        if self.write is None:
            return
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if choice % 8 == 7 else ErrorCode.NONE
        (outcome, event, producer), self.write = self.write, None
        if not error:
            self.record = encode_value(outcome.records[0])
        self.send(Stored(error))
        for answer in outcome.answers:
            self.answered(event, producer, TransactionAnswer(error) if error else answer.value)

    def crash(self, choice: int) -> None:
        """Lose the memory; a write under way is on the disk or not. Nobody is answered."""
        if self.write is not None and choice % 2:
            self.record = encode_value(self.write[0].records[0])
        self.write = None
        self.markers.clear()
        self.entry = None if self.record is None else Entry(decode_value("t", self.record))
        self.send(Recover())

    def recover(self, _: int) -> None:
        if self.write is None:
            self.send(Recover())

    def write_marker(self, choice: int) -> None:
        if not self.markers:
            return
        name = sorted(self.markers)[choice % len(self.markers)]
        assert self.entry is not None
        assert self.entry.stored is not None
        stored = self.entry.stored
        partition = self.partitions[name]
        if partition.epoch(stored.producer_id) <= stored.producer_epoch:
            commit = stored.state is TransactionState.PREPARE_COMMIT
            partition.log.append((stored.producer_id, stored.producer_epoch, commit))
        self.markers.discard(name)
        self.send(MarkersWritten(frozenset((name,))))

    def init(self, choice: int) -> None:
        """Start a producer, or let one go on after an error."""
        known = None
        if choice % 4 == 0 and self.producers:
            known = self.producers[-1].producer_id, self.producers[-1].producer_epoch
        self.send(InitProducer(TIMEOUT_MS, known))

    def one(self, choice: int) -> Producer | None:
        """Return a producer, most often the newest."""
        return self.producers[-1 - (0, 0, 0, 0, 0, 1, 2)[choice % 7] % len(self.producers)] if self.producers else None

    def add(self, choice: int) -> None:
        each = self.one(choice)
        if each is not None and not each.has_asked_to_end:
            partitions = frozenset(PARTITIONS[: 1 + choice // 7 % 3])
            event = AddPartitions(each.producer_id, each.producer_epoch, partitions, self.version)
            self.late.append(event)
            self.send(event, each)

    def produce(self, choice: int) -> None:
        """Write a batch, as a log does that asks the coordinator; a late one may come after the client's EndTxn."""
        each, name = self.one(choice), PARTITIONS[choice // 7 % 3]
        if each is None or (each.has_asked_to_end and self.version < 2):
            return
        partition = self.partitions[name]
        if partition.epoch(each.producer_id) > each.producer_epoch:
            return
        if fault(self.entry, each.producer_id, each.producer_epoch, name) is ErrorCode.NONE:
            partition.log.append((each.producer_id, each.producer_epoch, each.number))

    def end(self, choice: int) -> None:
        each, commit = self.one(choice), choice // 7 % 3 > 0
        if each is None or self.wanted.setdefault(each.number, commit) != commit:
            return  # a client does not change its mind
        each.has_asked_to_end = True
        event = EndTransaction(each.producer_id, each.producer_epoch, commit, self.version)
        self.late.append(event)
        self.send(event, each)

    def deliver_again(self, choice: int) -> None:
        """Deliver an old call again. Only version 2 promises that this changes no other transaction."""
        if self.late and self.version == 2:
            self.send(self.late[-1 - choice % len(self.late)])

    def sweep(self, choice: int) -> None:
        self.now_ms += choice * 10
        self.send(AbortTimedOut())

    def use_up_epochs(self, _: int) -> None:
        """Let the producer have used almost all epochs of its id, between two transactions."""
        if self.entry is None or self.entry.pending is not None or self.entry.stored is None:
            return
        stored = self.entry.stored
        if stored.state is TransactionState.EMPTY and stored.producer_epoch < 32_000:
            self.entry = Entry(replace(stored, producer_epoch=32_764))
            self.record = encode_value(replace(stored, producer_epoch=32_764))
            self.producers.clear()
            self.late.clear()
            self.begin(stored.producer_id, 32_764)

    def expire(self, _: int) -> None:
        self.send(Expire(10 * TIMEOUT_MS))

    # --- the end --------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        while self.write is not None or self.markers:
            self.write_ends(0)
            self.write_marker(0)

    def check(self) -> None:
        """Drive everything to its end after a last crash, and look at the data."""
        self.crash(0)
        self.settle()
        self.now_ms += 3 * TIMEOUT_MS
        self.send(AbortTimedOut())
        self.settle()
        fates: dict[int, set[bool | None]] = {}
        for partition in self.partitions.values():
            for number, found in partition.fates().items():
                fates.setdefault(number, set()).update(found)
        for number, found in fates.items():
            assert len(found) == 1, f"transaction {number} is torn: {found}"
            (fate,) = found
            assert fate is not None, f"transaction {number} hangs"
            if number in self.promised:
                assert fate == self.promised[number]
            if fate:
                assert self.wanted.get(number), f"transaction {number} was never committed"


#: Names of steps, as often as they are likely.
STEPS = (
    ["write_ends"] * 20
    + ["write_marker"] * 20
    + ["produce"] * 12
    + ["add"] * 8
    + ["end"] * 8
    + ["deliver_again"] * 6
    + ["recover", "crash", "sweep"] * 2
    + ["init", "expire", "use_up_epochs"]
)
WALK_STEPS = 300


@pytest.mark.parametrize("version", [0, 2])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_transaction_is_committed_everywhere_or_nowhere(version: int, seed: int) -> None:
    """A walk is long, so that several transactions follow each other; hypothesis chooses where it goes."""
    random = Random(seed)
    model = Model(version)
    model.init(1)
    for _ in range(WALK_STEPS):
        getattr(model, random.choice(STEPS))(random.randrange(256))
        if model.entry is not None:
            model.entry.check_invariants()
    model.check()
