"""Deadlines that are pushed back: exact for the silent, few wake-ups for the living, on a loop whose time is played."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_svc.coordinator.hosting.timers import Timers

RESOLUTION_S = 1e-9


class Handle:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class PlayedLoop:
    """The part of an event loop that timers need."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._heap: list[tuple[float, int, Handle]] = []
        self._count = 0
        #: The times at which it was woken by a handle.
        self.woken: set[float] = set()

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> Handle:
        handle = Handle(lambda: call(*arguments))
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, handle))
        return handle

    def play(self, seconds: float) -> None:
        until = self._now + seconds
        # Like event loops, it fires handles that are due within its clock's resolution: sums of floats are not exact.
        while self._heap and self._heap[0][0] <= until + RESOLUTION_S:
            when, _, handle = heapq.heappop(self._heap)
            self._now = max(self._now, when)
            if handle.call is not None:
                self.woken.add(self._now)
                handle.call()
        self._now = until

    def stand_still(self, seconds: float) -> None:
        """Let time pass without firing anything."""
        self._now += seconds


class World:
    def __init__(self) -> None:
        self.loop = PlayedLoop()
        self.fired: list[tuple[str, float]] = []
        self.timers: Timers[str] = Timers(self.loop, self._fired)  # type: ignore[arg-type]

    def _fired(self, key: str) -> None:
        self.fired.append((key, self.loop.time() - 1000))


def test_it_fires_at_its_deadline_once() -> None:
    world = World()
    world.timers.set("a", 600)
    world.timers.set("b", 80)
    world.loop.play(10)
    assert world.fired == [("b", pytest.approx(0.08)), ("a", pytest.approx(0.6))]
    assert len(world.timers) == 0


def test_those_who_live_on_share_their_wake_ups() -> None:
    world = World()
    names = [str(number) for number in range(100)]
    for _ in range(20):
        for name in names:
            world.timers.set(name, 6000)
            world.loop.play(0.01)
    assert world.fired == []
    assert len(world.loop.woken) < 80  # of 20 s: half of them look at the loop's delay


def test_what_does_not_run_is_not_pushed_back() -> None:
    world = World()
    world.timers.set("cancelled", 100)
    world.timers.set("fired", 100)
    world.timers.set("closed", 900)
    cancelled, fired, closed = (world.timers.running(each) for each in ("cancelled", "fired", "closed"))
    assert cancelled is not None
    assert fired is not None
    assert closed is not None
    world.timers.cancel("cancelled")
    world.timers.set("cancelled", 100)  # another one of the same name
    world.loop.play(0.5)
    world.timers.close()
    assert [world.timers.push_back(each, 1000) for each in (cancelled, fired, closed)] == [False, False, False]
    world.loop.play(10)
    assert [key for key, _ in world.fired] == ["fired", "cancelled"]


def test_after_a_standstill_what_was_sent_counts_first() -> None:
    world = World()
    world.timers.set("living", 6000)
    world.timers.set("dead", 6000)
    world.timers.set("due at its end", 7900)
    world.loop.play(1)
    world.loop.stand_still(7)
    world.loop.play(0.1)
    assert world.fired == []
    world.timers.set("living", 6000)  # its heartbeat has been read
    world.loop.play(4)
    assert [(key, round(at, 1)) for key, at in world.fired] == [("dead", 10.0), ("due at its end", 10.0)]
    world.loop.play(10)
    assert [(key, round(at, 1)) for key, at in world.fired[2:]] == [("living", 14.1)]


def test_a_loop_that_is_a_little_late_delays_no_end() -> None:
    world = World()
    world.timers.set("a", 1000)
    world.loop.play(0.9)
    world.loop.stand_still(0.5)
    world.loop.play(0)
    assert [(key, round(at, 1)) for key, at in world.fired] == [("a", 1.4)]


def test_nothing_wakes_the_loop_without_deadlines() -> None:
    world = World()
    world.timers.set("a", 100)
    world.loop.play(2)
    woken = len(world.loop.woken)
    world.loop.play(100)
    assert len(world.loop.woken) == woken


_STEPS = st.one_of(
    st.tuples(st.sampled_from(["set", "push back"]), st.sampled_from("abc"), st.integers(0, 3000)),
    st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
    st.tuples(st.just("play"), st.just(""), st.integers(1, 2000)),
)


@given(st.lists(_STEPS, max_size=40))
def test_each_fires_at_the_last_deadline_it_was_given(steps: list[tuple[str, str, int]]) -> None:
    world = World()
    due: dict[str, float] = {}
    expected: list[tuple[str, float]] = []
    for step, key, milliseconds in steps:
        now = world.loop.time() - 1000
        match step:
            case "set":
                world.timers.set(key, milliseconds)
                due[key] = now + milliseconds / 1000
            case "push back":
                deadline = world.timers.running(key)
                assert (deadline is None) == (key not in due)
                if deadline is not None and world.timers.push_back(deadline, milliseconds):
                    due[key] = now + milliseconds / 1000
            case "cancel":
                world.timers.cancel(key)
                due.pop(key, None)
            case _:
                world.loop.play(milliseconds / 1000)
                over = [each for each, at in due.items() if at <= now + milliseconds / 1000 + RESOLUTION_S]
                expected += [(each, due.pop(each)) for each in over]
    assert sorted((key, round(at, 6)) for key, at in world.fired) == sorted((key, round(at, 6)) for key, at in expected)
