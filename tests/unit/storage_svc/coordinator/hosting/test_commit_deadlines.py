"""Commits without an answer: answered in time, once, in the order they came."""

from __future__ import annotations

import asyncio
from functools import partial

from storage_svc.coordinator.hosting.commit_deadlines import CommitDeadlines


class HeldClock(asyncio.SelectorEventLoop):
    """An event loop whose time goes on when it is answered to."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def go_to(self, now: float) -> None:
        self.now = now
        self.run_until_complete(asyncio.sleep(0))


def test_late_commits_are_answered_once_and_in_order() -> None:
    answered: list[tuple[str, int]] = []

    def note(name: str, code: int) -> None:
        answered.append((name, code))

    loop = HeldClock()
    deadlines = CommitDeadlines(loop, 50)
    answers = {name: deadlines.watch(partial(note, name)) for name in "abc"}
    answers["b"](0)
    assert answered == [("b", 0)]
    loop.go_to(0.03)
    answers["d"] = deadlines.watch(partial(note, "d"))
    loop.go_to(0.049)
    assert answered == [("b", 0)]
    loop.go_to(0.051)
    assert answered == [("b", 0), ("a", 7), ("c", 7)]
    answers["a"](0)
    answers["d"](56)
    assert answered == [("b", 0), ("a", 7), ("c", 7), ("d", 56)]
    late = deadlines.watch(partial(note, "e"))
    loop.go_to(0.081)
    assert len(answered) == 4
    loop.go_to(0.102)
    late(0)
    assert answered[4:] == [("e", 7)]
    loop.close()
