"""The check of one partition of a stopped volume, read whole and compared with itself (verification.py has
the list).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from storage_svc.log.batch.readability import UnreadableBatches
from storage_svc.log.config import LogConfig
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.producers.snapshot_file import SNAPSHOT_SUFFIX, SnapshotEntry, UnreadableSnapshot, decode_snapshot
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.recovery.partition_folder import FolderContents, contents, listing
from storage_svc.log.recovery.producer_recovery import ProducerRecovery
from storage_svc.log.recovery.quarantine import known_gaps
from storage_svc.log.recovery.recovery import Known
from storage_svc.log.recovery.segment_scan import Hole, SegmentScan
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.transaction_index import AbortedTransaction
from storage_svc.log.segment_names import file_stem

#: Entries of one index that are reported one by one.
_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """`fault`: something was right once and is not any more, or clients cannot read a batch; else a start of the broker
    puts it right without loss.
    """

    path: str
    text: str
    fault: bool = True

    def __str__(self) -> str:
        return f"{'fault' if self.fault else 'note '}  {self.path}: {self.text}"


class PartitionCheck:
    """Use once: `for finding in PartitionCheck(…).run()`."""

    def __init__(self, files: Files, folder: str, known: Known) -> None:
        self._files = files
        self._folder = folder
        self._name = folder.rsplit("/", 1)[1]
        self._known = known
        self._durable_offset = max(known.recovery_point, known.high_watermark)
        self._epochs = LeaderEpochs(files, f"{folder}/{checkpoints.LEADER_EPOCHS}")
        self._state = ProducerState()
        self._producers = ProducerRecovery(files, folder, (), 0)
        self._snapshots: list[tuple[int, list[SnapshotEntry]]] = []
        self._gaps: dict[int, int] = {}
        self._end_offset = 0
        self.segments = self.batches = self.bytes = self.unreadable_batches = 0

    def run(self) -> Iterator[Finding]:
        """Check the partition and yield every finding.

        Raises:
            StorageFailure: something cannot be read.
        """
        found = contents(listing(self._files, self._folder))
        self._gaps = known_gaps(self._files, self._folder)
        for name in found.left_over:
            yield self._finding(name, "left over: the next start finishes or removes it", fault=False)
        yield from self._check_identity()
        yield from self._load_snapshots(found)
        segments = [self._segment(base, size) for base, size in found.logs.items()]
        self._epochs.load(self._known.log_start_offset)
        stored_epochs = self._epochs.entries
        if not self._epochs.found and any(found.logs.values()):
            there = self._files.exists(self._epochs.path)
            text = "unreadable, empty or out of order" if there else "missing"
            yield self._finding(checkpoints.LEADER_EPOCHS, text, fault=there)
        for index, segment in enumerate(segments):
            segment.open()
            try:
                yield from self._check_segment(segment, segments[index + 1 :], segment.base_offset in found.indexes)
            finally:
                segment.close()
        yield from self._check_offsets(segments)
        if self._epochs.found and self._epochs.entries != stored_epochs:
            text = f"holds {stored_epochs}, the batches say {self._epochs.entries}"
            yield self._finding(checkpoints.LEADER_EPOCHS, text)

    def _finding(self, name: str, text: str, *, fault: bool = True) -> Finding:
        return Finding(f"{self._name}/{name}", text, fault)

    def _segment(self, base_offset: int, size: int) -> Segment:
        segment = Segment(self._files, self._folder, base_offset, LogConfig(), 0)
        segment.size = size
        self.segments += 1
        self.bytes += size
        return segment

    def _check_identity(self) -> Iterator[Finding]:
        data = self._files.read_file(f"{self._folder}/{checkpoints.PARTITION_METADATA}")
        try:
            if data is not None:
                checkpoints.decode_partition_metadata(data)
        except checkpoints.UnreadableCheckpoint as error:
            yield self._finding(checkpoints.PARTITION_METADATA, str(error))

    def _check_offsets(self, segments: list[Segment]) -> Iterator[Finding]:
        """Check that the records are there which the checkpoints promise."""
        if segments and self._end_offset < self._durable_offset:
            lost = f"offsets {self._end_offset} to {self._durable_offset - 1} are gone; they were durable"
            yield Finding(self._name, lost)
        if self._known.log_start_offset > self._end_offset:
            yield Finding(self._name, f"starts at {self._known.log_start_offset}, after its end {self._end_offset}")
        for offset, _ in self._snapshots:
            if offset > self._end_offset:
                name = f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"
                yield self._finding(name, f"is after the end of the log, {self._end_offset}", fault=self._known.clean)

    # -- producers ----------------------------------------------------------------------------------------------------

    def _load_snapshots(self, found: FolderContents) -> Iterator[Finding]:
        for offset in found.snapshots:
            name = f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"
            data = self._files.read_file(f"{self._folder}/{name}") or b""
            try:
                entries = decode_snapshot(data)
            except UnreadableSnapshot as error:
                yield self._finding(name, f"unreadable: {error}")
                continue
            if found.logs and offset == min(found.logs):
                self._state.load(data, offset, 0)
            self._snapshots.append((offset, entries))

    def _check_snapshots(self, below: int) -> Iterator[Finding]:
        """Check the snapshots up to an offset, now that all batches before it were read."""
        while self._snapshots and self._snapshots[0][0] <= below:
            offset, entries = self._snapshots.pop(0)
            for entry in entries:
                producer = self._state.producers.get(entry.producer_id)
                if producer is None or not producer.batches:
                    continue
                # Of a batch that was deleted or compacted away the snapshot alone knows.
                if producer.batches[-1].last_offset < entry.last_offset < offset:
                    continue
                wanted = (producer.epoch, producer.batches[-1].last_sequence, producer.batches[-1].last_offset)
                if wanted != (entry.producer_epoch, entry.last_sequence, entry.last_offset):
                    name = f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"
                    text = f"producer {entry.producer_id}: {entry[1:4]}, the batches say {wanted}"
                    yield self._finding(name, f"(epoch, last sequence, last offset) of {text}")

    # -- one segment --------------------------------------------------------------------------------------------------

    def _check_segment(self, segment: Segment, later: list[Segment], indexed: bool) -> Iterator[Finding]:
        name = segment.path.rsplit("/", 1)[1]
        before = self._end_offset
        if self.segments and segment.base_offset < before:
            yield self._finding(name, f"begins below offset {before}, where the segment before it ends")
        durable_to = self._durable_offset
        log_end = durable_to if self._known.clean else None
        scan = SegmentScan(
            segment,
            self._epochs,
            later,
            lambda _window, _hole: False,
            gaps=self._gaps,
            log_end=log_end,
            durable_to=durable_to,
        )
        offset_index, time_index = _IndexEntries(segment, 0), _IndexEntries(segment, 1)
        largest = -1
        aborted: list[AbortedTransaction] = []
        unreadable = UnreadableBatches(self._known.log_start_offset)
        for position, header in scan:
            yield from self._check_snapshots(header.base_offset)
            self.batches += 1
            self._epochs.assign(header.leader_epoch, header.base_offset)
            largest = max(largest, header.max_timestamp)
            offset_index.met(position, header.last_offset)
            time_index.met(header.last_offset, largest)
            unreadable.check(position, header, scan.window.batch(position, header))
            if header.producer_id >= 0:
                batch = partial(scan.window.batch, position, header)
                if (one := self._producers.replay(self._state, header, batch)) is not None:
                    aborted.append(one)
        self._end_offset = max(before, scan.end_offset)
        yield from self._check_snapshots(self._end_offset)
        yield from self._scanned(name, scan, last=not later)
        yield from self._unreadable(name, unreadable)
        # The newest indexes that a crash left are rebuilt, and so are all of a segment that is repaired.
        excused = (not self._known.clean and not later) or bool(scan.holes)
        if indexed or later or self._known.clean:
            for index in (offset_index, time_index):
                yield from self._check_index(index, fault=not excused)
            if largest >= 0 and time_index.last_value != largest and not excused:
                text = f"its last timestamp is {time_index.last_value}, the largest of the segment is {largest}"
                yield self._finding(time_index.name, text)
        yield from self._check_transactions(segment, aborted, excused)

    def _scanned(self, name: str, scan: SegmentScan, *, last: bool) -> Iterator[Finding]:
        for hole in scan.holes:
            torn = last and not self._known.clean and hole.next_offset is None
            torn = torn and hole.first_offset >= self._durable_offset
            yield self._finding(name, _described(hole, torn=torn), fault=not torn)
        if scan.epochs_wrong:
            yield self._finding(checkpoints.LEADER_EPOCHS, f"contradicts the batches of {name}")
        for position, header in scan.corrected:
            text = f"at position {position} must have base offset {header.base_offset}, epoch {header.leader_epoch}"
            yield self._finding(name, f"the batch {text}")

    def _unreadable(self, name: str, found: UnreadableBatches) -> Iterator[Finding]:
        self.unreadable_batches += found.count
        for position, first, last, reason in found.named:
            text = f"clients cannot read the batch at position {position}, offsets {first} to {last}: {reason}"
            yield self._finding(name, text)
        if found.count > len(found.named):
            yield self._finding(name, f"nor {found.count - len(found.named)} batches more")

    def _check_index(self, index: _IndexEntries, *, fault: bool) -> Iterator[Finding]:
        if not index.there:
            yield self._finding(index.name, "missing, or of a size that cannot be", fault=fault)
        elif not index.in_order:
            yield self._finding(index.name, "entries are not in order", fault=fault)
        wrong = index.wrong()
        for key, value in wrong[:_NAMED_MAX]:
            yield self._finding(index.name, f"entry ({key}, {value}) leads to no batch", fault=fault)
        if len(wrong) > _NAMED_MAX:
            yield self._finding(index.name, f"and {len(wrong) - _NAMED_MAX} entries more", fault=fault)

    def _check_transactions(
        self, segment: Segment, aborted: list[AbortedTransaction], excused: bool
    ) -> Iterator[Finding]:
        index = segment.transaction_index
        name = index.file.path.rsplit("/", 1)[1]
        if not index.load(segment.base_offset, 2**63 - 1):
            yield self._finding(name, "entries are not in order", fault=not excused)
        elif index.sealed() is False:
            yield self._finding(name, "does not match its checksum", fault=not excused)
        # The first offset of a transaction that began before the log is unknown.
        start = self._known.log_start_offset
        there = [entry for entry in index if entry.first_offset >= start]
        wanted = [entry for entry in aborted if entry.first_offset >= start]
        if there != wanted and not self._began_before(there, wanted):
            text = f"holds {len(index)} aborted transactions, the log {len(aborted)}, or not the same"
            yield self._finding(name, text, fault=not excused)

    def _began_before(self, there: list[AbortedTransaction], wanted: list[AbortedTransaction]) -> bool:
        """Return whether all differences are transactions whose first batches were deleted or compacted away."""
        markers = [[(entry.producer_id, entry.last_offset) for entry in entries] for entries in (there, wanted)]
        return markers[0] == markers[1] and all(
            entry.first_offset <= other.first_offset for entry, other in zip(there, wanted, strict=True)
        )


class _IndexEntries:
    """The entries of one index that no batch has confirmed yet: offset index (0) or time index (1)."""

    def __init__(self, segment: Segment, kind: int) -> None:
        index = segment.time_index if kind else segment.offset_index
        self.name = index.file.path.rsplit("/", 1)[1]
        self.there = index.file.load(growing=False)
        base = segment.base_offset
        entries = [tuple(entry) for entry in index.file]
        index.file.release()
        #: Position -> last offset, or last offset -> largest timestamp.
        pairs = [(position, base + offset) for offset, position in entries]
        if kind:
            pairs = [(base + offset, timestamp) for timestamp, offset in entries]
        self._entries = dict(pairs)
        self.in_order = all(low[0] < high[0] and low[1] < high[1] for low, high in pairwise(pairs))
        self.last_value = pairs[-1][1] if pairs else -1

    def met(self, key: int, value: int) -> None:
        """Note a batch: its position and last offset, or its last offset and the largest timestamp up to it."""
        if self._entries.get(key) == value:
            del self._entries[key]

    def wrong(self) -> list[tuple[int, int]]:
        return list(self._entries.items())


def _described(hole: Hole, *, torn: bool) -> str:
    what = "torn" if torn else "damaged"
    lost = f"from offset {hole.first_offset} on"
    if hole.next_offset is not None:
        lost = f"offsets {hole.first_offset} to {hole.next_offset - 1}"
    return f"{what} at position {hole.start}, {hole.end - hole.start} bytes, {lost}"
