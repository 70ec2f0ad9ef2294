"""The cost of processes: processor time, resident memory and their share of it, from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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
    """Return user and system time of all of them so far, in steps of a clock tick (10 ms).

    The time of children that have ended, and whose end a process has waited for, is a part of its own.
    """
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_SECOND


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
