"""Standard output that may be slower than its writer: `less`, a full pipe, a terminal that is stopped.

A thread writes, so the event loop goes on, and with it the heartbeats of a group. One chunk is written at a time; the
caller waits for it, so no more than that is held.
"""

from __future__ import annotations

import asyncio
import os
import queue
import select
import threading


class OutputPipe:
    """A writer of chunks to a file descriptor. Its thread ends with the process, also in the middle of a write."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._chunks: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, daemon=True).start()

    def write(self, content: bytes) -> asyncio.Future[None]:
        """Begin to write; the future ends when everything is written, or with the OSError. One call at a time."""
        written: asyncio.Future[None] = self._loop.create_future()
        written.add_done_callback(lambda each: each.cancelled() or each.exception())  # also where nobody waits any more
        self._chunks.put((content, written))
        return written

    def _run(self) -> None:
        while True:
            content, written = self._chunks.get()
            fault: OSError | None = None
            try:
                self._write(memoryview(content))
            except OSError as error:
                fault = error
            try:
                self._loop.call_soon_threadsafe(_settle, written, fault)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _write(self, left: memoryview) -> None:
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # another program that shares the pipe has made it so
                select.select([], [self._descriptor], [])


def _settle(written: asyncio.Future[None], fault: OSError | None) -> None:
    if written.done():
        return
    if fault is None:
        written.set_result(None)
    else:
        written.set_exception(fault)
