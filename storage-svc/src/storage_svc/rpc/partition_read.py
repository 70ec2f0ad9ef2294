"""The read of a partition: the batches of its log that a request gets, and the bytes that its `min_bytes` counts.

A look-up finds the places of records in segments, and reads none of them (`found_records.Found`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from weakref import WeakSet

from broker_contract.data import (
    NO_TOPIC_ID,
    AheadRead,
    AheadRequest,
    AheadResponse,
    ReadPartition,
    ReadRequest,
    ReadResult,
    TopicIdPartition,
)
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs
from service_chassis.steps import Steps

from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.log_reader import Span
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc import found_records
from storage_svc.rpc.found_records import Found, epoch_error, offset_error, size_of, slices_of

READ_COMMITTED: Final = 1
#: Partitions of one step of a long read: a few tenths of a millisecond.
PIECE: Final = 100
#: Most reads that are answered ahead at once.
AHEAD_READS_MAX: Final = 16

_log = service_logs.get(__name__)


class PartitionReads:
    """The look-ups in all partitions of a data folder. The DataService owns it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: DataFolder, topic_name: Callable[[bytes], str | None]
    ) -> None:
        self._loop = loop
        self._logs = directory.logs
        self._topic_name = topic_name
        #: Bytes of records in one answer at most.
        self.bytes_max = directory.settings.read_bytes_max
        #: Bytes of records whose places were named ahead.
        self.ahead_bytes = 0
        #: Reads whose look-up is in progress.
        self._in_steps: WeakSet[Steps] = WeakSet()

    def bytes_allowed(self, request: ReadRequest) -> int:
        """Return the bytes of records that the answer may hold."""
        return min(max(0, request.max_bytes), self.bytes_max)

    def log_of(self, partition: TopicIdPartition) -> PartitionLog | int:
        """Return the partition's log, or an error code."""
        topic = partition.topic
        if partition.topic_id != NO_TOPIC_ID:
            found = self._topic_name(partition.topic_id)
            if found is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic = found
        log = self._logs.get((topic, partition.partition))
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if log is None else log

    def read(self, request: ReadRequest, wanted: ReadPartition, left: int, min_one: bool) -> Found:
        log = self.log_of(wanted.topic_partition)
        if not isinstance(log, PartitionLog):
            return ReadResult(log), [], 0
        if error := epoch_error(wanted.leader_epoch, log.leader_epoch):
            return ReadResult(error), [], 0
        high_watermark, offset = log.high_watermark, wanted.fetch_offset
        committed = request.isolation_level == READ_COMMITTED
        aborted: list[tuple[int, int]] | None = [] if committed else None
        error = offset_error(log, offset)
        result = ReadResult(error, high_watermark, log.last_stable_offset, log.log_start_offset, aborted)
        if error or offset >= high_watermark:
            return result, [], 0
        try:
            bytes_max = min(left, max(0, wanted.max_bytes))
            if committed:
                aborted_max = found_records.aborted_max(left)
                spans, result.aborted = log.transactions.read(offset, bytes_max, aborted_max, min_one=min_one)
            else:
                spans = log.spans(offset, bytes_max, min_one=min_one)
        except StorageFailure as error:
            _log.error("read failed", log=log.folder, offset=offset, reason=str(error))
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return result, [], 0
        if request.by_reference:
            result.slices = slices_of(spans)
        return result, spans, size_of(spans)

    def collect(
        self, request: ReadRequest, partitions: Sequence[ReadPartition], left: int, total: int = 0
    ) -> tuple[list[Found], int, bool]:
        """Look partitions up; return the outcomes, their bytes, and whether any of them has an error.

        `left`: bytes that the answer may hold. `total`: bytes of the partitions before these.
        """
        found, before, failed = [], total, False
        for wanted in partitions:
            each = self.read(request, wanted, left, not total)
            found.append(each)
            result, _, size = each
            if size:
                left = max(0, left - (found_records.spent(each) if result.aborted else size))
                total += size
            elif result.error_code:
                failed = True
        return found, total - before, failed

    def collect_in_steps(self, request: ReadRequest) -> Generator[None, None, tuple[list[Found], int, bool]]:
        """Look all partitions up, and yield between two pieces of them."""
        found: list[Found] = []
        total, failed, left = 0, False, self.bytes_allowed(request)
        for begin in range(0, len(request.partitions), PIECE):
            if begin:
                yield
            piece = request.partitions[begin : begin + PIECE]
            more, size, has_failed = self.collect(request, piece, left, total)
            left = max(0, left - sum(map(found_records.spent, more)))
            found += more
            total += size
            failed = failed or has_failed
        return found, total, failed

    def take_steps(self, request: ReadRequest, steps: Iterator[None]) -> Callable[[], None]:
        """Take the steps of a long read in later turns; return the function that gives it up."""

        def failed(_: Exception) -> None:
            _log.exception("a long read failed", correlation_id=request.correlation_id)

        read = Steps(self._loop, steps, failed)
        self._in_steps.add(read)
        return read.give_up

    def finish_steps(self) -> None:
        """Take all steps that are left of all long reads, now."""
        for read in list(self._in_steps):
            read.finish()

    def awaited(self, request: ReadRequest, found: list[Found]) -> list[int]:
        """Return the bytes of each partition that count towards `min_bytes`."""
        committed = request.isolation_level == READ_COMMITTED
        sizes = []
        for wanted, (result, spans, size) in zip(request.partitions, found, strict=True):
            if wanted.fetch_offset < (result.last_stable_offset if committed else result.high_watermark):
                log = self.log_of(wanted.topic_partition)
                if isinstance(log, PartitionLog):
                    with suppress(StorageFailure):  # the read itself will fail
                        size = self.awaited_of(log, wanted, spans, request)
            sizes.append(size)
        return sizes

    def awaited_of(self, log: PartitionLog, wanted: ReadPartition, spans: list[Span], request: ReadRequest) -> int:
        readable = log.readable
        end = readable.offset, readable.segment, readable.position
        if request.isolation_level == READ_COMMITTED:
            end = log.transactions.stable_end()
        size = log.awaited_bytes(wanted.fetch_offset, wanted.max_bytes, spans, end)
        return request.min_bytes if size is None else max(size, size_of(spans))

    def ahead(self, request: AheadRequest) -> AheadResponse:
        """Return the results that the next reads would have now, if the consumer continues after `request.read`."""
        read = request.read
        (wanted,) = read.partitions
        log = self.log_of(wanted.topic_partition)
        if not isinstance(log, PartitionLog) or log.withheld:
            return AheadResponse()
        offset, is_committed = wanted.fetch_offset, read.isolation_level == READ_COMMITTED
        if epoch_error(wanted.leader_epoch, log.leader_epoch) or offset < log.log_start_offset:
            return AheadResponse()
        most = min(max(0, read.max_bytes), self.bytes_max, max(0, wanted.max_bytes))
        offsets = log.high_watermark, log.last_stable_offset, log.log_start_offset
        reads: list[AheadRead] = []
        try:
            spans, _ = found_records.find(log, offset, most, is_committed=is_committed)
            while spans and len(reads) < min(request.count, AHEAD_READS_MAX):
                following = log.next_offset(spans)
                if following is None:
                    break
                offset = following
                spans, aborted = found_records.find(log, offset, most, is_committed=is_committed)
                if not spans or aborted:
                    break
                if read.max_wait_ms > 0 and size_of(spans) < read.min_bytes:
                    following_read = replace(wanted, fetch_offset=offset)
                    if self.awaited_of(log, following_read, spans, read) < read.min_bytes:
                        break  # it would wait
                reads.append(AheadRead(offset, slices_of(spans)))
                self.ahead_bytes += size_of(spans)
        except StorageFailure:
            pass  # the read itself will be answered with the error
        return AheadResponse(*log.current_revision(), *offsets, reads) if reads else AheadResponse()
