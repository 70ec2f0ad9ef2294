"""Waits of tests for events that nobody signals. Their limit is far above any standstill of a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["until", "until_async"]

#: Seconds after which a wait fails: less than the time limit of a test.
TIMEOUT_S = 100.0
_PAUSE_S = 0.01


def until(
    holds: Callable[[], object],
    what: Callable[[], object] = lambda: "it did not happen in time",
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Wait until a condition holds; `what` describes in the failure the state instead."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(_PAUSE_S)


async def until_async(holds: Callable[[], object]) -> None:
    """Wait until a condition holds, while the event loop turns."""
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110 (nobody signals it)
            await asyncio.sleep(_PAUSE_S)
