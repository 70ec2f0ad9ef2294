"""Calls of the record stream that storage has not answered, and the time at which the gateway answers them itself.

Keepalive finds a storage that hangs (a stopped process, a lost machine) after 25 s, longer than clients wait. So the
gateway answers a call itself, GRACE_S after storage should have answered it:

    an append        REQUEST_TIMED_OUT, after `timeout_ms`, and a second: storage waits as long for a disk
    a read           no records, after `max_wait_ms`
    a read ahead     no results, at once

An answer that storage sends later finds no call and is dropped. Kafka: DelayedProduce, DelayedFetch.

One timer checks all calls every CHECK_S. It stops while no call is open; the next call starts it. It answers calls only
if storage has sent nothing since the last check. A call's age counts from the first check after it was made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from broker_contract.data import (
    AheadRequest,
    AheadResponse,
    Append,
    AppendedPartition,
    AppendResponse,
    ReadRequest,
    ReadResponse,
    ReadResult,
)
from protocol_lib.errors import ErrorCode

GRACE_S: Final = 0.5
CHECK_S: Final = 0.1
#: Least time, in seconds, for which storage itself lets an append wait for a disk.
_DISK_S: Final = 1.0
_CHECKS_MAX: Final = 1000

Request = Append | ReadRequest | AheadRequest
#: Request and `done` of each call without an answer, by call id, the oldest first.
Calls = dict[int, tuple[Request, Callable[[Any], None]]]


def failure(
    request: Request, append_error: ErrorCode, read_error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
) -> AppendResponse | ReadResponse | AheadResponse:
    """Return the answer of a call that storage does not answer."""
    if isinstance(request, AheadRequest):
        return AheadResponse()
    if isinstance(request, Append):
        return AppendResponse([AppendedPartition(append_error) for _ in request.batches])
    return ReadResponse([ReadResult(read_error) for _ in request.partitions])


class CallDeadlines:
    """The timer over a RecordStream's calls, which the stream owns."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, calls: Callable[[], Calls], give_up: Callable[[list[int]], None]
    ) -> None:
        """Check `calls()`, and call `give_up` with the ids of calls whose time is over."""
        self._loop = loop
        self._calls = calls
        self._give_up = give_up
        #: (time, newest call id) of each check, the oldest first; the calls up to that id were made before it.
        self._checks: deque[tuple[float, int]] = deque()
        self._checked_at = loop.time()
        self._timer: asyncio.TimerHandle | None = None
        #: Whether the timer is stopped, so that the next call must `start_timer` it.
        self.is_stopped = True
        #: Whether storage has sent anything since the last check.
        self.has_received = False

    def start_timer(self) -> None:
        """Start the timer. It stops when there are no calls."""
        self.is_stopped = False
        self._checked_at = self._loop.time()
        self._timer = self._loop.call_at(self._checked_at + CHECK_S, self._check)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        now = self._loop.time()
        calls = self._calls()
        if not calls:
            self._checks.clear()
            self.is_stopped = True  # mutant: no-idle-watch
            return
        self._timer = self._loop.call_at(now + CHECK_S, self._check)
        if len(self._checks) >= _CHECKS_MAX:  # some calls count from a later check then
            self._checks = deque(islice(self._checks, 1, None, 2))
        self._checks.append((now, next(reversed(calls))))
        oldest = next(iter(calls))
        while self._checks[0][1] < oldest:
            self._checks.popleft()
        # Not after a standstill of this process: answers may wait in its sockets.
        if not self.has_received and now < self._checked_at + 3 * CHECK_S and (over := self._over(calls, now)):
            self._give_up(over)  # mutant: unanswered-given-up
        self._checked_at, self.has_received = now, False

    def _over(self, calls: Calls, now: float) -> list[int]:
        over = []
        checks = iter(self._checks)
        made_by, newest = next(checks)
        for call_id, (request, _) in calls.items():
            while call_id > newest:
                made_by, newest = next(checks)
            if now >= made_by + _wait_s(request) + GRACE_S:
                over.append(call_id)
        return over


def _wait_s(request: Request) -> float:
    """Return the time, in seconds, for which storage may keep a call."""
    if isinstance(request, Append):
        return max(request.timeout_ms / 1000, _DISK_S)
    return 0.0 if isinstance(request, AheadRequest) else request.max_wait_ms / 1000
