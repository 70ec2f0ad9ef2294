"""Writes to `__consumer_offsets` that wait: for the topic to be made, or for a partition's log to be durable.

A batch that begins a segment waits for the sync of the one before it, which takes as long as the disk does. Later
writes to the same partition wait in its queue, so that records are appended in the order they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from service_chassis import logs

#: Most writes that wait for one partition. A client that was answered after its timeout may send its commit again.
WAITING_MAX: Final = 10_000

_log = logs.get(__name__)


class WaitingWrites:
    """The queues of writes that wait, by partition. The OffsetsLog owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[int, deque[Callable[[], None]]] = {}
        #: Partitions whose first write waits for something that calls `resume`.
        self._held: set[int] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def holds(self, partition: int) -> bool:
        """Return whether a write to the partition waits, so that the next one has to."""
        return partition in self._queues

    def add(self, partition: int, write: Callable[[], None]) -> bool:
        """Queue a write; return False if too many wait already."""
        queue = self._queues.setdefault(partition, deque())
        if len(queue) >= WAITING_MAX:
            return False
        self._idle.clear()
        queue.append(write)
        return True

    def hold(self, partition: int, write: Callable[[], None] | None = None) -> None:
        """Wait until `resume` is called for the partition; `write` is the first to be tried then."""
        self._held.add(partition)
        if write is not None:
            self._idle.clear()
            self._queues.setdefault(partition, deque()).appendleft(write)

    def resume(self, partition: int) -> None:
        """Try the partition's writes, up to one that has to wait, when this turn of the event loop is over."""
        self._loop.call_soon(partial(self._try_writes, partition))

    def resume_all(self) -> None:
        """Do as `resume` does, for every partition."""
        for partition in list(self._queues):
            self.resume(partition)

    def _try_writes(self, partition: int) -> None:
        self._held.discard(partition)
        queue = self._queues.get(partition)
        if queue is None:
            return
        while queue and partition not in self._held:
            write = queue.popleft()
            try:
                write()
            except Exception:  # of one; the others are not to suffer
                _log.exception("write failed", partition=partition)
        if not queue:
            del self._queues[partition]
        if not self._queues:
            self._idle.set()

    async def finish(self) -> None:
        """Wait until no write waits any more."""
        await self._idle.wait()
