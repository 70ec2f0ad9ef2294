"""Reads, answered at once or parked until enough records are there.

A parked read keeps the sizes of its results, and no records: it reads when it is answered. When the high watermark of
one of its logs moves, only that partition is looked at again, at the end of the turn: a read over a thousand partitions
is never scanned as a whole. Equal reads of one partition share one look.

A read is answered when a partition has an error, `max_wait_ms` is over, or Kafka would answer it (DelayedFetch): the
records before the readable end reach `min_bytes`, also in part of a batch, or they lie in a segment before it.

Limits: `read_bytes_max` bytes an answer, `parked_reads_max` reads parked. A read beyond them is answered at once with
the records that are there. Many parked reads may be due in one turn. So a read that may wait gets at most
INLINE_BYTES_MAX of records by value, and all reads of a turn INLINE_BYTES_A_TURN; beyond that it gets slices. So
it does if its records are not in memory. Its gateway reads these by value, without waiting, when it has room for them.
Such a read waits for a cold disk in a thread (cold_reads.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from broker_contract.data import (
    NO_TOPIC_ID,
    AheadRead,
    AheadRequest,
    AheadResponse,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    TopicIdPartition,
)
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs
from service_chassis.histogram import Buckets
from service_chassis.shared_turns import shared_turns

from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.log_reader import Span, awaited_bytes, next_offset
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc import found_records
from storage_svc.rpc.cold_reads import ColdReads, Outcome, read_spans
from storage_svc.rpc.found_records import Found, epoch_error, first_of, note_failure, offset_error, size_of, slices_of
from storage_svc.rpc.long_reads import PIECE, LongReads

_READ_COMMITTED: Final = 1
#: The first Fetch version whose clients know zstd (KIP-110).
_ZSTD_SINCE_VERSION: Final = 10

#: Upper bounds in seconds of the waits of parked reads; clients ask for half a second, and up to minutes.
_WAIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Most reads that are answered ahead at once.
AHEAD_READS_MAX: Final = 16
#: Most bytes of records by value in the answer to a read that may wait, and in all such answers of one turn.
INLINE_BYTES_MAX: Final = 64 << 10
INLINE_BYTES_A_TURN: Final = 4 << 20

_log = service_logs.get(__name__)

ReadDone = Callable[[ReadResponse], None]


class _Look:
    """A look at one partition, and the answer to all reads that it makes due. `awaited` is -1 until it is needed."""

    __slots__ = ("awaited", "found", "response")

    def __init__(self, found: Found) -> None:
        self.found = found
        self.awaited = -1
        self.response: ReadResponse | None = None


class _ParkedRead:
    """A read that waits. `sizes` are the bytes that each partition had when it was last looked at."""

    __slots__ = ("_owner", "cancel", "done", "left", "logs", "request", "size", "sizes", "timer")

    def __init__(self, owner: WaitingReads, request: ReadRequest, done: ReadDone, sizes: list[int]) -> None:
        self._owner = owner
        self.request = request
        self.done = done
        self.sizes = sizes
        self.size = sum(sizes)
        self.left = False
        #: The function that gives the read up while it is answered in steps.
        self.cancel: Callable[[], None] | None = None
        self.logs: dict[PartitionLog, list[int]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def touched(self, log: PartitionLog) -> None:
        self._owner.touched(self, log)

    def give_up(self) -> None:
        self._owner.leave(self)
        if self.cancel is not None:
            self.cancel()


class WaitingReads:
    """All reads, those that are parked in particular. The DataService owns it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: DataFolder, topic_name: Callable[[bytes], str | None]
    ) -> None:
        self._loop = loop
        self._logs = directory.logs
        self._topic_name = topic_name
        self._parked_max = directory.settings.parked_reads_max
        self._bytes_max = directory.settings.read_bytes_max
        self._parked: dict[_ParkedRead, None] = {}
        self._touched: dict[_ParkedRead, dict[PartitionLog, None]] = {}
        self._cold = ColdReads(loop, directory.files)
        self._long = LongReads(shared_turns(loop))
        self._closed = False
        #: Bytes of records by value that answers of this turn may still hold, if their reads may wait.
        self._inline_left = INLINE_BYTES_A_TURN
        #: Bytes of records in all answers: those that storage read from memory, those that it waited for, and those
        #: of which the answer names the place in a segment file.
        self.cached_bytes = self.disk_bytes = self.named_bytes = 0
        #: Seconds for which reads were parked.
        self.waits = Buckets(_WAIT_BUCKETS)

    @property
    def parked_count(self) -> int:
        return len(self._parked)

    def read(self, request: ReadRequest, done: ReadDone) -> Callable[[], None]:
        if self._closed:
            done(ReadResponse([ReadResult(ErrorCode.NOT_LEADER_OR_FOLLOWER) for _ in request.partitions]))
            return _nothing
        if len(request.partitions) > PIECE:
            return self._long.read(request, self._read_in_steps(request, done))
        most = min(max(0, request.max_bytes), self._bytes_max)  # as `_most`: most reads come this way
        found, size, failed = self._collect(request, request.partitions, most)
        if request.by_reference and size >= request.min_bytes:
            self.named_bytes += size
            done(ReadResponse([result for result, _, _ in found]))
            return _nothing
        return self._go_on(request, done, found, size, failed)

    def _read_in_steps(self, request: ReadRequest, done: ReadDone) -> Iterator[Callable[[], None] | None]:
        found, size, failed = yield from self._collect_in_steps(request)
        yield self._go_on(request, done, found, size, failed)

    def _go_on(
        self, request: ReadRequest, done: ReadDone, found: list[Found], size: int, failed: bool
    ) -> Callable[[], None]:
        """Answer or park a read whose partitions were looked at."""
        if not failed and size < request.min_bytes and request.max_wait_ms > 0 and len(self._parked) < self._parked_max:
            sizes = self._awaited(request, found)
            if sum(sizes) < request.min_bytes:
                return self._park(request, done, sizes, found)
        if request.by_reference:
            self.named_bytes += size
            done(ReadResponse([result for result, _, _ in found]))
            return _nothing
        return self._give(request, found, done)

    def _park(self, request: ReadRequest, done: ReadDone, sizes: list[int], found: list[Found]) -> Callable[[], None]:
        parked = _ParkedRead(self, request, done, sizes)
        for index, wanted in enumerate(request.partitions):
            log = self._log_of(wanted.topic_partition)
            if isinstance(log, PartitionLog):
                parked.logs.setdefault(log, []).append(index)
        for log in parked.logs:
            log.readable.watch(parked, partial(parked.touched, log))
        parked.timer = self._loop.call_later(request.max_wait_ms / 1000, self._answer, parked)
        self._parked[parked] = None
        if len(found) > PIECE:  # mutant: moved-log-read-again
            for log, indexes in parked.logs.items():
                result = found[indexes[0]][0]
                if (log.high_watermark, log.last_stable_offset) != (result.high_watermark, result.last_stable_offset):
                    self.touched(parked, log)  # it moved while other partitions were looked at
        return parked.give_up

    def touched(self, parked: _ParkedRead, log: PartitionLog) -> None:
        """Note that a log has moved, to look at it when the turn is over."""
        if not self._touched:
            self._loop.call_soon(self._look_again)
        self._touched.setdefault(parked, {})[log] = None

    def _look_again(self) -> None:
        touched, self._touched = self._touched, {}
        alike: dict[tuple[object, ...], _Look] = {}
        for parked, moved in touched.items():
            if parked.left:
                continue
            if len(parked.request.partitions) == 1:
                self._look_at_one(parked, alike)
            elif self._is_due(parked, moved):
                self._answer(parked)

    def _look_at_one(self, parked: _ParkedRead, alike: dict[tuple[object, ...], _Look]) -> None:
        """Answer a read of one partition if it is due. `alike` holds the looks of this turn, by request."""
        request = parked.request
        (wanted,) = request.partitions
        # mutant: look-of-same-read
        key = (
            *(wanted.topic_partition, wanted.fetch_offset, wanted.max_bytes, wanted.leader_epoch),
            *(request.version, request.min_bytes, request.max_bytes, request.isolation_level, request.by_reference),
        )
        look = alike.get(key)
        if look is None:
            look = alike[key] = _Look(self._read_partition(request, wanted, self._most(request), True))
        result, _, size = look.found
        if not result.error_code and size < request.min_bytes:
            if look.awaited < 0:
                (look.awaited,) = self._awaited(request, [look.found])
            if look.awaited < request.min_bytes:
                return
        self.leave(parked)
        response = look.response
        if request.by_reference:
            self.named_bytes += size
        elif response is not None:
            self._count(size, named=bool(result.slices))
        if response is None:
            response = ReadResponse([result]) if request.by_reference else self._response(request, [look.found])
            look.response = response
        parked.done(response)

    def _is_due(self, parked: _ParkedRead, moved: dict[PartitionLog, None]) -> bool:
        request = parked.request
        committed = request.isolation_level == _READ_COMMITTED
        for log in moved:
            if log.deleted or log.offline is not None:
                return True
            for index in parked.logs[log]:
                wanted = request.partitions[index]
                try:
                    spans = log.spans(wanted.fetch_offset, wanted.max_bytes, min_one=True, committed=committed)
                    size = self._awaited_of(log, wanted, spans, request)
                except StorageFailure:
                    return True
                parked.size += size - parked.sizes[index]
                parked.sizes[index] = size
        return parked.size >= request.min_bytes

    def _awaited(self, request: ReadRequest, found: list[Found]) -> list[int]:
        """Return the bytes of each partition that count towards `min_bytes`."""
        committed = request.isolation_level == _READ_COMMITTED
        sizes = []
        for wanted, (result, spans, size) in zip(request.partitions, found, strict=True):
            if wanted.fetch_offset < (result.last_stable_offset if committed else result.high_watermark):
                log = self._log_of(wanted.topic_partition)
                if isinstance(log, PartitionLog):
                    with suppress(StorageFailure):  # the read itself will meet it
                        size = self._awaited_of(log, wanted, spans, request)
            sizes.append(size)
        return sizes

    def _awaited_of(self, log: PartitionLog, wanted: ReadPartition, spans: list[Span], request: ReadRequest) -> int:
        readable = log.readable
        end = readable.offset, readable.segment, readable.position
        if request.isolation_level == _READ_COMMITTED:
            end = log.transactions.stable_end()
        size = awaited_bytes(log, wanted.fetch_offset, wanted.max_bytes, spans, end)
        return request.min_bytes if size is None else max(size, size_of(spans))

    def leave(self, parked: _ParkedRead) -> None:
        """Stop parking a read, without calling `done`."""
        parked.left = True
        self._parked.pop(parked, None)
        self._touched.pop(parked, None)
        if parked.timer is not None:
            parked.timer.cancel()
            begun_at = parked.timer.when() - parked.request.max_wait_ms / 1000
            self.waits.observe(max(0.0, self._loop.time() - begun_at))
        for log in parked.logs:
            log.readable.unwatch(parked)

    def _answer(self, parked: _ParkedRead) -> None:
        self.leave(parked)
        if len(parked.request.partitions) > PIECE:
            parked.cancel = self._long.read(parked.request, self._answer_in_steps(parked))
            return
        found, _, _ = self._collect(parked.request, parked.request.partitions, self._most(parked.request))
        parked.done(self._response(parked.request, found))

    def _answer_in_steps(self, parked: _ParkedRead) -> Iterator[None]:
        found, _, _ = yield from self._collect_in_steps(parked.request)
        parked.done(self._response(parked.request, found))

    # -- finding ------------------------------------------------------------------------------------------------------

    def _most(self, request: ReadRequest) -> int:
        """Return the bytes of records that the answer may hold."""
        return min(max(0, request.max_bytes), self._bytes_max)

    def _collect(
        self, request: ReadRequest, partitions: Sequence[ReadPartition], left: int, total: int = 0
    ) -> tuple[list[Found], int, bool]:
        """Look at partitions; return the outcomes, their bytes, and whether any of them has an error.

        `left`: bytes that the answer may hold. `total`: bytes of the partitions before these.
        """
        found, before, failed = [], total, False
        for wanted in partitions:
            each = self._read_partition(request, wanted, left, not total)
            found.append(each)
            result, _, size = each
            if size:
                left = max(0, left - (found_records.spent(each) if result.aborted else size))
                total += size
            elif result.error_code:
                failed = True
        return found, total - before, failed

    def _collect_in_steps(self, request: ReadRequest) -> Generator[None, None, tuple[list[Found], int, bool]]:
        """Look at all partitions, and yield between two pieces of them."""
        found: list[Found] = []
        total, failed, left = 0, False, self._most(request)
        for begin in range(0, len(request.partitions), PIECE):
            if begin:
                yield
            piece = request.partitions[begin : begin + PIECE]
            more, size, has_failed = self._collect(request, piece, left, total)
            left = max(0, left - sum(map(found_records.spent, more)))
            found += more
            total += size
            failed = failed or has_failed
        return found, total, failed

    def _give(self, request: ReadRequest, found: list[Found], done: ReadDone) -> Callable[[], None]:
        """Answer a read that does not wait, now or when its records were read from a cold disk.

        A cold read of many segments is answered with the first of them. Its client asks for the others again.
        """
        if request.max_wait_ms > 0 or not self._are_cold(found):  # mutant: cold-read-off-loop
            done(self._response(request, found))
            return _nothing
        some = first_of(found, self._cold.segments_max)  # mutant: cold-segments-bounded

        def read(outcome: Outcome) -> None:
            for number, each in enumerate(some):
                if isinstance(outcome, StorageFailure):
                    note_failure(each, outcome)
                else:
                    each[0].records = outcome[number]
            self.disk_bytes += sum([size for _, _, size in some])
            done(ReadResponse([result for result, _, _ in found]))

        return self._cold.read([spans for _, spans, _ in some], read)

    def _are_cold(self, found: list[Found]) -> bool:
        try:
            return self._cold.are_cold(spans for _, spans, _ in found)
        except StorageFailure:  # the read itself will meet it
            return False

    def _response(self, request: ReadRequest, found: list[Found]) -> ReadResponse:
        """Return the answer, with its records."""
        total = sum([size for _, _, size in found])
        as_slices = request.by_reference
        if total and not as_slices:
            as_slices = request.max_wait_ms > 0 and (self._are_cold(found) or not self._may_inline(total))
            for each in found:
                result, spans, size = each
                if as_slices:
                    result.slices = slices_of(spans)
                elif size:
                    try:
                        result.records = read_spans(spans)
                    except StorageFailure as error:
                        note_failure(each, error)
        self._count(total, named=as_slices)
        return ReadResponse([result for result, _, _ in found])

    def _count(self, size: int, *, named: bool) -> None:
        if named:
            self.named_bytes += size
        else:
            self.cached_bytes += size

    def _may_inline(self, size: int) -> bool:
        """Return whether an answer of a read that may wait holds these records by value, and count them."""
        if size > min(INLINE_BYTES_MAX, self._inline_left):  # mutant: inline-bytes-shared
            return False
        if self._inline_left == INLINE_BYTES_A_TURN:
            self._loop.call_soon(self._begin_turn)
        self._inline_left -= size
        return True

    def _begin_turn(self) -> None:
        self._inline_left = INLINE_BYTES_A_TURN

    def _log_of(self, partition: TopicIdPartition) -> PartitionLog | int:
        """Return the partition's log, or an error code."""
        topic = partition.topic
        if partition.topic_id != NO_TOPIC_ID:
            found = self._topic_name(partition.topic_id)
            if found is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic = found
        log = self._logs.get((topic, partition.partition))
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if log is None else log

    def _read_partition(self, request: ReadRequest, wanted: ReadPartition, left: int, min_one: bool) -> Found:
        log = self._log_of(wanted.topic_partition)
        if not isinstance(log, PartitionLog):
            return ReadResult(log), [], 0
        if error := epoch_error(wanted.leader_epoch, log.leader_epoch):
            return ReadResult(error), [], 0
        if request.version < _ZSTD_SINCE_VERSION and log.config.compression_type == "zstd":
            return ReadResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), [], 0
        high_watermark, offset = log.high_watermark, wanted.fetch_offset
        committed = request.isolation_level == _READ_COMMITTED
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

    # -- ahead --------------------------------------------------------------------------------------------------------

    def ahead(self, request: AheadRequest) -> AheadResponse:
        """Return the results that the next reads would have now, if the consumer goes on where `request.read` ended."""
        read = request.read
        (wanted,) = read.partitions
        log = self._log_of(wanted.topic_partition)
        if self._closed or not isinstance(log, PartitionLog) or log.withheld:
            return AheadResponse()
        offset, is_committed = wanted.fetch_offset, read.isolation_level == _READ_COMMITTED
        if epoch_error(wanted.leader_epoch, log.leader_epoch) or offset < log.log_start_offset:
            return AheadResponse()
        most = min(max(0, read.max_bytes), self._bytes_max, max(0, wanted.max_bytes))
        offsets = log.high_watermark, log.last_stable_offset, log.log_start_offset
        reads: list[AheadRead] = []
        try:
            spans, _ = found_records.find(log, offset, most, is_committed=is_committed)
            while spans and len(reads) < min(request.count, AHEAD_READS_MAX):
                following = next_offset(log, spans)
                if following is None:
                    break
                offset = following
                spans, aborted = found_records.find(log, offset, most, is_committed=is_committed)
                if not spans or aborted:
                    break
                if read.max_wait_ms > 0 and size_of(spans) < read.min_bytes:
                    following_read = replace(wanted, fetch_offset=offset)
                    if self._awaited_of(log, following_read, spans, read) < read.min_bytes:
                        break  # it would wait
                reads.append(AheadRead(offset, slices_of(spans)))
                self.named_bytes += size_of(spans)
        except StorageFailure:
            pass  # the read itself will be answered with the error
        return AheadResponse(*log.current_revision(), *offsets, reads) if reads else AheadResponse()

    async def close(self) -> None:
        """Answer all parked reads with the records that are there, and wait for those that read a cold disk."""
        self._closed = True
        self._parked_max = 0
        for parked in list(self._parked):
            self._answer(parked)
        self._long.finish()
        await self._cold.finish()


def _nothing() -> None:
    """Do nothing: the read is answered already."""
