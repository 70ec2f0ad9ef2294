"""Checks of passwords and tokens in a few threads: each takes milliseconds of a processor.

A check that finds too many waiting raises Busy: the caller has the client come again. The threads have a lower priority
than the event loop. A password that was right is known from then on by an HMAC, with a key that nobody else has, until
the user's credential changes. So a client that logs in for each request costs microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

#: Checks that wait or run. At 4 ms each they are over within two seconds.
WAITING_MAX: Final = 512
#: Passwords that are known to be right: 64 bytes each.
KNOWN_MAX: Final = 10_000
#: The priority of the threads, as `nice` has it.
_NICE: Final = 10

T = TypeVar("T")


class Busy(Exception):  # noqa: N818 (reads as what happened)
    """The error of a check that finds too many waiting."""


class CheckThreads:
    """Threads for checks. Owner: the event loop; `close` must follow."""

    def __init__(self, name: str) -> None:
        # Half of the processors, so that the event loops have the others.
        threads = max(1, min(4, (os.cpu_count() or 1) // 2))
        self._pool = ThreadPoolExecutor(threads, f"millrace-{name}", initializer=_step_back)
        self._count = 0

    async def run(self, check: Callable[[], T]) -> T:
        """Return the result of a function that a thread calls. Raises Busy."""
        if self._count >= WAITING_MAX:
            raise Busy  # mutant: checks-bounded
        self._count += 1
        work = asyncio.get_running_loop().run_in_executor(self._pool, check)
        work.add_done_callback(self._over)
        return await work

    def _over(self, work: asyncio.Future[T]) -> None:
        self._count -= 1
        if not work.cancelled():
            work.exception()  # of a check whose client has left, too

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class PasswordChecks:
    """Checks of passwords. Owner: the event loop; `close` must follow."""

    def __init__(self) -> None:
        self._threads = CheckThreads("password")
        self._secret = secrets.token_bytes(32)
        #: HMACs of user, password and credential, the one that was used last at the end.
        self._known: dict[bytes, None] = {}

    async def is_right(self, user: str, password: str, credential: bytes, fits: Callable[[], bool]) -> bool:
        """Return whether `fits` says so, for which a thread calls it unless the answer is known.

        `credential`: bytes that are others once the user's password is another. Raises Busy.
        """
        parts = (user.encode(), password.encode(), credential)
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        mark = hmac.digest(self._secret, text, "sha256")
        if mark in self._known:
            self._known[mark] = self._known.pop(mark)
            return True
        if not await self._threads.run(fits):  # mutant: wrong-password-not-known
            return False
        self._known[mark] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return True

    def close(self) -> None:
        self._threads.close()


def _step_back() -> None:
    with contextlib.suppress(OSError, AttributeError):  # only Linux has priorities of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
