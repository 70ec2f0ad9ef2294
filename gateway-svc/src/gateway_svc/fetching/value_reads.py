"""Reads by value, as many at once as the memory for answers has room for.

A read that waits in storage holds no records. Once records have arrived, storage sends slices, and this gateway reads
their bytes here, without waiting. The budget for answers counts them from before the read until `done` has accepted
them. A read that finds no room within WAIT_S gets no records; its client asks again.

A read that knows its slices gets their bytes over a lane, if one is free and there is room for all of them at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from broker_contract.data import ReadRequest, ReadResponse, ReadResult

from gateway_svc.fetching.lane_reads import LaneRead
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.storage.protocols import RecordLanes, Records

#: Most bytes of one read; less while many answers are held in memory (an eighth of the rest). It is seldom less than a
#: batch: storage sends a whole one in any case.
READ_BYTES_MAX: Final = 8 * 1024 * 1024
READ_BYTES_MIN: Final = 1024 * 1024 + 64 * 1024
#: Most bytes that storage is asked for at once: it holds them, too.
ASKED_BYTES_MAX: Final = 32 * 1024 * 1024
#: Longest wait for room, in seconds.
WAIT_S: Final = 1.0

#: A function that gets the answer, or None where there was no room, and a function to call once the records are
#: released, or counted elsewhere.
ValueDone = Callable[[ReadResponse | None, Callable[[], None]], None]


class _ValueRead:
    """One read: it waits for room, is on its way, or its records are held."""

    __slots__ = ("cancel", "done", "found", "has_begun", "held", "owner", "request", "timer")

    def __init__(
        self, owner: ValueReads, request: ReadRequest, done: ValueDone, found: Sequence[ReadResult] = ()
    ) -> None:
        self.owner = owner
        self.request = request
        self.found = found
        self.done: ValueDone | None = done
        self.has_begun = False
        self.held = 0
        self.cancel: Callable[[], None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def give_up(self) -> None:
        """End the read without calling `done`; no effect once `done` was called."""
        self.owner.give_up(self)


class ValueReads:
    """The reads by value of one gateway, which owns it."""

    def __init__(
        self,
        records: Records,
        budget: MemoryBudget,
        loop: asyncio.AbstractEventLoop,
        lanes: RecordLanes | None = None,
    ) -> None:
        self._records = records
        self._lanes = lanes
        self._budget = budget
        self._loop = loop
        self._waiting: deque[_ValueRead] = deque()
        self._asked = 0
        #: Bytes of the budget that reads hold.
        self.held = 0

    @property
    def bytes_allowed(self) -> int:
        """The bytes that one read may ask for now."""
        budget = self._budget
        return min(budget.limit, max(READ_BYTES_MIN, min(READ_BYTES_MAX, (budget.limit - budget.used) // 8)))

    def read(self, request: ReadRequest, done: ValueDone, found: Sequence[ReadResult] = ()) -> Callable[[], None]:
        """Read by value at most `request.max_bytes`, without waiting for records. Return a function to give it up.

        `done` is called once, now or later, unless the read is given up first. `found`: the results of the request's
        partitions, if a read by reference has found the records already.
        """
        read = _ValueRead(self, request, done, found)
        self._waiting.append(read)
        self._begin_waiting()
        if not read.has_begun:
            read.timer = self._loop.call_later(WAIT_S, self._expire, read)
        return read.give_up

    def _begin_waiting(self) -> None:
        """Begin the first reads that wait, as far as there is room."""
        waiting, budget = self._waiting, self._budget
        while waiting:
            read = waiting[0]
            if read.done is None:
                waiting.popleft()
                continue
            size = min(read.request.max_bytes, self.bytes_allowed)
            if budget.used + size > budget.limit:  # mutant: value-read-memory
                # Not called at once: the budget calls its owners one after the other as long as it has room.
                budget.wait(self, lambda: None if not waiting else self._soon())
                return
            if self._asked and self._asked + size > ASKED_BYTES_MAX:
                return
            waiting.popleft()
            self._begin(read, size)

    def _soon(self) -> None:
        self._loop.call_soon(self._begin_waiting)

    def _begin(self, read: _ValueRead, size: int) -> None:
        read.has_begun = True
        if read.timer is not None:
            read.timer.cancel()
        self._hold(read, size)
        self._asked += size
        length = sum([piece.length for result in read.found for piece in result.slices])
        if self._lanes is None or not 0 < length <= size or not self._lanes.is_usable:
            self._read(read, size)
            return

        def done(response: ReadResponse | None) -> None:
            if response is not None:
                self._answered(read, size, response)
            elif read.done is not None:
                self._read(read, size)

        cancel = LaneRead(read.found, length, done).start(self._lanes)
        if read.done is not None and read.cancel is None:
            read.cancel = cancel

    def _read(self, read: _ValueRead, size: int) -> None:
        request = replace(read.request, max_wait_ms=0, min_bytes=0, max_bytes=size, by_reference=False)
        cancel = self._records.read(request, lambda response: self._answered(read, size, response))
        if read.done is not None:
            read.cancel = cancel

    def _answered(self, read: _ValueRead, asked: int, response: ReadResponse) -> None:
        self._asked -= asked
        done, read.done = read.done, None
        read.cancel = None
        self._hold(read, sum(len(result.records) for result in response.partitions))
        if done is not None:
            done(response, lambda: self._hold(read, 0))
        else:
            self._hold(read, 0)
        self._begin_waiting()

    def _hold(self, read: _ValueRead, size: int) -> None:
        """Count this number of bytes for the read instead of those it held before."""
        before, read.held = read.held, size
        self.held += size - before
        if size > before:
            self._budget.take(size - before)
        elif size < before:
            self._budget.give(before - size)

    def _expire(self, read: _ValueRead) -> None:
        """Answer a read that found no room; it stays among those that wait until it is the first."""
        done, read.done = read.done, None
        if done is not None:
            done(None, lambda: None)

    def give_up(self, read: _ValueRead) -> None:
        if read.done is None:
            return
        read.done = None
        if read.timer is not None:
            read.timer.cancel()
        if read.cancel is not None:
            read.cancel()
            self._asked -= read.held
            self._hold(read, 0)
            self._begin_waiting()
