"""A thread that finds callbacks which block an event loop, and the stack of the loop's thread at that moment.

The thread asks the loop for a turn every PROBE_S. A turn that does not come within the limit is a stall, unless the
machine was busy elsewhere. Of the time that passed, only this counts:

    the processor time of the loop's thread, without garbage collections
    the time in which it slept in a system call while no thread of the process wanted a processor

Time on the run queue of the kernel does not count, nor time in which the thread may have waited for Python's global
lock or for another thread that was on the run queue. So a stall may go unseen on a busy machine, and none is reported
that the loop's code did not cause.

It needs Linux (/proc/self/task/*/schedstat: nanoseconds on a processor, nanoseconds on the run queue). It is for tests
and for the search for a stall: one probe costs some ten microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import json
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Final, NamedTuple

#: A turn of the event loop that takes longer is a stall.
LIMIT_S: Final = 0.1
#: Seconds between the end of a probe and the next.
PROBE_S: Final = 0.02
_TASKS: Final = "/proc/self/task"
#: Functions of asyncio that run callbacks.
_LOOP_CALLS: Final = ("run", "run_forever", "run_until_complete", "_run_once", "_run")


class Stall(NamedTuple):
    """One stall. `blocked_s` is its length so far when `stack` was noted, which has the outermost call first."""

    blocked_s: float
    stack: str


class _Times(NamedTuple):
    """Seconds until now on a processor and on the run queue: of the loop's thread, and of all other threads.

    The kernel adds a wait on the run queue when it is over. `wanted` states whether any thread runs or waits there now.
    To read all of them takes from `at` to `until`, in which the loop's thread may go on.
    """

    at: float
    until: float
    running: float
    queued: float
    others_running: float
    others_queued: float
    wanted: bool = False


class _Collections:
    """The length of the garbage collections of each thread of the process.

    It stays among gc.callbacks: a watch that took itself out of that list while Python went through it would make
    Python pass over the watch after it.
    """

    def __init__(self) -> None:
        self._collected_s: dict[int, float] = {}
        self._since: tuple[int, float] | None = None
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        """Note the beginning or the end of a collection, in the thread that does it; there is one at a time."""
        now, thread = time.monotonic(), threading.get_ident()
        if phase == "start":
            self._since = thread, now
        elif self._since is not None:
            self._collected_s[thread] = self._collected_s.get(thread, 0.0) + now - self._since[1]
            self._since = None

    def of(self, thread: int) -> float:
        """Return the length of a thread's collections so far, in seconds."""
        since = self._since
        unfinished = time.monotonic() - since[1] if since is not None and since[0] == thread else 0.0
        return self._collected_s.get(thread, 0.0) + unfinished


@functools.cache
def _collections() -> _Collections:
    return _Collections()


class StallWatch:
    """The watch over one event loop. `close` ends it, and so does the end of the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, report: Callable[[Stall], None], *, limit_s: float = LIMIT_S
    ) -> None:
        """Watch a loop that the calling thread runs now or later. `report` is called in the watch's thread."""
        #: Weak, so that a loop that nobody has closed is freed as it would be without the watch.
        self._loop = weakref.ref(loop)
        self._report = report
        self._limit_s = limit_s
        #: (identity for Python, identity for the kernel) of the loop's thread.
        self._thread = threading.get_ident(), threading.get_native_id()
        #: Seconds of every other thread on the run queue; those of threads that have ended count until the next probe.
        self._others_queued: dict[str, float] = {}
        self._collections = _collections()
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """End the watch; a stall that is being measured is dropped."""
        self._closed.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._closed.wait(PROBE_S) and (loop := self._loop()) is not None and not loop.is_closed():
            if loop.is_running():
                # The loop was closed in between, or the process has no descriptor left to look at its threads.
                with contextlib.suppress(RuntimeError, OSError):
                    self._probe(loop)
            del loop

    def _probe(self, loop: asyncio.AbstractEventLoop) -> None:
        turned = threading.Event()

        def turn() -> None:
            self._thread = threading.get_ident(), threading.get_native_id()
            turned.set()

        self._others_queued.clear()
        # In this order: a collection in between counts as one.
        collected_s, seen, blocked_s = self._collections.of(self._thread[0]), self._times(), 0.0
        loop.call_soon_threadsafe(turn)
        while not turned.wait(self._limit_s / 8):
            frame = sys._current_frames().get(self._thread[0])
            before, seen = seen, self._times(look=True)
            blocked_s += _blocked_s(before, seen)
            if turned.is_set() or self._closed.is_set() or not loop.is_running():
                return
            collected = self._collections.of(self._thread[0]) - collected_s
            if blocked_s - collected >= self._limit_s and frame is not None:
                self._report(Stall(blocked_s, _stack(frame)))
                while not (turned.wait(self._limit_s) or self._closed.is_set()) and loop.is_running():
                    pass
                return
            del frame  # its variables live as long as it is held

    def _times(self, *, look: bool = False) -> _Times:
        """Return the times until now; with `look`, whether a thread wants a processor, too."""
        at, running, queued, others_queued, wanted = time.monotonic(), 0.0, 0.0, self._others_queued, False
        for task in os.listdir(_TASKS):
            try:
                on_processor, on_queue, _ = map(int, _read(f"{_TASKS}/{task}/schedstat").split())
                if look and int(task) != self._watcher.native_id:
                    wanted = wanted or _read(f"{_TASKS}/{task}/stat").rpartition(b")")[2].split()[0] == b"R"
            except OSError:  # the thread has ended since
                continue
            if int(task) == self._thread[1]:
                running, queued = on_processor / 1e9, on_queue / 1e9
            else:
                others_queued[task] = on_queue / 1e9
        others_running = time.process_time() - running
        return _Times(at, time.monotonic(), running, queued, others_running, sum(others_queued.values()), wanted)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _blocked_s(before: _Times, now: _Times) -> float:
    """Return the time between the two that the loop's thread spent working or asleep, not waiting for its turn."""
    running = now.running - before.running
    if now.wanted:  # mutant: processor-wait-excused
        return running
    asleep = (now.at - before.until) - running - (now.queued - before.queued)
    asleep -= now.others_running - before.others_running + now.others_queued - before.others_queued
    return running + max(0.0, asleep)


def _stack(frame: FrameType) -> str:
    """Return the calls of one callback of the loop, without those of the loop and its callers. The names of coroutines
    begin with `async`.
    """
    # One walk: the thread goes on, and a second walk may find other frames.
    walked = list(traceback.walk_stack(frame))[::-1]
    names = [
        f"async {each.f_code.co_name}" if each.f_code.co_flags & inspect.CO_COROUTINE else each.f_code.co_name
        for each, _ in walked
    ]
    calls = traceback.StackSummary.extract(iter(walked))
    of_loop = [at for at, call in enumerate(calls, 1) if call.name in _LOOP_CALLS and "/asyncio/" in call.filename]
    for call, name in zip(calls, names, strict=True):
        call.name = name
    return "".join(traceback.format_list(calls[of_loop[-1] if of_loop else 0 :]))


def append_to_file(path: str) -> Callable[[Stall], None]:
    """Return a `report` that appends each stall to a file, as a line of JSON, which several processes may share."""

    def report(stall: Stall) -> None:
        line = json.dumps({"pid": os.getpid(), "program": sys.argv, **stall._asdict()}) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    return report
