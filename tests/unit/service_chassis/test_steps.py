"""Long work in steps: each in a turn of its own, an error ends it, and it can be given up or finished at once."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Generator

import pytest
from service_chassis import shared_turns
from service_chassis.steps import Steps, TaskSteps


class Work:
    """Work of three steps, and the turns of the loop in which they were taken."""

    def __init__(self) -> None:
        self.turn = 0
        self.taken: list[int] = []
        self.failures: list[Exception] = []
        self.given_up: list[str] = []

    def steps(self, error: Exception | None = None) -> Generator[None, None, Callable[[], None]]:
        for _ in range(3):
            self.taken.append(self.turn)
            yield
        if error is not None:
            raise error
        return lambda: self.given_up.append("what was begun")

    def begin(self, error: Exception | None = None) -> Steps:
        return Steps(asyncio.get_running_loop(), self.steps(error), self.failures.append)

    async def play(self, turns: int = 20) -> None:
        for _ in range(turns):
            self.turn += 1
            await asyncio.sleep(0)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(shared_turns, "TURN_S", 0.0)  # one step a turn, however fast this machine is
    return Work()


async def test_each_step_is_in_a_later_turn(work: Work) -> None:
    work.begin()
    assert work.taken == []
    await work.play()
    assert len(set(work.taken)) == 3
    assert min(work.taken) > 0


async def test_an_error_of_a_step_is_the_end(work: Work) -> None:
    error = ValueError("broken")
    steps = work.begin(error)
    await work.play()
    assert (len(work.taken), work.failures) == (3, [error])
    steps.finish()
    steps.give_up()
    assert (work.failures, work.given_up) == ([error], [])


async def test_work_that_is_given_up_takes_no_further_step(work: Work) -> None:
    steps = work.begin()
    while not work.taken:
        await work.play(1)
    steps.give_up()
    await work.play()
    assert (len(work.taken), work.given_up) == (1, [])


async def test_work_that_has_ended_gives_up_what_it_has_begun(work: Work) -> None:
    steps = work.begin()
    await work.play()
    steps.give_up()
    assert work.given_up == ["what was begun"]


async def test_all_steps_are_taken_at_once_to_finish(work: Work) -> None:
    steps = work.begin()
    steps.finish()
    assert work.taken == [0, 0, 0]
    await work.play()
    assert len(work.taken) == 3


async def test_work_of_one_step(work: Work) -> None:
    error = ValueError("broken")

    def fail() -> None:
        raise error

    done: list[int] = []
    loop = asyncio.get_running_loop()
    for step in (lambda: done.append(work.turn), fail):
        Steps.of_one(loop, step, work.failures.append)
    assert done == []
    await work.play()
    assert (len(done), work.failures) == (1, [error])


async def test_work_is_gone_when_it_has_ended(work: Work) -> None:
    ended, given_up = work.begin(), work.begin()
    gone = [weakref.ref(ended), weakref.ref(given_up)]
    given_up.give_up()
    await work.play()
    gc.disable()
    try:
        del ended, given_up
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize(("counts", "turns"), [((1, 1, 1), 1), ((3, 3), 2), ((2, 5, 1, 1, 1), 2), ((1, 1), 0)])
async def test_a_task_waits_after_a_step_of_elements(work: Work, counts: tuple[int, ...], turns: int) -> None:
    waits: list[int] = []

    async def run() -> None:
        steps = TaskSteps(3)
        for elements in counts:
            before = work.turn
            await steps.count(elements)
            if work.turn > before:
                waits.append(elements)

    task = asyncio.create_task(run())
    await work.play()
    await task
    assert len(waits) == turns


async def test_tasks_begin_in_turns(work: Work) -> None:
    begun: list[int] = []

    async def run() -> None:
        await TaskSteps(1).begin()
        begun.append(work.turn)

    tasks: list[asyncio.Task[None]] = [asyncio.create_task(run()) for _ in range(5)]
    await work.play()
    await asyncio.gather(*tasks)
    assert len(set(begun)) == 5
