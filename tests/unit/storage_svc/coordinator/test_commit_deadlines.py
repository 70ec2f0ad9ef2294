"""Commits without an answer: told in time, once, in the order they came."""

from __future__ import annotations

import asyncio
from functools import partial

from storage_svc.coordinator.commit_deadlines import CommitDeadlines


async def test_what_is_late_is_told_once_and_in_order() -> None:
    told: list[tuple[str, int]] = []

    def tell(name: str, code: int) -> None:
        told.append((name, code))

    deadlines = CommitDeadlines(asyncio.get_running_loop(), 50)
    answers = {name: deadlines.watch(partial(tell, name)) for name in "abc"}
    answers["b"](0)
    assert told == [("b", 0)]
    await asyncio.sleep(0.03)
    answers["d"] = deadlines.watch(partial(tell, "d"))
    while len(told) < 3:  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(0.005)
    assert told == [("b", 0), ("a", 7), ("c", 7)]
    answers["a"](0)
    answers["d"](56)
    assert told == [("b", 0), ("a", 7), ("c", 7), ("d", 56)]
    late = deadlines.watch(partial(tell, "e"))
    await asyncio.sleep(0.1)
    late(0)
    assert told[4:] == [("e", 7)]
