"""The cost of processes: processor time, resident memory and their share of it, from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.2


@dataclass
class Usage:
    """The cost of named processes over some time. Memory is that at its end."""

    seconds: float
    cpu_seconds: dict[str, float]
    rss_bytes: dict[str, int]
    #: proportional: a page that several processes map counts in parts
    pss_bytes: dict[str, int]


def descendants(root: int) -> Iterator[int]:
    """Yield the children of every thread of a process, and theirs: a JVM starts programs in any of its threads."""
    for thread in Path(f"/proc/{root}/task").iterdir():
        try:
            children = (thread / "children").read_text().split()
        except OSError:  # the thread has ended
            continue
        for child in children:
            yield int(child)
            with contextlib.suppress(OSError):  # the child has ended
                yield from descendants(int(child))


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return user and system time of all of them so far, in steps of a clock tick (10 ms)."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


@contextlib.contextmanager
def metered(root: int) -> Iterator[Callable[[], float]]:
    """Meter the processor time of the descendants of a process; yield a function that returns it in seconds.

    They are looked at five times a second. The kernel forgets the time of children whose parent ignores their end, as
    that of Spark's Python workers does.
    """
    before: dict[int, float] = {}
    last: dict[int, float] = {}
    ended = threading.Event()

    def look(times: dict[int, float]) -> None:
        for pid in descendants(root):
            with contextlib.suppress(OSError):  # it has ended
                times[pid] = cpu_seconds([pid])

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            look(last)

    def used() -> float:
        look(last)
        return sum(seconds - before.get(pid, 0.0) for pid, seconds in last.items())

    look(before)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield used
    finally:
        ended.set()
        thread.join()


def memory_bytes(pid: int) -> tuple[int, int]:
    """Return RSS and PSS."""
    kinds = _resident(pid)
    return kinds["Rss:"], kinds["Pss:"]


def memory_kinds(pid: int) -> tuple[int, int]:
    """Return the resident bytes of anonymous memory, and those of mapped files and shared memory."""
    kinds = _resident(pid)
    return kinds["Anonymous:"], kinds["Rss:"] - kinds["Anonymous:"]


def _resident(pid: int) -> dict[str, int]:
    """Return the rows of the kernel's summary of a process's memory, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return {line.split()[0]: int(line.split()[1]) << 10 for line in lines[1:]}


def wake_ups(pids: Iterable[int]) -> int:
    """Count the waits so far of all threads of these processes: each followed a wake-up."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has ended
                fields = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
                total += int(fields["voluntary_ctxt_switches"])
    return total
