"""The thread of conversions: allowances, pauses, abandoned work and the end."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable

import pytest
from gateway_svc.fetching.conversions import Allowance, Conversions
from gateway_svc.fetching.message_sets import (
    PRODUCED_BYTES_MAX,
    PRODUCED_RECORDS_MAX,
    SET_BYTES_MAX,
    batches_of,
)
from protocol_lib.records.compression import Codec, DecompressedTooLarge
from protocol_lib.records.conversion import down_convert
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import Record
from service_chassis.time_slices import SLICE_S, Abandoned

from tests.support.waiting import until_async

EMPTY = Record(0, -1, None, None)


class Call:
    def __init__(self) -> None:
        self.abandon: Callable[[], None] | None = None
        self.failures: list[Exception] = []

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


@pytest.fixture
async def conversions() -> AsyncIterator[Conversions]:
    conversions = Conversions(asyncio.get_running_loop())
    yield conversions
    conversions.close()


def allowance() -> Allowance:
    return Allowance(PRODUCED_BYTES_MAX, PRODUCED_RECORDS_MAX)


def produced(count: int, codec: Codec = Codec.GZIP) -> bytes:
    return build_message_set((Record(n, -1, None, None) for n in range(count)), magic=0, codec=codec)


async def test_the_result_and_a_failure(conversions: Conversions) -> None:
    call, results = Call(), []
    for inline in (True, False):
        conversions.run(call, lambda _: 7, results.append, allowance(), inline=inline)
        conversions.run(call, lambda _: 1 // 0, results.append, allowance(), inline=inline)
        await until_async(lambda: not conversions.count)
    assert results == [7, 7]
    assert [type(failure) for failure in call.failures] == [ZeroDivisionError] * 2
    assert call.abandon is None


async def test_abandoned_work_does_not_begin_and_is_let_go(conversions: Conversions) -> None:
    busy, begun, results, released = threading.Event(), [], [], []
    conversions.run(Call(), lambda _: busy.wait(), results.append, allowance(), inline=False)
    gone = Call()
    for _ in range(3):
        conversions.run(
            gone,
            begun.append,
            results.append,
            allowance(),
            inline=False,
            release=lambda: released.append(1),
        )
        assert gone.abandon is not None
        gone.abandon()
    busy.set()
    await until_async(lambda: not conversions.count)
    assert (begun, results, gone.failures, released) == ([], [True], [], [1, 1, 1])


async def test_abandoned_work_ends_with_the_next_pause(conversions: Conversions) -> None:
    call, results, passed, entered = Call(), [], [], threading.Event()

    def work(allowed: Allowance) -> None:
        while True:
            passed.append(1)
            allowed.pause()
            entered.set()

    conversions.run(call, work, results.append, allowance(), inline=False)
    await until_async(entered.is_set)
    assert call.abandon is not None
    call.abandon()
    await until_async(lambda: not conversions.count)
    assert (results, call.failures) == ([], [])
    assert passed


async def test_a_stop_abandons_everything() -> None:
    conversions, entered, ended, results = Conversions(asyncio.get_running_loop()), threading.Event(), [], []

    def work(allowed: Allowance) -> None:
        try:
            while True:
                entered.set()
                allowed.pause()
        except Abandoned:
            ended.append(1)
            raise

    for _ in range(3):
        conversions.run(Call(), work, results.append, allowance(), inline=False)
    await until_async(entered.is_set)
    conversions.close()
    await until_async(lambda: bool(ended))
    await until_async(lambda: not conversions.count)
    assert (len(ended), results) == (1, [])


async def test_sets_between_which_the_client_leaves_are_not_converted() -> None:
    allowed = allowance()
    allowed.is_abandoned = True
    with pytest.raises(Abandoned):
        batches_of([produced(1)], allowed, {})


def test_the_sets_of_a_request_share_an_allowance() -> None:
    sets = [produced(5), produced(5), produced(1), produced(1)]
    _, outcomes = batches_of(sets, Allowance(PRODUCED_BYTES_MAX, 10), {})
    assert {index: outcome.error_code for index, outcome in outcomes.items()} == {2: 10, 3: 10}
    large = build_message_set([Record(0, -1, None, bytes(SET_BYTES_MAX - 100))], magic=1, codec=Codec.LZ4)
    batches, outcomes = batches_of([large] * 3, allowance(), {})
    assert [bool(batch) for batch in batches] == [True, True, False]
    assert outcomes[2].error_code == 10


def test_refused_sets_are_not_converted() -> None:
    refused = batches_of([b"?" * 40], allowance(), {})[1]
    assert refused[0].error_code == 2
    assert batches_of([produced(5)], allowance(), refused) == ([b""], refused)


def test_a_conversion_lets_the_event_loop_go_on() -> None:
    """Between two pauses there are SLICE_S of processor time and one record, or one call that frees the lock."""
    gaps: list[float] = []

    class Watched(Allowance):
        def pause(self) -> None:
            now = time.thread_time()
            gaps.append(now - self.paused_at)
            super().pause()
            self.paused_at = time.thread_time()

    allowed = Watched(PRODUCED_BYTES_MAX, PRODUCED_RECORDS_MAX)
    allowed.paused_at, allowed.slice_end = time.thread_time(), 0.0
    batches_of([produced(20_000, Codec.NONE)], allowed, {})
    assert len(gaps) > 20
    gaps.sort()
    assert gaps[len(gaps) * 9 // 10] < 10 * SLICE_S


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_memory_holds_bytes_and_no_records(codec: Codec) -> None:
    count = 20_000
    given = produced(count, codec)
    body = len(produced(count, Codec.NONE))
    tracemalloc.start()
    try:
        ((batch,), _) = batches_of([given], allowance(), {})
        _, up = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        down_convert(batch, 1)
        _, down = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A record as an object takes 200 bytes; the bytes of a set are there a few times.
    assert up < 4 * body
    assert down < 6 * body


def test_an_answer_ends_before_the_batch_that_is_too_much() -> None:
    _, outcomes = batches_of([produced(10)], Allowance(1000, 9), {})
    assert outcomes[0].error_code == 10
    ((batch,), _) = batches_of([produced(10)], allowance(), {})
    limit = len(down_convert(batch, 1))
    assert down_convert(batch + batch, 1, each=Allowance(1 << 20, 19)) == down_convert(batch, 1)
    assert len(down_convert(batch + batch, 1, each=Allowance(1 << 20, 20))) == 2 * limit
    with pytest.raises(DecompressedTooLarge):
        down_convert(batch, 1, each=Allowance(1 << 20, 9))
    with pytest.raises(DecompressedTooLarge):
        down_convert(batch, 1, each=Allowance(9 * 26, 20))
