"""One page of records out of several partitions: the newest first, or the oldest first.

Each partition has a range of offsets that is still to read. Rows of all partitions are merged by timestamp; those of
one partition stay in the order of their offsets. Reading forward takes the batches of a fetch. Reading backward takes a
window of offsets before the end of the range, and the next window before that one; its size follows from the bytes of
the last, so that the newest records of a large partition cost no more than their own bytes.

A page ends with the limit of rows, or with a limit of work (`limits`). Then it shows the rows that were found, and
each partition's range says where to go on: a record is never left out, nor shown twice.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from protocol_lib.client import FetchedBatch, FetchedPartition
from protocol_lib.errors import DecodeError
from protocol_lib.records.header import HEADER_SIZE
from protocol_lib.records.record import Record

from admin_api import errors
from admin_api.answer_memory import ANSWER_BYTES_MAX, AnswerTooLargeError
from admin_api.kafka_clients import KafkaClient
from admin_api.records.conditions import Filter
from admin_api.records.decoding import DECOMPRESSED_BYTES_MAX, slices_of
from admin_api.records.limits import ROWS_BYTES_MAX, Work
from admin_api.records.rendering import Formats, render

#: Bytes of one fetch, and its partitions at most.
FETCH_BYTES = 1024 * 1024
_FETCH_PARTITIONS = 32
#: Offsets of the first window.
_FIRST_WINDOW = 32
#: Bytes of a record that is kept as it is until its window is read.
_SMALL_BYTES = 4096
#: Bytes of a batch that are searched whole: some tenths of a millisecond.
_SEARCHED_BYTES = 1 << 20
#: Bytes that a fault counts in the answer: a page has some thousands at most.
_FAULT_BYTES = 1024
#: Bytes of a row's other members.
_ROW_BYTES = 256
_OFFSET_OUT_OF_RANGE = 1
LARGE_BATCH = f"a record batch of more than {ANSWER_BYTES_MAX} bytes"


class Row(NamedTuple):
    """A record that the filter admits, as JSON."""

    timestamp: int
    offset: int
    text: str
    #: Bytes that the page may become longer by.
    size: int
    #: The partition and the record, in place of its text, of a page that is decoded by schemas when it is complete.
    unread: tuple[int, Record] | None = None


class _Found(NamedTuple):
    """A record of a window. A large one is rendered at once, cut off; most small ones are not shown."""

    record: Record
    row: Row | None


@dataclass(slots=True)
class Range:
    """The offsets of a partition that are still to read: from `start` to the one before `end`."""

    partition: int
    start: int
    end: int


class Fault(NamedTuple):
    """Records that cannot be shown."""

    partition: int
    offset: int
    message: str


@dataclass(slots=True)
class _Partition:
    """The state of one partition's reading."""

    unread: Range
    #: Rows in the order of the answer.
    ready: deque[Row] = field(default_factory=deque)
    #: Offsets of the next window; reading backward only.
    window: int = _FIRST_WINDOW
    #: The window being read: its first offset, the next offset to fetch, its rows and bytes so far.
    low: int = -1
    position: int = -1
    found: deque[_Found] = field(default_factory=deque)
    bytes: int = 0

    @property
    def is_hungry(self) -> bool:
        return not self.ready and self.unread.start < self.unread.end


