"""The loop does not sleep where more is likely to come, and lets more and more occasions pass where none does."""

from __future__ import annotations

import asyncio
import selectors

import pytest
from gateway_svc.clients.idle_polling import PASSED_MAX, IdlePolling

#: A window that outlasts every test, and one that ends with the first turn of the loop.
ENDLESS_US, SHORT_US = 60_000_000, 1

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")


async def until_asleep(polling: IdlePolling) -> None:
    while polling.is_polling:  # noqa: ASYNC110 — it looks once a turn of the loop
        await asyncio.sleep(0)


async def occasions(polling: IdlePolling, count: int) -> list[int]:
    """Return the numbers of the answers, of `count` without a request after them, after which the loop polled."""
    tried = []
    for number in range(count):
        polling.expect_more()
        if polling.is_polling:
            tried.append(number)
        await until_asleep(polling)
    return tried


async def test_looks_for_more_until_the_time_is_over() -> None:
    polling = IdlePolling(asyncio.get_running_loop(), ENDLESS_US)
    polling.expect_more()
    for _ in range(10):
        await asyncio.sleep(0)
        assert polling.is_polling
    short = IdlePolling(asyncio.get_running_loop(), SHORT_US)
    short.expect_more()
    assert short.is_polling
    await asyncio.wait_for(until_asleep(short), 60)


async def test_twice_as_many_occasions_pass_after_each_try_in_vain() -> None:
    polling = IdlePolling(asyncio.get_running_loop(), SHORT_US)
    assert await occasions(polling, 32) == [0, 2, 6, 14, 30]


async def test_lets_no_more_than_so_many_pass() -> None:
    polling = IdlePolling(asyncio.get_running_loop(), SHORT_US)
    tried = await occasions(polling, 2000)
    assert tried[-1] - tried[-2] == PASSED_MAX + 1


async def test_an_occasion_while_it_looks_makes_it_look_again_at_once() -> None:
    polling = IdlePolling(asyncio.get_running_loop(), SHORT_US)
    await occasions(polling, 14)
    polling.expect_more()
    assert polling.is_polling
    polling.expect_more()
    await until_asleep(polling)
    polling.expect_more()
    assert polling.is_polling
    await until_asleep(polling)


async def test_never_looks_without_a_window() -> None:
    polling = IdlePolling(asyncio.get_running_loop(), 0)
    assert await occasions(polling, 1000) == []


class _Noted(selectors.DefaultSelector):
    """Notes whether the loop would sleep, in the first hundred turns."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: asyncio.Future[bool] | None = None
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.sleeps is None or self.sleeps.done():
            return super().select(timeout)
        self._turns += 1
        if timeout != 0 or self._turns == 100:
            self.sleeps.set_result(timeout != 0)
        return super().select(0)


async def _sleeps(noted: _Noted, window_us: int) -> bool:
    loop = asyncio.get_running_loop()
    polling = IdlePolling(loop, window_us)
    polling.expect_more()
    noted.sleeps = loop.create_future()
    return await noted.sleeps


@pytest.mark.parametrize(("window_us", "sleeps"), [(ENDLESS_US, False), (0, True)])
def test_the_loop_asks_its_sockets_and_does_not_wait_for_them(window_us: int, sleeps: bool) -> None:
    noted = _Noted()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(noted)) as runner:
        assert runner.run(_sleeps(noted, window_us)) is sleeps
