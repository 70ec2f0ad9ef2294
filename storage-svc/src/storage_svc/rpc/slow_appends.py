"""Batches whose records have to be looked at and are many: that is done in a thread, so that the event loop goes on.

Whatever comes for the same partition meanwhile waits behind, so that batches are appended in the order they came. An
outcome handed out by `add` becomes true when `when_true` calls back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.records.header import HEADER_SIZE
from service_chassis import logs as service_logs

from storage_svc.log.partition_log import Admitted, Appended, Origin, PartitionLog

#: A record takes about two microseconds, a megabyte to be decompressed two milliseconds.
SLOW_RECORDS: Final = 500
SLOW_BYTES: Final = 128 << 10
_COUNT_AT: Final = 57

_log = service_logs.get(__name__)


def is_slow(view: memoryview) -> bool:
    """Whether looking at the records of these bytes, if they are a batch, would hold up the event loop."""
    return len(view) >= HEADER_SIZE and (
        len(view) > SLOW_BYTES or int.from_bytes(view[_COUNT_AT:HEADER_SIZE], "big") > SLOW_RECORDS
    )


class _Slow:
    """A batch that waits, and the outcome that was handed out for it."""

    __slots__ = ("done", "log", "outcome", "view")

    def __init__(self, log: PartitionLog, view: memoryview) -> None:
        self.log = log
        self.view = view
        self.outcome = Appended(ErrorCode.NONE)
        self.done: Callable[[], None] = _nothing


class SlowAppends:
    """Owned by the DataService."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], int]) -> None:
        self._loop = loop
        self._clock = clock
        #: The first of each queue is being looked at.
        self.queues: dict[PartitionLog, deque[_Slow]] = {}
        self._by_outcome: dict[int, _Slow] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, log: PartitionLog, view: memoryview) -> Appended:
        """The outcome of a batch, to be filled in."""
        slow = _Slow(log, view)
        self._by_outcome[id(slow.outcome)] = slow
        queue = self.queues.get(log)
        if queue is None:
            self.queues[log] = deque((slow,))
            self._idle.clear()
            self._look_at(slow)
        else:
            queue.append(slow)
        return slow.outcome

    def when_true(self, outcomes: Iterable[Appended], done: Callable[[], None]) -> bool:
        """Call back once all of these are true; False, without a call, if they are."""
        waiting = [slow for each in outcomes if (slow := self._by_outcome.get(id(each))) is not None]
        missing = len(waiting)

        def one() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done()

        for slow in waiting:
            slow.done = one
        return bool(waiting)

    def _look_at(self, slow: _Slow) -> None:
        future = self._loop.run_in_executor(None, slow.log.writer.admit, slow.view, self._clock())
        future.add_done_callback(lambda ended: self._looked_at(slow, ended))

    def _looked_at(self, slow: _Slow, ended: asyncio.Future[Admitted]) -> None:
        """The first of a queue is ready: append it, and those behind it that need no look."""
        log, queue = slow.log, self.queues[slow.log]
        staged: list[tuple[_Slow, Appended]] = []
        now_ms = self._clock()
        if ended.cancelled() or (error := ended.exception()) is not None:
            reason = "cancelled" if ended.cancelled() else str(error)
            _log.error("records not looked at", log=log.folder, reason=reason)
            staged.append((slow, Appended(ErrorCode.UNKNOWN_SERVER_ERROR, error_message="the records were not read")))
        else:
            staged.append((slow, log.writer.stage(slow.view, Origin.CLIENT, now_ms, ended.result())))
        queue.popleft()
        while queue and not (log.writer.opens_records and is_slow(queue[0].view)):
            behind = queue.popleft()
            staged.append((behind, log.writer.stage(behind.view, Origin.CLIENT, now_ms)))
        log.writer.write_staged()
        if queue:
            self._look_at(queue[0])
        else:
            del self.queues[log]
        for each, appended in staged:
            each.outcome.become(appended)
            del self._by_outcome[id(each.outcome)]
        for each, _ in staged:
            each.done()
        if not self.queues:
            self._idle.set()

    async def finish(self) -> None:
        """Until nothing waits any more."""
        await self._idle.wait()


def _nothing() -> None:
    """Nobody waits yet."""
