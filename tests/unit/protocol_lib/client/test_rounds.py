import asyncio

from protocol_lib.client.rounds import Rounds


async def test_a_round_begins_when_it_is_woken_or_due():
    waits = iter([None, 0.0, 0.01, None])
    times: list[float] = []
    over = asyncio.Event()

    def begin_round(now: float) -> float | None:
        times.append(now)
        if len(times) == 4:
            over.set()
        return next(waits)

    rounds = Rounds(begin_round)
    rounds.start()
    await asyncio.sleep(0.02)
    assert len(times) == 1
    rounds.wake()
    await asyncio.wait_for(over.wait(), 10)
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

    rounds = Rounds(lambda _: None)
    rounds.help(work("short", 0))
    rounds.help(work("long", 60))
    await asyncio.sleep(0.02)
    assert ended == ["short done", "short over"]
    await rounds.stop()
    assert ended[2:] == ["long over"]
