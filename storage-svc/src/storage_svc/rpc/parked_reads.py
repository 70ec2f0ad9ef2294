"""Reads that wait for records, without a task.

A parked read holds the sizes of its results, and no records: it reads when it is answered. When the high watermark of
one of its logs moves, only that partition is checked again, at the end of the turn. Equal reads of one partition share
one check.

A read is answered when one of these holds (Kafka's DelayedFetch):

    a partition has an error
    `max_wait_ms` is over
    the readable records reach `min_bytes`, counting parts of batches
    its records lie in an older segment than the readable end
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker_contract.data import ReadRequest, ReadResponse
from service_chassis.histogram import Buckets

from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc.found_records import Found
from storage_svc.rpc.partition_read import PIECE, READ_COMMITTED, PartitionReads
from storage_svc.rpc.read_answers import ReadAnswers, ReadDone

#: Upper bounds in seconds of the waits of parked reads; clients ask for half a second, and up to minutes.
_WAIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


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

    def __init__(self, owner: ParkedReads, request: ReadRequest, done: ReadDone, sizes: list[int]) -> None:
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


class ParkedReads:
    """Owner: Reads, on the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, partitions: PartitionReads, answers: ReadAnswers, most: int
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._answers = answers
        #: Reads that may be parked at a time, and those that are.
        self.most = most
        self.reads: dict[_ParkedRead, None] = {}
        self._moved: dict[_ParkedRead, dict[PartitionLog, None]] = {}
        #: Seconds for which reads were parked.
        self.waits = Buckets(_WAIT_BUCKETS)

    def park(self, request: ReadRequest, done: ReadDone, sizes: list[int], found: list[Found]) -> Callable[[], None]:
        """Park a read whose partitions have these bytes; return the function that gives it up."""
        parked = _ParkedRead(self, request, done, sizes)
        for index, wanted in enumerate(request.partitions):
            log = self._partitions.log_of(wanted.topic_partition)
            if isinstance(log, PartitionLog):
                parked.logs.setdefault(log, []).append(index)
        for log in parked.logs:
            log.readable.watch(parked, partial(parked.note_moved, log))
        parked.timer = self._loop.call_later(request.max_wait_ms / 1000, self._answer_parked, parked)
        self.reads[parked] = None
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
            self._answers.named_bytes += size
        elif response is not None:
            self._answers.count(size, named=bool(result.slices))
        if response is None:
            if request.by_reference:
                response = ReadResponse([result])
            else:
                response = self._answers.response(request, [check.found])
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
        self.reads.pop(parked, None)
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
            parked.cancel = self._partitions.take_steps(parked.request, self._answer_in_steps(parked))
            return
        found, _, _ = self._partitions.collect(
            parked.request, parked.request.partitions, self._partitions.bytes_allowed(parked.request)
        )
        parked.done(self._answers.response(parked.request, found))

    def _answer_in_steps(self, parked: _ParkedRead) -> Iterator[None]:
        found, _, _ = yield from self._partitions.collect_in_steps(parked.request)
        parked.done(self._answers.response(parked.request, found))

    def close(self) -> None:
        """Answer all parked reads with the records found, and park no more."""
        self.most = 0
        for parked in list(self.reads):
            self._answer_parked(parked)
