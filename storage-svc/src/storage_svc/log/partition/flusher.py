"""A flusher: one thread that syncs all dirty logs, round after round.

`mark` puts a log on the list. While a sync runs, other logs gather on the list; the next sync covers all of them. So
under load a sync carries everything that was written during the one before it, and an idle log costs nothing. The
thread sees pinned segments and paths only; everything else happens on the event loop. Several logs are synced by one
call (sync_queue.py).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final

from service_chassis import logs
from service_chassis.histogram import Buckets

from storage_svc.log.disk.files import Files
from storage_svc.log.disk.sync_queue import SyncQueue
from storage_svc.log.errors import Refused, StorageFailure
from storage_svc.log.partition.pending_sync import Syncable, SyncTarget

# More logs than this are synced from several threads at once, which the file system commits together. That applies
# where the system has no queue of syncs. It also applies to folders and closed files, which the queue does not accept.
# docs/benchmarks/log.md has the gains.
_SHARE: Final = 4
_THREADS_MAX: Final = 32

_log = logs.get(__name__)


class Flusher:
    """One of the two flushers of a DataFolder, which owns them.

    One syncs the logs whose appends wait for a sync. The other syncs all others, whose syncs are large.
    Before `start` a flusher only gathers.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._dirty: dict[Syncable, None] = {}
        self._running = False
        self._scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: SimpleQueue[dict[SyncTarget, Syncable] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._queue: SyncQueue | None = None
        self._has_queue = True
        self._pool = ThreadPoolExecutor(_THREADS_MAX, "millrace-sync")  # makes its threads when there is work for them
        self._idle: asyncio.Event | None = None
        self._timers: dict[Syncable, asyncio.TimerHandle] = {}
        #: Seconds of each round.
        self.durations = Buckets()

    @property
    def dirty_count(self) -> int:
        """The number of logs that wait for a sync."""
        return len(self._dirty)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread and sync the logs that have gathered."""
        self._loop = loop
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._work, name="millrace-sync", daemon=True)
        self._thread.start()
        self._start_next()

    async def stop(self) -> None:
        """Sync the dirty logs, then end the thread."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._idle is not None and self._thread is not None:
            self._start_next()
            while self._running:
                await self._idle.wait()
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)  # default threads: nothing is served any more
            self._thread = None
            self._loop = None

    def withdraw(self) -> list[Syncable]:
        """Return every marked log and clear the list."""
        dirty, self._dirty = self._dirty, {}
        return list(dirty)

    def mark(self, log: Syncable) -> None:
        """Put the log on the list: it has something to sync."""
        self._dirty[log] = None
        if not self._running and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        """Start the next sync at the end of a turn, so that everything written in the turn shares it."""
        self._scheduled = False
        if self._dirty and not self._running:
            self._next()

    def mark_later(self, log: Syncable, delay_ms: int) -> None:
        """Ask the log for a sync when the delay is over; the request that is due first counts."""
        if self._loop is None:
            return
        pending, due = self._timers.get(log), self._loop.time() + delay_ms / 1000
        if pending is None or due < pending.when():
            if pending is not None:
                pending.cancel()
            self._timers[log] = self._loop.call_at(due, self._due, log)

    def _due(self, log: Syncable) -> None:
        self._timers.pop(log, None)
        log.request_sync()

    def forget(self, log: Syncable) -> None:
        """Drop a deleted log from the list."""
        self._dirty.pop(log, None)
        if (timer := self._timers.pop(log, None)) is not None:
            timer.cancel()

    def _next(self) -> None:
        dirty, self._dirty = self._dirty, {}
        targets = {target: log for log in dirty if (target := log.sync_target()) is not None}
        if targets:
            self._running = True
            if self._idle is not None:
                self._idle.clear()
            self._jobs.put(targets)

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        while (targets := self._jobs.get()) is not None:
            started = time.perf_counter()
            try:
                self._sync(targets)
            except Exception:  # such as no thread; without this one no record would ever be acknowledged
                _log.exception("logs are synced one after the other")
                self._sync_some(targets)
            try:
                loop.call_soon_threadsafe(self._done, targets, time.perf_counter() - started)
            except RuntimeError:  # the loop was closed without `stop`
                break
        self._close_queue()

    def _close_queue(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()

    def _sync(self, targets: Collection[SyncTarget]) -> None:
        if len(targets) > 1 and self._has_queue:
            targets = self._sync_queued(targets)
        count = min(_THREADS_MAX, len(targets) // _SHARE)
        if count < 2:
            for target in targets:
                target.run(self._files)
            return
        ordered = list(targets)
        for _ in self._pool.map(self._sync_some, (ordered[n::count] for n in range(count))):
            pass

    def _sync_queued(self, targets: Collection[SyncTarget]) -> Collection[SyncTarget]:
        """Sync as many targets as possible with one call; return the others."""
        if self._queue is None and (queue := self._files.sync_queue()) is not None:
            self._queue = queue
        if self._queue is None:
            self._has_queue = False
            return targets
        queued: list[tuple[SyncTarget, int]] = []
        left = []
        for target in targets:
            descriptors = target.descriptors()
            if descriptors is None:
                left.append(target)
            else:
                queued += [(target, descriptor) for descriptor in descriptors]  # mutant: joint-sync-covers-all
        try:
            outcomes = self._files.sync_queued(self._queue, [descriptor for _, descriptor in queued])
        except Exception as error:  # the outcome of all is unknown; the thread must live on
            self._has_queue = False
            outcomes = [StorageFailure(f"{type(error).__name__}: {error}")] * len(queued)
        for (target, _), failure in zip(queued, outcomes, strict=True):
            target.failure = target.failure or failure  # mutant: joint-sync-failure-kept
        return left

    def _sync_some(self, targets: Iterable[SyncTarget]) -> None:
        for target in targets:
            target.run(self._files)

    def _done(self, targets: dict[SyncTarget, Syncable], seconds: float) -> None:
        self.durations.observe(seconds)
        self._running = False
        self._start_next()
        for target, log in targets.items():
            try:
                log.synced(target)
            except Exception:  # raised by a callback; it must not harm the waiters of other logs
                _log.exception("acknowledging failed", log=log.folder)
        self._start_next()
        if not self._running and self._idle is not None:
            self._idle.set()

    def sync_now(self, wanted: Callable[[Syncable], bool] = lambda _: True) -> None:
        """Sync the dirty logs that are wanted before this returns; for start and stop, without clients.

        A log stays on the list if the system refuses to begin its sync.
        """
        refused: dict[Syncable, None] = {}
        while dirty := [log for log in self._dirty if wanted(log)]:
            for log in dirty:
                del self._dirty[log]
            targets = {target: log for log in dirty if (target := log.sync_target()) is not None}
            self._sync(targets)
            for target, log in targets.items():
                log.synced(target)
                if isinstance(target.failure, Refused):
                    refused[log] = None
        self._dirty |= refused

    def close(self) -> None:
        """End the threads; nothing is synced any more."""
        self._pool.shutdown(wait=False)
        if self._thread is None:
            self._close_queue()
        else:
            self._jobs.put(None)
