"""A storage engine on a simulated disk whose power is cut at any call, compared with a model of its users.

Each of the two partitions has three idempotent producers with up to five batches in flight, a transactional producer,
and one without a producer id. After every cut the data folder is opened again, possibly with another cut. Then:

- everything acknowledged is there, at its offset, with the same bytes (`flush.policy=group`: acknowledged is synced);
- all other batches that are there were sent, are in the order of sending, and none is there twice;
- nothing that could be read is gone, and so the leader epoch has not moved;
- every producer sends its last five batches again, as if it had received no answer. Batches that are there keep their
  offsets, the others get new ones;
- transactions whose producers had no answer are ended again, and committed readers receive the list of aborted ones;
- records that were deleted stay deleted;
- the first attempt to write is acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults.disk_model import Any, Earliest, Leaves, Nothing
from faults.log_model import PRODUCERS, Partition, Sent
from faults.simulated_disk import PowerCut, SimulatedDisk
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk import checkpoints
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.outcome import Origin
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import apply_retention, drop_below_start
from storage_svc.log.partition.transaction_end import end_transaction

ROOT = Path("/simulated/data")
PARTITIONS = 2
TRANSACTIONAL = 1000
IN_FLIGHT_MAX = 5
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=200, retention_bytes=9000, retention_ms=-1)

PARTITION = st.integers(0, PARTITIONS - 1)
SIZES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 700)), min_size=1, max_size=3)
PRODUCER_OF_EACH = st.lists(st.sampled_from([None, *range(PRODUCERS)]), min_size=3, max_size=3)


@dataclass
class Tally:
    """Counts over all runs, so that a test can check that it tried anything."""

    cuts: int = 0
    cuts_in_flight: int = 0
    cuts_while_starting: int = 0
    acknowledged_batches: int = 0
    acknowledged_between_cuts: list[int] = field(default_factory=list)
    unacknowledged_survivors: int = 0
    repetitions: int = 0
    recoveries_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        between = sorted(self.acknowledged_between_cuts) or [0]
        recoveries = sorted(self.recoveries_s) or [0.0]
        return (
            f"{self.cuts} power cuts ({self.cuts_in_flight} with batches in flight, {self.cuts_while_starting} while "
            f"starting), {self.acknowledged_batches} batches acknowledged (median {between[len(between) // 2]} between "
            f"cuts), {self.unacknowledged_survivors} in flight survived, {self.repetitions} sent again, first "
            f"acknowledgement after {recoveries[len(recoveries) // 2] * 1000:.1f} ms (longest "
            f"{recoveries[-1] * 1000:.0f} ms); 0 acknowledged records lost"
        )


class PowerCuts(RuleBasedStateMachine):
    tally = Tally()

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        self.now_ms = 1_700_000_000_000
        self.number = 0
        self.acknowledged = 0
        self.seed = 0
        self.directory: DataFolder

    @initialize(seed=st.integers(0, 1 << 16))
    def start(self, seed: int) -> None:
        self.seed = seed
        self._open()

    def _open(self) -> None:
        settings = LogSettings(flush_policy=FlushPolicy.GROUP)
        self.directory = DataFolder.open(ROOT, settings, files=self.disk, clock=lambda: self.now_ms)
        self.logs = self.directory.create_many("t", range(PARTITIONS), bytes(range(16)), CONFIG)

    # -- users -------------------------------------------------------------------------------------------------------

    def _batch(self, partition: int, producer: int | None, count: int, size: int) -> Sent:
        value = str(self.number).encode().ljust(size, b".")
        self.number += 1
        records = [Record(n, self.now_ms, None, value) for n in range(count)]
        if producer is None:
            return Sent(build_batch(records), count)
        state = self.partitions[partition].producers[producer]
        made = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=state.sequence)
        state.sequence += count
        sent = Sent(made, count, producer)
        state.sent = [*state.sent, sent][-IN_FLIGHT_MAX:]
        return sent

    @rule(partition=PARTITION, sizes=SIZES, producers=PRODUCER_OF_EACH)
    def append(self, partition: int, sizes: list[tuple[int, int]], producers: list[int | None]) -> None:
        """Append batches that arrive in one turn: one write."""
        known = self.partitions[partition].producers
        self.now_ms += 1
        batches = []
        for (count, size), producer in zip(sizes, producers, strict=False):
            if producer is None or len(known[producer].in_flight) < IN_FLIGHT_MAX:
                batches.append(self._batch(partition, producer, count, size))
        self._survive(lambda: self._write(partition, batches))

    def _write(self, partition: int, batches: list[Sent]) -> None:
        """Stage, write, and wait for the sync; new ones and repetitions."""
        log, model = self.logs[partition], self.partitions[partition]
        outcomes = []
        for sent in batches:
            if sent in model.batches:
                self.tally.repetitions += 1
            else:
                sent.base_offset = model.batches[-1].end_offset if model.batches else 0
                model.batches.append(sent)
            outcomes.append((sent, log.stage(memoryview(sent.records), Origin.CLIENT, self.now_ms, verified=True)))
        log.write_staged()
        for sent, outcome in outcomes:
            assert (outcome.error_code, outcome.base_offset) == (0, sent.base_offset), outcome.error_message
            if not sent.acknowledged:
                log.on_durable(sent.end_offset, lambda code, sent=sent: self._acknowledge(sent, code))

    def _acknowledge(self, sent: Sent, code: int) -> None:
        assert code == 0
        if not sent.acknowledged:
            sent.acknowledged = True
            self.acknowledged += 1
            self.tally.acknowledged_batches += 1

    @rule()
    def sync(self) -> None:
        self._survive(lambda: self.directory.flusher.sync_now())

    @rule()
    def checkpoint(self) -> None:
        self._survive(lambda: self.directory.checkpoints.write_all())

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def delete_oldest(self, partition: int) -> None:
        self._survive(lambda: apply_retention(self.logs[partition], self.now_ms))

    @rule(partition=PARTITION, part=st.floats(0, 1))
    def delete_records(self, partition: int, part: float) -> None:
        log = self.logs[partition]
        offset = log.log_start_offset + int(part * (log.high_watermark - log.log_start_offset))

        def delete() -> None:
            log.raise_log_start(offset)
            assert asyncio.run(self.directory.checkpoints.store(checkpoints.LOG_START))
            self.partitions[partition].deleted_end = offset
            drop_below_start(log)

        self._survive(delete)

    @rule(partition=PARTITION, counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), commits=st.booleans())
    def transact(self, partition: int, counts: list[int], commits: bool) -> None:
        def begin_and_end() -> None:
            model = self.partitions[partition]
            model.undecided = commits
            self._write(partition, [self._transactional_batch(model, count) for count in counts])
            self._end_transaction(partition)

        self._survive(begin_and_end)

    def _transactional_batch(self, model: Partition, count: int) -> Sent:
        records = [Record(n, self.now_ms, None, str(self.number).encode()) for n in range(count)]
        self.number += 1
        made = build_batch(
            records,
            producer_id=TRANSACTIONAL,
            producer_epoch=0,
            base_sequence=model.transactional_sequence,
            transactional=True,
        )
        model.transactional_sequence += count
        return Sent(made, count, transactional=True)

    def _end_transaction(self, partition: int) -> None:
        """Write its marker, until a sync has answered for it."""
        log, model = self.logs[partition], self.partitions[partition]
        if (commits := model.undecided) is None:
            return
        marker = EndTransactionMarker(ControlType.COMMIT if commits else ControlType.ABORT, 0)
        made = build_marker_batch(marker, timestamp=self.now_ms, producer_id=TRANSACTIONAL, producer_epoch=0)
        sent = Sent(made, 1, base_offset=log.log_end_offset, transactional=True, commits=commits)
        model.batches.append(sent)
        ended = end_transaction(log, TRANSACTIONAL, 0, commit=commits, coordinator_epoch=0)
        assert (ended.error_code, ended.base_offset) == (0, sent.base_offset)
        log.on_durable(sent.end_offset, lambda code: self._acknowledge(sent, code))
        self.directory.flusher.sync_now()
        assert sent.acknowledged
        model.undecided = None
        assert log.last_stable_offset == log.high_watermark == log.log_end_offset

    @rule()
    def stop_and_start(self) -> None:
        def again() -> None:
            self.directory.check_invariants()
            asyncio.run(self.directory.close())
            assert self.disk.exists(f"{ROOT}/.kafka_cleanshutdown")
            self._open()
            self._everything_is_there()

        self._survive(again)

    # -- power cuts ------------------------------------------------------------------------------------------------

    @rule(partition=PARTITION, sizes=SIZES, producers=PRODUCER_OF_EACH)
    def cut_with_batches_in_flight(
        self, partition: int, sizes: list[tuple[int, int]], producers: list[int | None]
    ) -> None:
        self.append(partition, sizes, producers)
        self.disk.cut()
        self._recover()

    @precondition(lambda self: self.disk.cut_at is None)
    @rule(changes=st.integers(0, 12), partition=PARTITION, sizes=SIZES, producers=PRODUCER_OF_EACH)
    def cut_while_working(
        self, changes: int, partition: int, sizes: list[tuple[int, int]], producers: list[int | None]
    ) -> None:
        """Cut the power in the middle of an append, a roll, a sync or the step after it."""
        self.disk.cut_at = self.disk.changes + changes
        self.append(partition, sizes, producers)
        self.sync()

    def _survive(self, action: Callable[[], object]) -> None:
        try:
            action()
        except PowerCut:
            self._recover()

    def _recover(self) -> None:
        chance = random.Random(self.seed)
        self.seed += 1
        self.tally.acknowledged_between_cuts.append(self.acknowledged)
        self.tally.cuts_in_flight += any(partition.in_flight for partition in self.partitions)
        self.acknowledged = 0
        while True:
            self.tally.cuts += 1
            self.disk.restart(self._leaves(chance))
            if (changes := self._cut_again(chance)) is not None:
                self.disk.cut_at = self.disk.changes + changes
            started = time.perf_counter()
            try:
                self._open()
                self._everything_is_there()
                for partition in range(PARTITIONS):
                    self._end_transaction(partition)
                self._send_again()
                self.directory.flusher.sync_now()
                self._the_aborted_are_known()
            except PowerCut:
                self.tally.cuts_while_starting += 1
                continue
            assert not any(partition.in_flight for partition in self.partitions)
            self.tally.recoveries_s.append(time.perf_counter() - started)
            self.disk.cut_at = None
            return

    def _leaves(self, chance: random.Random) -> Leaves | None:
        """Choose the changes that survive the cut; None when only the process died."""
        return chance.choice((None, Nothing(), Earliest(self.disk.disk, chance), Any(chance)))

    def _cut_again(self, chance: random.Random) -> int | None:
        """Choose the number of changes that this start makes before the power goes again; None: no cut."""
        return chance.randrange(25) if chance.random() < 0.3 else None

    def _everything_is_there(self) -> None:
        for partition, log in zip(self.partitions, self.logs, strict=True):
            assert (log.offline, log.leader_epoch) == (None, 0)
            end = log.log_end_offset
            assert end >= partition.acknowledged_end, "acknowledged records are lost"
            assert end >= partition.readable_end, "records that were readable are lost"
            survivors = [each for each in partition.batches if each.end_offset <= end]
            self.tally.unacknowledged_survivors += sum(not each.acknowledged for each in survivors)
            partition.batches = survivors
            assert end == (survivors[-1].end_offset if survivors else 0)
            self._same_bytes(partition, log)
            assert log.log_start_offset >= partition.deleted_end
            written = sum(each.count for each in survivors if each.transactional and each.commits is None)
            partition.transactional_sequence = written
            for each in survivors:  # a producer without an id never sends again
                each.acknowledged = each.acknowledged or each.producer is None
        self.directory.check_invariants()

    def _same_bytes(self, partition: Partition, log: PartitionLog) -> None:
        there: list[tuple[int, bytes]] = []
        offset = log.log_start_offset
        while data := log.read_batches(offset, 1 << 16):
            for header, batch in read_batches(data):
                assert header.partition_leader_epoch == 0
                there.append((header.base_offset, bytes(batch)[16:]))
                offset = header.base_offset + header.last_offset_delta + 1
        start = log.log_start_offset
        sent = [(each.base_offset, each.records[16:]) for each in partition.batches if each.end_offset > start]
        assert [offset for offset, _ in there] == [offset for offset, _ in sent]
        assert there == sent

    def _the_aborted_are_known(self) -> None:
        """Check that committed readers drop exactly the records of aborted transactions, even after deletions."""
        for partition, log in zip(self.partitions, self.logs, strict=True):
            spans = log.spans(log.log_start_offset, 1 << 20, min_one=True, committed=True)
            listed = log.transactions.aborted(log.log_start_offset, spans)
            assert {producer for producer, _ in listed} <= {TRANSACTIONAL}
            there = [each for each in partition.batches if each.end_offset > log.log_start_offset]
            commits, aborted = None, []
            for each in reversed(there):
                if each.commits is not None:
                    commits = each.commits
                elif each.transactional and not commits:
                    aborted.insert(0, each)
            firsts = sorted(first for _, first in listed)
            inside, dropped = False, []
            for each in there:  # as Kafka's CompletedFetch does it
                while firsts and firsts[0] < each.end_offset:
                    inside = firsts.pop(0) >= 0
                if each.commits is False:
                    inside = False
                elif each.commits is None and each.transactional and inside:
                    dropped.append(each)
            assert dropped == aborted

    def _send_again(self) -> None:
        """Send batches again, as producers do that received no answer."""
        for index, partition in enumerate(self.partitions):
            start = self.logs[index].log_start_offset
            lost = [
                each
                for producer in partition.producers
                for each in producer.sent
                if not each.acknowledged or each.base_offset >= start
            ]
            self._write(index, lost)
            self._write(index, [self._batch(index, None, 1, 10)])

    @invariant()
    def consistent(self) -> None:
        self.directory.check_invariants()
        for partition, log in zip(self.partitions, self.logs, strict=True):
            partition.readable_end = max(partition.readable_end, log.high_watermark)

    def teardown(self) -> None:
        self.disk.cut()
