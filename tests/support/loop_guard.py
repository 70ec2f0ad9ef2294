"""The guard of the rule that an event loop never waits: a test fails when one is blocked for more than 100 ms.

`guard_loops` has a StallWatch (service_chassis/stall_watch.py) over every event loop that this process makes from then
on, and over those of services that it starts as processes. The fixture in tests/conftest.py fails the test during which
a stall was found, with the stack of the loop's thread. A stall of a broker that several tests share fails the test that
runs at that moment.

The time in which the loop's thread waited for a processor is no part of a stall (stall_watch.py).

A stall without any code of a service in its stack does not count: the test itself blocks its loop. Nor does one in a
plain function of a service that the test calls, instead of a coroutine or a callback. Other steps that only tests take,
and steps before a service listens, are in ALLOWED by a part of the stack. The marker `blocks_event_loop("reason")`
excuses one test.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop
from service_chassis.stall_watch import Stall, StallWatch

__all__ = ["ALLOWED", "LoopGuard", "guard_loops"]

_BUSY_DISK: Final = "services read and write short pieces on the loop, for which a busy disk may take long; no syncs"
#: A part of a stack that excuses a stall -> the reason.
ALLOWED: Final[dict[str, str]] = {
    "admin_api/__main__.py": "admin-api imports its framework and builds the application before it listens",
    "gateway_svc/__main__.py": "the gateway imports gRPC before it listens",
    "millrace/running.py": "RunningUp starts and stops `millrace up` from the thread that calls it, a test's",
    "os.pread(": _BUSY_DISK,
    "storage_svc/log/disk/files.py": _BUSY_DISK,
    " in _open\n": _BUSY_DISK,
    "admin_api/app.py": "tests build the application in a coroutine, services before they listen",
}
#: Folders of the packages whose code runs in services.
_OF_SERVICES: Final = ("/storage_svc/", "/gateway_svc/", "/admin_api/", "/millrace/", "/service_chassis/")

_VARIABLE: Final = "MILLRACE_EVENT_LOOP_STALL_FILE"

_NewLoop = Callable[[], asyncio.AbstractEventLoop]


class LoopGuard:
    """The stalls that were found and that nobody has fetched yet."""

    def __init__(self, file: Path) -> None:
        self._stalls: list[Stall] = []
        self._lock = threading.Lock()
        self._file = file
        self._read_to = 0

    def note(self, stall: Stall) -> None:
        """Keep a stall of a loop in this process; any thread may call this."""
        with self._lock:
            self._stalls.append(stall)

    def fetch(self) -> list[Stall]:
        """Return the stalls since the last call, without those that ALLOWED excuses."""
        with self._lock:
            found, self._stalls = self._stalls, []
        return [stall for stall in (*found, *self._of_processes()) if excuse(stall) is None]

    def _of_processes(self) -> list[Stall]:
        try:
            with self._file.open("rb") as file:
                file.seek(self._read_to)
                lines = file.read()
        except FileNotFoundError:
            return []
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read_to += len(whole)
        read = map(json.loads, whole.splitlines())
        return [Stall(each["blocked_s"], f"process {each['pid']} {each['program']}\n{each['stack']}") for each in read]


def excuse(stall: Stall) -> str | None:
    """Return the reason for which a stall does not count; None if it does."""
    calls = [line for line in stall.stack.splitlines() if line.startswith("  File")]
    own = [number for number, call in enumerate(calls) if "/src/" in call and any(map(call.__contains__, _OF_SERVICES))]
    if not own:
        return "only the test's own code"
    first = own[0]
    if first and "/tests/" in calls[first - 1] and " in async " not in calls[first]:
        return "a test calls a step of a service by itself"
    return next((reason for part, reason in ALLOWED.items() if part in stall.stack), None)


def guard_loops() -> LoopGuard:
    """Watch the event loops of this process and of services that it starts. Call it once, before any loop is made."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-stalls-"))
    guard = LoopGuard(folder / "stalls")
    os.environ[_VARIABLE] = str(folder / "stalls")

    def watched(make: _NewLoop) -> _NewLoop:
        def new_event_loop() -> asyncio.AbstractEventLoop:
            loop = make()
            StallWatch(loop, guard.note)
            return loop

        return new_event_loop

    asyncio.new_event_loop = asyncio.events.new_event_loop = watched(asyncio.new_event_loop)
    uvloop.new_event_loop = watched(uvloop.new_event_loop)  # type: ignore[assignment]
    return guard
