import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
import uvloop
from prometheus_client import CollectorRegistry
from service_chassis import loop_lag
from service_chassis.loop_lag import OBSERVE_S


class _PlayedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still unless the test moves it."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def played() -> Iterator[_PlayedLoop]:
    loop = _PlayedLoop()
    yield loop
    loop.close()


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def _observe(
    loop: asyncio.AbstractEventLoop, registry: CollectorRegistry, every_s: float = OBSERVE_S
) -> Callable[[], None]:
    async def begin() -> Callable[[], None]:
        return loop_lag.observe(registry, every_s)

    return loop.run_until_complete(begin())


def test_each_observation_is_the_lateness_of_a_timer(played: _PlayedLoop) -> None:
    registry = CollectorRegistry()
    end = _observe(played, registry)
    for step in (OBSERVE_S, OBSERVE_S + 0.75, OBSERVE_S / 8, OBSERVE_S / 8):
        played.now += step
        _turn(played)
    assert registry.get_sample_value("millrace_event_loop_lag_seconds_count") == 3
    assert registry.get_sample_value("millrace_event_loop_lag_seconds_sum") == pytest.approx(0.75)
    assert registry.get_sample_value("millrace_event_loop_lag_seconds_bucket", {"le": "0.5"}) == 2
    assert registry.get_sample_value("millrace_event_loop_lag_seconds_bucket", {"le": "1.0"}) == 3
    end()
    played.now += 10
    _turn(played)
    assert registry.get_sample_value("millrace_event_loop_lag_seconds_count") == 3


@pytest.mark.blocks_event_loop("the stall is what the metric is to show")
def test_a_blocked_loop_of_the_broker_shows() -> None:
    registry, loop = CollectorRegistry(), uvloop.new_event_loop()
    end = _observe(loop, registry, 0.1)

    async def block() -> None:
        threading.Event().wait(0.3)
        await asyncio.sleep(0.001)

    loop.run_until_complete(block())
    end()
    loop.close()
    lag = registry.get_sample_value("millrace_event_loop_lag_seconds_sum")
    assert lag is not None
    assert lag >= 0.19
