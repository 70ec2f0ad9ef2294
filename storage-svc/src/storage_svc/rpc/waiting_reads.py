"""Reads, answered at once or parked until enough records are there.

A parked read holds the sizes of its results, and no records: it reads when it is answered. When the high watermark of
one of its logs moves, only that partition is checked again, at the end of the turn. Equal reads of one partition share
one check.

A read is answered when one of these holds (Kafka's DelayedFetch):

    a partition has an error
    `max_wait_ms` is over
    the readable records reach `min_bytes`, counting parts of batches
    its records lie in an older segment than the readable end

    limit                                         beyond it
    `read_bytes_max` bytes in an answer           fewer records
    `parked_reads_max` reads parked               the read is answered at once, with the records found
    INLINE_BYTES_MAX, by value in an answer       slices, which the gateway reads by value when it has room
    INLINE_BYTES_A_TURN, by value in a turn       slices

The last two apply to reads that may wait: many of them may be due in one turn. Such a read also gets slices if its
records are not in memory. A read that does not wait reads a cold disk in a thread (cold_reads.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker_contract.data import (
    ReadRequest,
    ReadResponse,
    ReadResult,
)
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs
from service_chassis.histogram import Buckets
from service_chassis.shared_turns import shared_turns

from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc.cold_reads import ColdReads, Outcome, read_spans
from storage_svc.rpc.found_records import Found, first_of, note_failure, slices_of
from storage_svc.rpc.long_reads import PIECE, LongReads
from storage_svc.rpc.partition_read import READ_COMMITTED, PartitionReads

#: Upper bounds in seconds of the waits of parked reads; clients ask for half a second, and up to minutes.
_WAIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Most bytes of records by value in the answer to a read that may wait, and in all such answers of one turn.
INLINE_BYTES_MAX: Final = 64 << 10
INLINE_BYTES_A_TURN: Final = 4 << 20

_log = service_logs.get(__name__)

ReadDone = Callable[[ReadResponse], None]


class _SharedCheck:
    """The result of one partition for all equal reads of a turn, and their answer. `awaited` is -1 until needed."""

    __slots__ = ("awaited", "found", "response")

    def __init__(self, found: Found) -> None:
        self.found = found
        self.awaited = -1
        self.response: ReadResponse | None = None


class _ParkedRead:
    """A read that waits. `sizes` are the bytes of each partition at its last check."""

    __slots__ = ("_owner", "cancel", "done", "has_ended", "logs", "request", "size", "sizes", "timer")

    def __init__(self, owner: WaitingReads, request: ReadRequest, done: ReadDone, sizes: list[int]) -> None:
        self._owner = owner
        self.request = request
        self.done = done
        self.sizes = sizes
        self.size = sum(sizes)
        self.has_ended = False
        #: The function that gives the read up while it is answered in steps.
        self.cancel: Callable[[], None] | None = None
        self.logs: dict[PartitionLog, list[int]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def note_moved(self, log: PartitionLog) -> None:
        self._owner.note_moved(self, log)

    def give_up(self) -> None:
        self._owner.unpark(self)
        if self.cancel is not None:
            self.cancel()


class WaitingReads:
    """All reads, parked or not. The DataService owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: DataFolder, partitions: PartitionReads) -> None:
        self._loop = loop
        self._partitions = partitions
        self._parked_max = directory.settings.parked_reads_max
        self._parked: dict[_ParkedRead, None] = {}
        self._moved: dict[_ParkedRead, dict[PartitionLog, None]] = {}
        self.cold = ColdReads(loop, directory.files)
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
        # As `bytes_allowed` does, without a call: most reads take this path.
        most = min(max(0, request.max_bytes), self._partitions.bytes_max)
        found, size, failed = self._partitions.collect(request, request.partitions, most)
        if request.by_reference and size >= request.min_bytes:
            self.named_bytes += size
            done(ReadResponse([result for result, _, _ in found]))
            return _nothing
        return self._answer_or_park(request, done, found, size, failed)

    def _read_in_steps(self, request: ReadRequest, done: ReadDone) -> Iterator[Callable[[], None] | None]:
        found, size, failed = yield from self._partitions.collect_in_steps(request)
        yield self._answer_or_park(request, done, found, size, failed)

    def _answer_or_park(
        self, request: ReadRequest, done: ReadDone, found: list[Found], size: int, failed: bool
    ) -> Callable[[], None]:
        """Answer or park a read, after the look-up of its partitions."""
        if not failed and size < request.min_bytes and request.max_wait_ms > 0 and len(self._parked) < self._parked_max:
            sizes = self._partitions.awaited(request, found)
            if sum(sizes) < request.min_bytes:
                return self._park(request, done, sizes, found)
        if request.by_reference:
            self.named_bytes += size
            done(ReadResponse([result for result, _, _ in found]))
            return _nothing
        return self._answer_now(request, found, done)

    def _park(self, request: ReadRequest, done: ReadDone, sizes: list[int], found: list[Found]) -> Callable[[], None]:
        parked = _ParkedRead(self, request, done, sizes)
        for index, wanted in enumerate(request.partitions):
            log = self._partitions.log_of(wanted.topic_partition)
            if isinstance(log, PartitionLog):
                parked.logs.setdefault(log, []).append(index)
        for log in parked.logs:
            log.readable.watch(parked, partial(parked.note_moved, log))
        parked.timer = self._loop.call_later(request.max_wait_ms / 1000, self._answer_parked, parked)
        self._parked[parked] = None
        if len(found) > PIECE:  # mutant: moved-log-read-again
            for log, indexes in parked.logs.items():
                result = found[indexes[0]][0]
                if (log.high_watermark, log.last_stable_offset) != (result.high_watermark, result.last_stable_offset):
                    self.note_moved(parked, log)  # it moved during the look-up of other partitions
        return parked.give_up

    def note_moved(self, parked: _ParkedRead, log: PartitionLog) -> None:
        """Remember that a log has moved, to check it when the turn is over."""
        if not self._moved:
            self._loop.call_soon(self._check_moved)
        self._moved.setdefault(parked, {})[log] = None

    def _check_moved(self) -> None:
        moved_logs, self._moved = self._moved, {}
        equal: dict[tuple[object, ...], _SharedCheck] = {}
        for parked, moved in moved_logs.items():
            if parked.has_ended:
                continue
            if len(parked.request.partitions) == 1:
                self._check_one(parked, equal)
            elif self._is_due(parked, moved):
                self._answer_parked(parked)

    def _check_one(self, parked: _ParkedRead, equal: dict[tuple[object, ...], _SharedCheck]) -> None:
        """Answer a read of one partition if it is due. `equal` holds the checks of this turn, by request."""
        request = parked.request
        (wanted,) = request.partitions
        # mutant: look-of-same-read
        key = (
            *(wanted.topic_partition, wanted.fetch_offset, wanted.max_bytes, wanted.leader_epoch),
            *(request.min_bytes, request.max_bytes, request.isolation_level, request.by_reference),
        )
        check = equal.get(key)
        if check is None:
            check = equal[key] = _SharedCheck(
                self._partitions.read(request, wanted, self._partitions.bytes_allowed(request), True)
            )
        result, _, size = check.found
        if not result.error_code and size < request.min_bytes:
            if check.awaited < 0:
                (check.awaited,) = self._partitions.awaited(request, [check.found])
            if check.awaited < request.min_bytes:
                return
        self.unpark(parked)
        response = check.response
        if request.by_reference:
            self.named_bytes += size
        elif response is not None:
            self._count(size, named=bool(result.slices))
        if response is None:
            response = ReadResponse([result]) if request.by_reference else self._response(request, [check.found])
            check.response = response
        parked.done(response)

    def _is_due(self, parked: _ParkedRead, moved: dict[PartitionLog, None]) -> bool:
        request = parked.request
        committed = request.isolation_level == READ_COMMITTED
        for log in moved:
            if log.deleted or log.offline is not None:
                return True
            for index in parked.logs[log]:
                wanted = request.partitions[index]
                try:
                    spans = log.spans(wanted.fetch_offset, wanted.max_bytes, min_one=True, committed=committed)
                    size = self._partitions.awaited_of(log, wanted, spans, request)
                except StorageFailure:
                    return True
                parked.size += size - parked.sizes[index]
                parked.sizes[index] = size
        return parked.size >= request.min_bytes

    def unpark(self, parked: _ParkedRead) -> None:
        """Stop parking a read, without calling `done`."""
        parked.has_ended = True
        self._parked.pop(parked, None)
        self._moved.pop(parked, None)
        if parked.timer is not None:
            parked.timer.cancel()
            begun_at = parked.timer.when() - parked.request.max_wait_ms / 1000
            self.waits.observe(max(0.0, self._loop.time() - begun_at))
        for log in parked.logs:
            log.readable.unwatch(parked)

    def _answer_parked(self, parked: _ParkedRead) -> None:
        self.unpark(parked)
        if len(parked.request.partitions) > PIECE:
            parked.cancel = self._long.read(parked.request, self._answer_in_steps(parked))
            return
        found, _, _ = self._partitions.collect(
            parked.request, parked.request.partitions, self._partitions.bytes_allowed(parked.request)
        )
        parked.done(self._response(parked.request, found))

    def _answer_in_steps(self, parked: _ParkedRead) -> Iterator[None]:
        found, _, _ = yield from self._partitions.collect_in_steps(parked.request)
        parked.done(self._response(parked.request, found))

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer_now(self, request: ReadRequest, found: list[Found], done: ReadDone) -> Callable[[], None]:
        """Answer a read that does not wait, now or when its records were read from a cold disk.

        A cold read of many segments is answered with the first of them. Its client asks for the others again.
        """
        if request.max_wait_ms > 0 or not self._are_cold(found):  # mutant: cold-read-off-loop
            done(self._response(request, found))
            return _nothing
        some = first_of(found, self.cold.segments_max)  # mutant: cold-segments-bounded

        def read(outcome: Outcome) -> None:
            for number, each in enumerate(some):
                if isinstance(outcome, StorageFailure):
                    note_failure(each, outcome)
                else:
                    each[0].records = outcome[number]
            self.disk_bytes += sum([size for _, _, size in some])
            done(ReadResponse([result for result, _, _ in found]))

        return self.cold.read([spans for _, spans, _ in some], read)

    def _are_cold(self, found: list[Found]) -> bool:
        try:
            return self.cold.are_cold(spans for _, spans, _ in found)
        except StorageFailure:  # the read itself will fail
            return False

    def _response(self, request: ReadRequest, found: list[Found]) -> ReadResponse:
        """Return the answer, with its records."""
        total = sum([size for _, _, size in found])
        as_slices = request.by_reference
        if total and not as_slices:
            as_slices = request.max_wait_ms > 0 and (
                total > INLINE_BYTES_MAX or self._are_cold(found) or not self._may_inline(total)
            )
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

    async def close(self) -> None:
        """Answer all parked reads with the records found, and wait for those that read a cold disk."""
        self._closed = True
        self._parked_max = 0
        for parked in list(self._parked):
            self._answer_parked(parked)
        self._long.finish()
        await self.cold.finish()


def _nothing() -> None:
    """Do nothing: the read is answered already."""
