"""One cleaning of one log, as work that needs nothing but its files: it reads them twice and writes new ones once.

First the keys of the dirty part go into the key map, until it is full or the part is read. Then every segment up to the
end of the map is copied, several small ones into one. The new segment has the base offset of the first of them, at most
`segment.bytes` and 2^31 offsets, and the modification time of the last. It is complete and synced, named `.cleaned`,
when its group is yielded; segment_swap.py puts it in the place of the old ones.

    segments 0 (900 B), 300 (500 B), 700 (800 B), segment.bytes 1500  ->  groups [0, 300] and [700]

A job and its results are plain data, so that another process can do the work (process.py). It needs memory for the key
map and a quarter more, the largest batch of the log, and a few megabytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

from protocol_lib.errors import ProtocolError
from protocol_lib.records.header import CONTROL, HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_AT
from protocol_lib.records.legacy import message_records, read_message

from storage_svc.log.batch.header import Header, headers, intact, unpack_header
from storage_svc.log.cleaner.filter import BatchFilter, LastBatch, body_of, control_type
from storage_svc.log.cleaner.key_map import KeyMap
from storage_svc.log.cleaner.mapped_batches import MappedBatches
from storage_svc.log.cleaner.output import CleanedOutput
from storage_svc.log.cleaner.records import scan_records
from storage_svc.log.cleaner.transactions import WalkedTransactions
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.pace import Pace
from storage_svc.log.errors import Uncleanable
from storage_svc.log.partition.segment_swap import CleanedGroup
from storage_svc.log.segment.transaction_index import AbortedTransaction
from storage_svc.log.segment_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_stem

_READ: Final = 1 << 20
_OFFSETS_MAX: Final = 2**31 - 1
#: The number of records for which a message of format 0 or 1 counts: it does not say how many it wraps.
_LEGACY_RECORDS: Final = 100
#: The memory of MappedBatches, at most, as a share of that of the key map.
_MAPPED_SHARE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """The segments to clean, and everything the work needs to know. Offsets `dirty_from` to `end_offset` are dirty."""

    folder: str
    #: (base offset, bytes) of every segment below `end_offset`, which is where the next one begins.
    segments: Sequence[tuple[int, int]]
    dirty_from: int
    end_offset: int
    log_start_offset: int
    high_watermark: int
    now_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    #: The last data offset and the epoch of each producer id.
    last_batches: Mapping[int, tuple[int, int]]
    #: The fields of every aborted transaction that began below `end_offset`.
    aborted: Sequence[tuple[int, int, int, int]]
    key_map_bytes: int
    #: Bytes read and written a second; 0 is no limit.
    bytes_per_second: int = 0

    def as_data(self) -> dict[str, Any]:
        """Return the job as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> CleaningJob:
        """Return the job of these data, which may have passed through JSON."""
        last = {int(producer_id): tuple(batch) for producer_id, batch in data.pop("last_batches").items()}
        return cls(last_batches=last, **data)


@dataclass(slots=True)
class CleaningStatistics:
    """The results of a cleaning. The log is dirty from `cleaned_to` on."""

    cleaned_to: int = -1
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0
    keys: int = 0
    key_map_bytes: int = 0
    seconds: float = 0.0


