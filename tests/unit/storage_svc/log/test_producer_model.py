"""Producers, transactions and starts against a model that forgets only as much as Kafka does.

The log is stopped, killed and damaged (snapshots, transaction indexes) at any moment. A producer that sends a batch
again gets the answer that the model knows, and committed readers see the records of the model.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.transaction_end import end_transaction

OK, OUT_OF_ORDER, INVALID_EPOCH, INVALID_TXN_STATE, COORDINATOR_FENCED = 0, 45, 47, 48, 52
WINDOW = 5
SEQUENCES = 2**31
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100)
PRODUCER = st.integers(0, 2)


@dataclass
class Batch:
    first_sequence: int
    count: int
    offset: int = -1


@dataclass
class Producer:
    next_sequence: int
    epoch: int = 0
    known: bool = False
    #: The batches under this epoch, the newest last.
    batches: list[Batch] = field(default_factory=list)
    may_begin: bool = False
    open_since: int | None = None
    coordinator_epoch: int = -1


class ProducerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="producers"))
        #: Offset of every batch of records, and of the markers.
        self.offsets: list[int] = []
        self.end = 0
        self.aborted: list[tuple[int, int, int]] = []
        self.directory: DataFolder
        self.log: PartitionLog

    @initialize(first=st.sampled_from([0, 7, SEQUENCES - 4]))
    def begin(self, first: int) -> None:
        self.producers = [Producer(first), Producer(0), Producer(0)]
        self._open()
        for number in range(3):
            self.produce(number, [1, 2, 1])

    def _open(self) -> None:
        settings = LogSettings(flush_policy=FlushPolicy.OS)
        self.directory = DataFolder.open(self.folder, settings, clock=lambda: NOW_MS)
        self.log = self.directory.create("t", 0, bytes(16), CONFIG)

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory.release()
        shutil.rmtree(self.folder)

    def _send(self, number: int, first_sequence: int, count: int, epoch: int, transactional: bool) -> tuple[int, int]:
        batch = build_batch(
            [Record(offset, NOW_MS, b"key", b"value") for offset in range(count)],
            producer_id=number,
            producer_epoch=epoch,
            base_sequence=first_sequence % SEQUENCES,
            transactional=transactional,
        )
        appended = self.log.append(batch, verified=self.producers[number].may_begin)
        return appended.error_code, appended.base_offset

    # -- producers ----------------------------------------------------------------------------------------------------

    @rule(number=PRODUCER, counts=st.lists(st.integers(1, 3), min_size=1, max_size=7))
    def produce(self, number: int, counts: list[int]) -> None:
        producer = self.producers[number]
        transactional = producer.may_begin or producer.open_since is not None
        for count in counts:
            outcome = self._send(number, producer.next_sequence, count, producer.epoch, transactional)
            assert outcome == (OK, self.end)
            if transactional and producer.open_since is None:
                producer.open_since = self.end
            producer.batches.append(Batch(producer.next_sequence % SEQUENCES, count, self.end))
            producer.next_sequence = (producer.next_sequence + count) % SEQUENCES
            producer.known = True
            self.offsets.append(self.end)
            self.end += count

    @rule(number=PRODUCER)
    def produce_outside(self, number: int) -> None:
        """Produce in a transaction that was not begun, or without the one that is open."""
        producer = self.producers[number]
        if producer.open_since is not None or not producer.may_begin:
            transactional = producer.open_since is None
            outcome = self._send(number, producer.next_sequence, 1, producer.epoch, transactional)
            assert outcome == (INVALID_TXN_STATE, -1)

    @rule(number=PRODUCER, back=st.lists(st.integers(1, 8), min_size=1, max_size=8))
    def send_again(self, number: int, back: list[int]) -> None:
        producer = self.producers[number]
        for each in back:
            if each <= len(producer.batches):
                batch = producer.batches[-each]
                outcome = self._send(number, batch.first_sequence, batch.count, producer.epoch, False)
                assert outcome == ((OK, batch.offset) if each <= WINDOW else (OUT_OF_ORDER, -1))

    @rule(number=PRODUCER, ahead=st.integers(1, 3))
    def leave_a_gap(self, number: int, ahead: int) -> None:
        producer = self.producers[number]
        if producer.known:
            first = producer.next_sequence + ahead
            assert self._send(number, first, 1, producer.epoch, False) == (OUT_OF_ORDER, -1)

    @rule(number=PRODUCER)
    def come_back_from_the_dead(self, number: int) -> None:
        producer = self.producers[number]
        if producer.known and producer.epoch:
            assert self._send(number, 0, 1, producer.epoch - 1, False) == (INVALID_EPOCH, -1)

    # -- the coordinator ----------------------------------------------------------------------------------------------

    @rule(number=PRODUCER)
    def may_begin(self, number: int) -> None:
        self.producers[number].may_begin = True

    @rule(number=PRODUCER, commit=st.booleans(), bump=st.booleans(), coordinator_epoch=st.integers(0, 2))
    def end_transaction(self, number: int, commit: bool, bump: bool, coordinator_epoch: int) -> None:
        producer = self.producers[number]
        epoch = producer.epoch + bump
        appended = end_transaction(self.log, number, epoch, commit=commit, coordinator_epoch=coordinator_epoch)
        outcome = appended.error_code, appended.base_offset
        if coordinator_epoch < producer.coordinator_epoch:
            assert outcome == (COORDINATOR_FENCED, -1)
            return
        assert outcome == (OK, self.end)
        if producer.open_since is not None and not commit:
            self.aborted.append((number, producer.open_since, self.end))
        producer.known, producer.coordinator_epoch = True, coordinator_epoch
        producer.may_begin, producer.open_since = False, None
        if bump or not producer.batches:
            producer.epoch, producer.batches, producer.next_sequence = epoch, [], 0
        self.offsets.append(self.end)
        self.end += 1

    # -- events of the log --------------------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        if self.log.segments.active.size:
            self.log.roll(NOW_MS)

    @rule(clean=st.booleans(), damage=st.sampled_from(["", "*.snapshot", "*.txnindex"]), which=st.integers(0, 20))
    def start_again(self, clean: bool, damage: str, which: int) -> None:
        if clean:
            self.directory._close_logs()
        self.directory.release()
        paths = sorted((self.folder / "t-0").glob(damage)) if damage else []
        for path in paths[which % len(paths) :] if paths else []:
            path.write_bytes(path.read_bytes()[:-1] + b"\xff")
        for producer in self.producers:
            producer.may_begin = False
        self._open()

    # -- invariants ---------------------------------------------------------------------------------------------------

    @invariant()
    def readers_see_what_is_decided(self) -> None:
        if not hasattr(self, "log"):
            return
        self.directory.check_invariants()
        opened = [producer.open_since for producer in self.producers if producer.open_since is not None]
        stable = min(opened, default=self.end)
        assert (self.log.last_stable_offset, self.log.log_end_offset) == (stable, self.end)
        spans = self.log.spans(0, 1 << 20, min_one=True, committed=True)
        data = b"".join(segment.read(position, length) for segment, position, length in spans)
        assert [header.base_offset for header, _ in read_batches(data)] == [
            offset for offset in self.offsets if offset < stable
        ]
        index = [tuple(entry)[:3] for segment in self.log.segments for entry in segment.transaction_index]
        assert index == self.aborted
        wanted = [(number, first) for number, first, _ in self.aborted if first < stable]
        assert self.log.transactions.aborted(0, spans)[: len(wanted)] == (wanted if spans else [])


TestProducerModel = ProducerModel.TestCase
TestProducerModel.settings = settings(max_examples=40, stateful_step_count=40, suppress_health_check=list(HealthCheck))
