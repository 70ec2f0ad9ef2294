import asyncio

import pytest
from protocol_lib.client.rounds import Rounds


def raise_it(fault: Exception) -> None:
    raise fault


async def test_a_round_begins_when_it_is_woken_or_due():
    waits = iter([None, 0.0, 0.01, None])
    times: list[float] = []
    over = asyncio.Event()

    def begin_round(now: float) -> float | None:
        times.append(now)
        if len(times) == 4:
            over.set()
        return next(waits)

    rounds = Rounds(begin_round, raise_it)
    rounds.start()
    await asyncio.sleep(0.02)
    assert len(times) == 1
    rounds.wake()
    await asyncio.wait_for(over.wait(), 60)
    await rounds.stop()
    rounds.wake()
    await asyncio.sleep(0)
    assert len(times) == 4


async def test_what_is_under_way_is_cancelled_by_the_stop():
    ended: list[str] = []

    async def work(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            ended.append(f"{name} done")
        finally:
            ended.append(f"{name} over")

    rounds = Rounds(lambda _: None, raise_it)
    rounds.help(work("short", 0))
    rounds.help(work("long", 60))
    await asyncio.sleep(0.02)
    assert ended == ["short done", "short over"]
    await rounds.stop()
    assert ended[2:] == ["long over"]


@pytest.mark.parametrize("fails", ["round", "task"])
async def test_a_failure_is_reported_once_and_ends_the_rounds(fails):
    faults: list[str] = []
    begun = 0

    def begin_round(_now: float) -> float | None:
        nonlocal begun
        begun += 1
        if fails == "round":
            raise ValueError("a bug")
        return None

    async def work() -> None:
        raise ValueError("a bug")

    rounds = Rounds(begin_round, lambda fault: faults.append(str(fault)))
    rounds.start()
    await asyncio.sleep(0)
    if fails == "task":
        rounds.help(work())
    await asyncio.sleep(0.01)
    assert (faults, begun) == (["a bug"], 1)
    rounds.wake()
    await asyncio.sleep(0.01)
    assert (faults, begun) == (["a bug"], 1)
    await rounds.stop()