class Browse:
    """The making of one page. `run` once; then `rows`, `ranges` and `faults` have the result."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        ranges: Sequence[Range],
        *,
        newest_first: bool,
        limit: int,
        wanted: Filter,
        formats: Formats,
        read_committed: bool,
        work: Work,
    ) -> None:
        self.rows: list[Row] = []
        self.faults: list[Fault] = []
        self._client = client
        self._topic = topic
        self._newest_first = newest_first
        self._limit = limit
        self._filter = wanted
        self._needs = wanted.needs
        self._formats = formats
        self._read_committed = read_committed
        self._work = work
        self._partitions = {each.partition: _Partition(replace(each)) for each in ranges}
        self._progressed = False

    @property
    def ranges(self) -> list[Range]:
        """The ranges that a next page begins with, in the order of the partitions."""
        return [rest for each in self._partitions.values() if (rest := self._rest(each)).start < rest.end]

    async def run(self) -> bool:
        """Make the page; return whether a limit of work ended it early. Raises ApiError."""
        while len(self.rows) < self._limit:
            hungry = [each for each in self._partitions.values() if each.is_hungry]
            is_done = self._work.is_done
            if hungry and is_done and self._progressed:
                self._merge(all_partitions=True)
                return len(self.rows) < self._limit
            if hungry:
                await self._load(hungry[: 1 if is_done else _FETCH_PARTITIONS])
            elif not self._merge():
                break
        return False

    def _merge(self, *, all_partitions: bool = False) -> bool:
        """Move rows into the page until it is full, or until a partition must be read again. Return whether any."""
        heads = [(self._key(each.ready[0]), number, each) for number, each in self._partitions.items() if each.ready]
        heapq.heapify(heads)
        before = len(self.rows)
        while heads and len(self.rows) < self._limit:
            _, number, partition = heapq.heappop(heads)
            self.rows.append(partition.ready.popleft())
            if partition.ready:
                heapq.heappush(heads, (self._key(partition.ready[0]), number, partition))
            elif partition.is_hungry and not all_partitions:
                break
        return len(self.rows) > before

    def _key(self, row: Row) -> int:
        return -row.timestamp if self._newest_first else row.timestamp

    def _rest(self, partition: _Partition) -> Range:
        unread = partition.unread
        if not partition.ready:
            return unread
        if self._newest_first:
            return Range(unread.partition, unread.start, partition.ready[0].offset + 1)
        return Range(unread.partition, partition.ready[0].offset, unread.end)

    async def _load(self, partitions: list[_Partition]) -> None:
        """Fetch once for these partitions."""
        for each in partitions:
            if self._newest_first and each.position < 0:
                each.low = each.position = max(each.unread.start, each.unread.end - each.window)
        first = partitions[0].unread.partition
        positions = {
            each.unread.partition: each.position if self._newest_first else each.unread.start for each in partitions
        }
        try:
            for answer in await self._client.fetch(
                self._topic, positions, bytes_max=FETCH_BYTES, read_committed=self._read_committed
            ):
                is_first = answer.partition == first
                if is_first or not self._work.is_done:
                    await self._read(self._partitions[answer.partition], answer, is_first=is_first)
        except AnswerTooLargeError:
            if len(partitions) > 1:  # find the one whose batch it is
                for each in partitions:
                    await self._load([each])
                return
            await self._skip_large(partitions[0], positions[first])

    async def _skip_large(self, partition: _Partition, position: int) -> None:
        """Go on after the batch at a position, which is larger than an answer."""
        large = await self._client.find_large_batch(self._topic, partition.unread.partition, position)
        if large is None:
            self._give_up(partition, position, LARGE_BATCH)
            return
        self._add_fault(partition, max(large.base_offset, partition.unread.start), LARGE_BATCH)
        if self._newest_first and position == partition.low:
            partition.low = max(partition.unread.start, min(partition.low, large.base_offset))
        self._advance(partition, large.last_offset + 1)

    async def _read(self, partition: _Partition, answer: FetchedPartition, *, is_first: bool) -> None:
        position = partition.position if self._newest_first else partition.unread.start
        if answer.error_code == _OFFSET_OUT_OF_RANGE:
            self._give_up(partition, position, "the records from here on were deleted meanwhile")
            return
        errors.check(answer.error_code)
        self._work.bytes += len(answer.data)
        partition.bytes += len(answer.data)
        after = position
        try:
            for batch, is_visible in answer.batches():
                await self._work.pause()
                if batch.base_offset >= partition.unread.end:
                    after = partition.unread.end
                    break
                after = await self._read_batch(partition, batch, position, is_visible=is_visible)
                if len(partition.ready) >= self._limit or after <= batch.last_offset:
                    break
                # A window that ends early is read again. One is read whole, so that each page goes on.
                if self._work.is_done and after > position and (self._progressed or not self._newest_first):
                    break
        except DecodeError as error:
            self._give_up(partition, after, str(error))
            return
        if after > position:
            self._advance(partition, after)
        elif is_first or position >= answer.high_watermark:
            self._advance(partition, partition.unread.end)  # there is nothing more to read
        # Else the batches of partitions before it have filled the answer. Its turn as the first one comes.

    async def _read_batch(self, partition: _Partition, batch: FetchedBatch, position: int, *, is_visible: bool) -> int:
        """Read the rows of a batch; return the offset after those read."""
        unread, end = partition.unread, batch.last_offset + 1
        if self._newest_first and position == partition.low:
            # The batch is here, so its records before the window are, too.
            partition.low = max(unread.start, min(partition.low, batch.base_offset))
        if not is_visible:
            return end
        low = partition.low if self._newest_first else position
        is_whole = low <= batch.base_offset and end <= unread.end  # mutant: search-of-whole-batches
        needle, skip = self._shortened(batch) if is_whole else (b"", 0)
        try:
            for passed, records in await slices_of(batch, needle, skip):
                self._work.scanned += passed
                await self._work.pause()
                for record in records:
                    low = partition.low if self._newest_first else position
                    if not low <= record.offset < unread.end:
                        continue
                    self._work.scanned += 1
                    if self._filter.admits(unread.partition, record) and self._keep(partition, record):
                        return record.offset + 1
                    if self._work.is_due:
                        await self._work.pause()
        except DecodeError as error:
            self._add_fault(partition, batch.base_offset, str(error))
            partition.bytes += DECOMPRESSED_BYTES_MAX  # so long it may have taken: the next window is small
        return end

    def _shortened(self, batch: FetchedBatch) -> tuple[bytes, int]:
        """Return bytes that the records to read of a batch have in them, and the number of records at its start that
        need not be read.

        Of a page of the newest, one record more than it shows is kept: the next page goes on from there.
        """
        if batch.header is None:
            return self._filter.needle, 0
        if self._needs and batch.is_plain and len(batch.data) <= _SEARCHED_BYTES:
            data = bytes(batch.data)
            # mutant: batch-without-needs-passed
            if not all(any(data.find(each, HEADER_SIZE) >= 0 for each in needed) for needed in self._needs):
                return b"", batch.header.records_count
        if self._newest_first and self._filter.is_empty:
            return b"", max(0, batch.header.records_count - self._limit - 1)  # mutant: newest-of-batch-kept
        return self._filter.needle, 0

    def _keep(self, partition: _Partition, record: Record) -> bool:
        """Keep a row; return whether the partition has as many as the page can show."""
        if not self._newest_first:
            partition.ready.append(self._row(partition, record))
            return len(partition.ready) >= self._limit or self._work.rows_bytes >= ROWS_BYTES_MAX
        is_small = len(record.key or b"") + len(record.value or b"") <= _SMALL_BYTES and not record.headers
        found = partition.found
        found.append(_Found(record, None if is_small else self._row(partition, record)))
        while len(found) > self._limit or (self._work.rows_bytes >= ROWS_BYTES_MAX and len(found) > 1):
            oldest = found.popleft()
            # mutant: window-remainder-kept
            partition.low = oldest.record.offset + 1  # it is for a later page
            if oldest.row is not None:
                self._work.rows_bytes -= oldest.row.size
        return False

    def _row(self, partition: _Partition, record: Record) -> Row:
        number = partition.unread.partition
        if self._formats.by_schema:
            size = len(record.key or b"") + len(record.value or b"") + _ROW_BYTES
            size += sum(len(name) + len(content or b"") for name, content in record.headers)
            row = Row(record.timestamp, record.offset, "", size, (number, record))
        else:
            text = render(number, record, self._formats)
            row = Row(record.timestamp, record.offset, text, len(text))
        self._work.rows_bytes += row.size
        return row

    def _advance(self, partition: _Partition, after: int) -> None:
        """Note that the offsets before `after` were read."""
        unread = partition.unread
        if not self._newest_first:
            unread.start = min(after, unread.end)
            self._progressed = True
            return
        partition.position = after
        if after < unread.end:
            return
        span, count = max(unread.end - partition.low, 1), len(partition.found)
        self._show(partition)
        unread.end = partition.low
        grown = span * FETCH_BYTES // partition.bytes if partition.bytes else 16 * span
        if count and self._filter.is_empty:
            grown = min(grown, span * self._limit // count)  # the page needs no more
        partition.window = max(1, min(16 * span, grown))
        partition.position, partition.bytes = -1, 0
        self._progressed = True

    def _show(self, partition: _Partition) -> None:
        """Move the rows of a window into the queue for the page."""
        while partition.found:
            record, row = partition.found.pop()
            partition.ready.append(row or self._row(partition, record))

    def _add_fault(self, partition: _Partition, offset: int, message: str) -> None:
        self.faults.append(Fault(partition.unread.partition, offset, message))
        self._work.rows_bytes += _FAULT_BYTES

    def _give_up(self, partition: _Partition, offset: int, message: str) -> None:
        """Read no more of a partition; show the rows before the fault."""
        self._add_fault(partition, offset, message)
        self._show(partition)
        partition.unread.start = partition.unread.end
        self._progressed = True
