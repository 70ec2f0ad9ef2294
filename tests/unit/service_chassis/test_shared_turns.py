"""Long requests share the turns of an event loop: their number does not make a turn longer."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
from service_chassis.shared_turns import STARTS_EVERY, STEPS_MAX, TURN_S, SharedTurns, shared_turns

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")


class Turns:
    """Turns of the running loop whose clock each step moves, and the steps of each turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.shared = SharedTurns(asyncio.get_running_loop(), lambda: self.now)
        self.taken: list[list[str]] = []

    def step(self, name: str, seconds: float, then: Callable[[], None] | None = None) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds
            self.taken[-1].append(name)
            if then is not None:
                then()

        return run

    async def play(self) -> list[list[str]]:
        """Return the steps of each turn until none is left."""
        while len(self.shared):
            self.taken.append([])
            await asyncio.sleep(0)
        return self.taken


async def test_a_turn_ends_when_its_time_is_over() -> None:
    turns = Turns()
    for name in "abcde":
        turns.shared.soon(turns.step(name, TURN_S / 2))
    assert await turns.play() == [["a", "b"], ["c", "d"], ["e"]]


async def test_one_step_of_any_length_is_in_each_turn() -> None:
    turns = Turns()
    for name in "abc":
        turns.shared.soon(turns.step(name, 10 * TURN_S))
    assert await turns.play() == [["a"], ["b"], ["c"]]


async def test_a_request_goes_on_after_the_others() -> None:
    turns = Turns()
    for name in "ab":
        again = turns.step(name.upper(), TURN_S)
        turns.shared.soon(turns.step(name, TURN_S, lambda again=again: turns.shared.soon(again)))  # type: ignore[misc]
    assert await turns.play() == [["a"], ["b"], ["A"], ["B"]]


async def test_requests_begin_when_few_are_in_progress() -> None:
    turns = Turns()
    for number in range(STEPS_MAX + 1):
        turns.shared.soon(turns.step(f"step {number}", TURN_S))
    turns.shared.start_soon(turns.step("start", TURN_S))
    steps = [[f"step {number}"] for number in range(STEPS_MAX + 1)]
    assert await turns.play() == [*steps[:2], ["start"], *steps[2:]]


async def test_requests_begin_however_many_are_in_progress() -> None:
    turns = Turns()
    for _ in range(10 * STARTS_EVERY):
        turns.shared.soon(turns.step("step", TURN_S))
    turns.shared.start_soon(turns.step("start", TURN_S))
    assert (await turns.play()).index(["start"]) == STARTS_EVERY


async def test_one_request_a_turn_begins_at_once() -> None:
    turns = Turns()
    assert [turns.shared.admits(), turns.shared.admits()] == [True, False]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    turns.shared.soon(turns.step("step", TURN_S))
    assert not turns.shared.admits()
    await turns.play()


async def test_a_first_step_is_admitted_once() -> None:
    turns = Turns()
    asked: list[bool] = []
    turns.shared.start_soon(lambda: asked.extend([turns.shared.admits(), turns.shared.admits()]))
    await turns.play()
    assert asked == [True, False]


async def test_tasks_go_on_one_in_each_turn() -> None:
    turns = shared_turns(asyncio.get_running_loop())
    seen: list[int] = []
    turn = 0

    async def work() -> None:
        await turns.first()
        for _ in range(3):
            seen.append(turn)
            await turns.next()

    tasks = [asyncio.create_task(work()) for _ in range(20)]
    while not all(task.done() for task in tasks):
        turn += 1
        await asyncio.sleep(0)
    assert len(seen) == 60
    assert max(map(seen.count, seen)) <= 2


async def test_a_cancelled_task_takes_no_turn() -> None:
    turns = shared_turns(asyncio.get_running_loop())
    assert turns.admits()
    cancelled = asyncio.create_task(turns.next())
    other = asyncio.create_task(turns.next())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait_for(other, 60)
    assert len(turns) == 0


async def test_a_step_that_fails_does_not_keep_others_from_theirs() -> None:
    turns = Turns()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    error = ValueError("broken")

    def fail() -> None:
        raise error

    turns.shared.soon(fail)
    turns.shared.soon(turns.step("other", TURN_S))
    assert await turns.play() == [["other"]]
    assert failures == [error]


def test_turns_end_with_their_loop() -> None:
    loop = asyncio.new_event_loop()
    gone = weakref.ref(loop)
    assert shared_turns(loop) is shared_turns(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None
