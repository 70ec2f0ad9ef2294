"""The time limit of CreateTopics, DeleteTopics and DeleteRecords."""

import asyncio

import pytest
from gateway_svc.requests import time_limit
from gateway_svc.requests.time_limit import TimeLimit


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch):
    monkeypatch.setattr(time_limit, "GRACE_S", 0.01)


async def _work(go_on: asyncio.Event, done: list[str]) -> str:
    await go_on.wait()
    done.append("done")
    return "done"


async def test_the_result_in_time():
    go_on = asyncio.Event()
    go_on.set()
    assert await TimeLimit(60_000).within(lambda: _work(go_on, []), lambda: "late") == "done"


@pytest.mark.parametrize("timeout_ms", [1, 0, -1])
async def test_work_that_is_late_goes_on(timeout_ms):
    go_on, done = asyncio.Event(), []
    assert await TimeLimit(timeout_ms).within(lambda: _work(go_on, done), lambda: "late") == "late"
    assert done == []
    go_on.set()
    while not done:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["done"]
    assert set() == time_limit._ABANDONED


async def test_a_request_that_is_cut_ends_its_work():
    done = []
    waiting = asyncio.create_task(TimeLimit(60_000).within(lambda: _work(asyncio.Event(), done), lambda: "late"))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_in_time_is_raised():
    async def fail() -> str:
        raise ValueError("storage")

    with pytest.raises(ValueError, match="storage"):
        await TimeLimit(60_000).within(fail, lambda: "late")


async def test_work_that_comes_after_the_time_does_not_begin(monkeypatch):
    monkeypatch.setattr(time_limit, "GRACE_S", 0.0)
    assert await TimeLimit(0).within(lambda: pytest.fail("it began"), lambda: "late") == "late"
