"""Rates of clients that send as fast as they may, and the time that requests take, by clocks that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker_contract.quotas import PRODUCER_BYTE_RATE, Quotas, entity
from gateway_svc.requests import call as calls
from gateway_svc.requests.call import Call
from gateway_svc.requests.client_quotas import ClientQuotas
from gateway_svc.requests.dispatch import _timed
from protocol_lib.api import ApiKey

from tests.unit.gateway_svc.requests.test_path import beat
from tests.unit.gateway_svc.rig import FakePolicy, Rig

LIMIT = 1_000_000
#: Seconds that a request takes, and that storage keeps the question of a gateway process.
SERVICE_S, ASKED_S = 0.004, 0.333


class Cluster:
    """Processes of one gateway, with a client of one user at each, and the storage that exchanges their rates."""

    def __init__(self, processes: int) -> None:
        self.now = 1000.0
        quotas = Quotas()
        quotas.set(entity([("user", "alice")]), {PRODUCER_BYTE_RATE: float(LIMIT)})
        self.processes = [ClientQuotas(quotas, lambda: self.now) for _ in range(processes)]
        self.reported: list[dict[Any, float]] = [{} for _ in range(processes)]

    def exchange(self, number: int) -> None:
        """Answer the question of a process, and have it ask the next one."""
        others: dict[Any, float] = {}
        for each, rates in enumerate(self.reported):
            for counted, rate in rates.items() if each != number else ():
                others[counted] = others.get(counted, 0.0) + rate
        self.processes[number].set_others(others, len(self.processes) - 1)
        self.reported[number] = dict(self.processes[number].exchanged_rates())

    def run(self, size: int, begin_s: float, seconds: float) -> float:
        """Return the bytes in a second that are produced, after the first `begin_s`."""
        call = SimpleNamespace(
            subject=SimpleNamespace(principal="User:alice"),
            client_id="c",
            owed_s=0.0,
            route=SimpleNamespace(api_key=ApiKey.PRODUCE),
            size=size,
        )
        order, began, total = itertools.count(), self.now, 0
        due: list[tuple[float, int, int, bool]] = []
        for number in range(len(self.processes)):
            heapq.heappush(due, (began + 0.01 * number, next(order), number, True))
            heapq.heappush(due, (began + 0.1 * number, next(order), number, False))
        while True:
            self.now, _, number, is_request = heapq.heappop(due)
            if self.now > began + begin_s + seconds:
                return total / seconds
            if is_request:
                throttle_ms = self.processes[number].throttle_ms(cast(Any, call), size)
                total += size if self.now > began + begin_s else 0
                after_s = SERVICE_S + throttle_ms / 1000
            else:
                self.exchange(number)
                after_s = ASKED_S
            heapq.heappush(due, (self.now + after_s, next(order), number, is_request))


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("size", [50_000, 200_000])
def test_the_rate_is_the_limit_for_any_number_of_processes(processes: int, size: int) -> None:
    """Over thirty windows: the bytes of ten seconds may come at once, and again when their sample has ended."""
    assert 0.95 * LIMIT < Cluster(processes).run(size, 22, 330) < 1.05 * LIMIT


class Clock:
    """The clock of calls. Times have no fractions, so they add up exactly."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(calls, "time", SimpleNamespace(perf_counter=made))
    return made


class Spending(FakePolicy):
    """A policy that notes the time that each request has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.spent_s: list[float] = []

    def throttle_ms(self, call: Call, size: int) -> int:
        self.spent_s.append(call.spent_s)
        return 0


def test_the_begin_and_the_answer_of_a_request_count_and_its_wait_does_not(clock: Clock) -> None:
    answers: list[Any] = []

    class Groups:
        def heartbeat(self, request: Any, done: Any) -> None:
            clock.now += 2
            answers.append(done)

    policy = Spending()
    rig = Rig(policy, groups=Groups())
    rig.receive(beat())
    (call,) = rig.pipeline.order
    assert isinstance(call, Call)
    clock.now += 100
    call.subject.complete = lambda response, error: (_passed(clock, 3), (response, error))[1]
    answers[0](SimpleNamespace(error_code=0))
    assert policy.spent_s == [5.0]


def _passed(clock: Clock, seconds: float) -> None:
    clock.now += seconds


async def test_the_steps_of_a_task_count_and_their_waits_do_not(clock: Clock) -> None:
    rig = Rig(FakePolicy())
    call, _ = rig.dispatcher.open(rig.client, rig.parts.admission, beat()[4:])
    clock.now += 1
    call.suspend()
    spent_s = []

    async def work() -> None:
        clock.now += 2
        try:
            asyncio.get_running_loop().call_soon(_passed, clock, 100)
            await asyncio.sleep(0)
            clock.now += 4
            asyncio.get_running_loop().call_soon(_passed, clock, 1000)
            await asyncio.Event().wait()
        finally:
            clock.now += 8
            spent_s.append(call.spent_s)

    task = asyncio.ensure_future(_timed(call, work()))
    while clock.now < 1000:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (spent_s, call.spent_s) == ([15.0], 15.0)