class Cleaning:
    """Does one job. `run` hands out groups as they become complete; `statistics` are final when it is over."""

    def __init__(self, files: Files, job: CleaningJob, stopped: Callable[[], bool] = lambda: False) -> None:
        self._files = files
        self._job = job
        self._pace = Pace(job.bytes_per_second, stopped)
        self._config = LogConfig(
            segment_index_bytes=job.segment_index_bytes, index_interval_bytes=job.index_interval_bytes
        )
        self._descriptors: dict[int, int] = {}
        self._modified_ms: dict[int, int] = {}
        self._aborted = [AbortedTransaction(*entry) for entry in job.aborted]
        self._syncs = ThreadPoolExecutor(1, "millrace-cleaner-sync")
        #: The batch that is read.
        self._batch = b""
        self.statistics = CleaningStatistics()

    def run(self) -> Iterator[CleanedGroup]:
        """Do the job and yield each group as it becomes complete.

        Raises:
            Uncleanable: a batch is damaged or malformed, or the key map too small for one batch.
            StorageFailure: the disk refused; the group that was being written is removed.
            Stopped: the broker stops the work; as above.
        """
        started = time.perf_counter()
        self.statistics.cleaned_to = self._job.dirty_from
        if not self._job.segments:
            return
        try:
            for base_offset, _ in self._job.segments:  # opened now: their names may change from here on
                path = f"{self._job.folder}/{file_stem(base_offset)}{LOG_SUFFIX}"
                self._descriptors[base_offset] = self._files.open(path, create=False)
                self._modified_ms[base_offset] = self._files.modified_ms(path)
            try:
                key_map, mapped, mapped_end = self._map_keys()
                yield from self._copy(key_map, mapped, mapped_end)
            except ProtocolError as error:
                base_offset, last_offset = _offsets(self._batch)
                reason = f"the batch of offset {base_offset} cannot be read: {error}"
                raise Uncleanable(reason, last_offset) from error
            self.statistics.cleaned_to = mapped_end
            self.statistics.seconds = time.perf_counter() - started
        finally:
            self._syncs.shutdown()
            for descriptor in self._descriptors.values():
                self._files.close(descriptor)
            self._descriptors.clear()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _batches(self, base_offset: int, size: int) -> Iterator[bytes]:
        """Yield every batch of a segment, or message of an older format, whole and with a right CRC."""
        descriptor = self._descriptors[base_offset]
        position = origin = 0
        buffer = b""
        while position < size:
            at = position - origin
            if at + MAGIC_AT >= len(buffer):
                buffer, origin, at = self._read(descriptor, position, min(_READ, size - position)), position, 0
            length = LOG_OVERHEAD + int.from_bytes(buffer[at + 8 : at + 12], "big", signed=True)
            if not MAGIC_AT < length <= size - position:
                raise Uncleanable(f"segment {base_offset} is damaged at position {position}: a batch of {length} bytes")
            if at + length > len(buffer):
                wanted = min(max(_READ, length), size - position)
                buffer, origin, at = self._read(descriptor, position, wanted), position, 0
            batch = buffer[at : at + length]
            if len(batch) < length or (batch[MAGIC_AT] == MAGIC and not _sound(batch)):
                raise Uncleanable(f"segment {base_offset} is damaged at position {position}: CRC")
            self._batch = batch
            yield batch
            position += length

    def _read(self, descriptor: int, position: int, length: int) -> bytes:
        self._pace.spend(length)
        self.statistics.bytes_read += length
        return self._files.read(descriptor, length, position)

    # -- mapping ------------------------------------------------------------------------------------------------------

    def _map_keys(self) -> tuple[KeyMap, MappedBatches, int]:
        """Return the map of the dirty part's keys, the batches in it, and the offset up to which it is complete."""
        job = self._job
        ends = [base for base, _ in job.segments[1:]] + [job.end_offset]
        dirty = [(base, size) for (base, size), end in zip(job.segments, ends, strict=True) if end > job.dirty_from]
        key_map = KeyMap(job.key_map_bytes, sum(self._count(base, size) for base, size in dirty))
        self.statistics.key_map_bytes = key_map.size_bytes
        mapped = MappedBatches(key_map, job.key_map_bytes // _MAPPED_SHARE)
        transactions = WalkedTransactions(self._aborted)
        mapped_end = job.dirty_from
        for base_offset, size in dirty:
            for batch in self._batches(base_offset, size):
                header = Header._make(unpack_header(batch)) if batch[MAGIC_AT] == MAGIC else None
                if not self._map_batch(key_map, mapped, transactions, header, batch):
                    self.statistics.keys = key_map.entries
                    if mapped_end == job.dirty_from:
                        raise Uncleanable(f"a key map of {key_map.size_bytes} bytes is too small for one batch")
                    return key_map, mapped, mapped_end
                last_offset = header.last_offset if header else int.from_bytes(batch[:8], "big")
                mapped_end = max(mapped_end, last_offset + 1)
        self.statistics.keys = key_map.entries
        return key_map, mapped, job.end_offset

    def _count(self, base_offset: int, size: int) -> int:
        """Return about how many records a segment holds."""
        return sum(
            header.records_count if header.magic == MAGIC else _LEGACY_RECORDS
            for _, header in headers(self._files, self._descriptors[base_offset], 0, size)
        )

    def _map_batch(
        self,
        key_map: KeyMap,
        mapped: MappedBatches,
        transactions: WalkedTransactions,
        header: Header | None,
        batch: bytes,
    ) -> bool:
        """Add a batch's keys to the map; return whether all of them found room."""
        dirty_from = self._job.dirty_from
        if header is None:
            records = [record for record in message_records(read_message(batch)[0]) if record.offset >= dirty_from]
            keys, offsets = [record.key for record in records], [record.offset for record in records]
            return key_map.put_all(keys, 0, offsets, key_map.no_positions())
        if header.attributes & CONTROL:
            transactions.marker_is_needless(header, control_type(batch))
            return True
        if transactions.batch_is_aborted(header) or header.last_offset < dirty_from:
            return True
        scanned = scan_records(body_of(header, batch), header.records_count, header.last_offset_delta)
        if header.base_offset >= dirty_from:
            return mapped.put(header, scanned)
        deltas = scanned.offset_deltas
        first = sum(header.base_offset + delta < dirty_from for delta in deltas)
        return key_map.put_all(scanned.keys[first:], header.base_offset, deltas[first:], key_map.no_positions())

    # -- copying ------------------------------------------------------------------------------------------------------

    def _copy(self, key_map: KeyMap, mapped: MappedBatches, mapped_end: int) -> Iterator[CleanedGroup]:
        job = self._job
        transactions = WalkedTransactions(self._aborted)
        batch_filter = BatchFilter(
            key_map,
            mapped,
            mapped_end,
            transactions,
            {producer_id: LastBatch(*last) for producer_id, last in job.last_batches.items()},
            log_start_offset=job.log_start_offset,
            high_watermark=job.high_watermark,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        modified = self._modified_ms
        clean = [base for base, _ in job.segments if base < job.dirty_from]
        legacy_horizon_ms = modified[clean[-1]] - job.delete_retention_ms if clean else 0
        for group in grouped(job, mapped_end, self._index_bytes):
            output = CleanedOutput(
                self._files, self._pace, self._config, job.folder, group[0][0], job.now_ms, self._syncs
            )
            try:
                for base_offset, size in group:
                    keep_tombstones = modified[base_offset] > legacy_horizon_ms
                    for batch in self._batches(base_offset, size):
                        if batch[MAGIC_AT] == MAGIC:
                            left = batch_filter.filter(Header._make(unpack_header(batch)), batch)
                        else:
                            left = batch_filter.filter_message(batch, keep_tombstones=keep_tombstones)
                        if left:
                            output.add(left)
                output.finish(modified[group[-1][0]], transactions.kept)
                transactions.kept = []
            except BaseException:
                output.discard()
                raise
            self.statistics.bytes_written += output.segment.size
            yield CleanedGroup([base for base, _ in group], output.segment.size)
        counts = batch_filter.counts
        self.statistics.records_read, self.statistics.records_kept = counts.records_read, counts.records_kept
        self.statistics.keyless_records = counts.keyless

    def _index_bytes(self, base_offset: int) -> tuple[int, int]:
        stem = f"{self._job.folder}/{file_stem(base_offset)}"
        offsets, times = (
            self._files.size(stem + suffix) if self._files.exists(stem + suffix) else 0
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        return offsets, times


def _offsets(batch: bytes) -> tuple[int, int]:
    """Return the first and the last offset of a batch; of a message of format 0 or 1, its offset twice."""
    base_offset = int.from_bytes(batch[:8], "big")
    return base_offset, Header._make(unpack_header(batch)).last_offset if batch[MAGIC_AT] == MAGIC else base_offset


def _sound(batch: bytes) -> bool:
    return len(batch) >= HEADER_SIZE and intact(memoryview(batch))


def grouped(
    job: CleaningJob, mapped_end: int, index_bytes: Callable[[int], tuple[int, int]]
) -> list[list[tuple[int, int]]]:
    """Return the segments below `mapped_end` that become one each: (base offset, bytes) by group."""
    bases = [base for base, _ in job.segments]
    ends = dict(zip(bases, [*bases[1:], job.end_offset], strict=True))
    groups: list[list[tuple[int, int]]] = []
    room = room_offsets = room_times = 0
    for base, size in job.segments:
        if base >= mapped_end:
            break
        offsets, times = index_bytes(base)
        if groups and (
            size <= room
            and offsets <= room_offsets
            and times <= room_times
            and ends[base] - 1 - groups[-1][0][0] <= _OFFSETS_MAX
        ):
            groups[-1].append((base, size))
        else:
            groups.append([(base, size)])
            room, room_offsets, room_times = job.segment_bytes, job.segment_index_bytes, job.segment_index_bytes
        room -= size
        room_offsets -= offsets
        room_times -= times
    return groups
