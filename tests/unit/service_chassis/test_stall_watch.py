import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from service_chassis import stall_watch
from service_chassis.stall_watch import Stall, StallWatch

pytestmark = pytest.mark.blocks_event_loop("the watch is to find these stalls")

#: Seconds after which a stall is given up that the watch does not find: on a busy machine it takes its time.
_GIVEN_UP_S = 60.0
_COMPUTED_S = 0.3
_NEW_LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop]


_Found = list[Stall]


def _stalls(
    work: Callable[[_Found], object],
    new_event_loop: Callable[[], asyncio.AbstractEventLoop],
    kind: type[StallWatch] = StallWatch,
) -> _Found:
    """Return the stalls of a loop that has turned, does the work in one callback and turns again."""
    found: _Found = []

    async def callback() -> None:
        await asyncio.sleep(3 * stall_watch.PROBE_S)
        work(found)
        await asyncio.sleep(3 * stall_watch.PROBE_S)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        watch = kind(runner.get_loop(), found.append)
        runner.run(callback())
        watch.close()
    return found


def _sleep(found: _Found) -> None:
    end = time.monotonic() + _GIVEN_UP_S
    while not found and time.monotonic() < end:
        time.sleep(0.2)


def _compute(found: _Found) -> None:
    end = time.monotonic() + _GIVEN_UP_S
    while not found and time.monotonic() < end:
        pass


def _compute_a_while() -> None:
    end = time.thread_time() + _COMPUTED_S
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("new_event_loop", _NEW_LOOPS)
@pytest.mark.parametrize("work", [_sleep, _compute])
def test_a_stall_is_reported_once_with_the_stack(
    work: Callable[[_Found], object], new_event_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    (stall,) = _stalls(work, new_event_loop)
    assert stall.blocked_s >= stall_watch.LIMIT_S
    calls = [line.rpartition(" in ")[2] for line in stall.stack.splitlines() if line.startswith("  File")]
    assert calls == ["async callback", work.__name__]


@pytest.mark.parametrize("new_event_loop", _NEW_LOOPS)
def test_many_short_callbacks_are_no_stall(new_event_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    found: _Found = []

    async def run() -> None:
        for _ in range(100):
            time.sleep(0.005)  # noqa: ASYNC251 a short callback
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        watch = StallWatch(runner.get_loop(), found.append)
        runner.run(run())
        watch.close()
    assert found == []


def test_another_thread_that_holds_the_global_lock_is_no_stall() -> None:
    """The loop's thread sleeps in a lock at that time, as in a system call."""
    ended = threading.Event()

    def wait_for_other(_: _Found) -> None:
        other = threading.Thread(target=_compute_a_while)
        other.start()
        other.join()
        ended.set()

    assert _stalls(wait_for_other, asyncio.SelectorEventLoop) == []
    assert ended.is_set()


def test_garbage_collection_is_no_stall() -> None:
    """The tests' processes have more objects than any service."""

    def collect(_: _Found) -> None:
        end = time.thread_time() + _COMPUTED_S
        while time.thread_time() < end:
            gc.collect()

    assert _stalls(collect, asyncio.SelectorEventLoop) == []


def test_a_collection_while_the_watch_looks_at_the_threads_is_no_stall() -> None:
    begins, collected, looks = threading.Event(), threading.Event(), threading.Event()

    class Interrupted(StallWatch):
        def _times(self, *, look: bool = False) -> stall_watch._Times:
            found = super()._times(look=look)
            if look:
                looks.set()
            elif not collected.is_set():
                begins.set()
                collected.wait(_GIVEN_UP_S)
            return found

    def collect(_: _Found) -> None:
        begins.wait(_GIVEN_UP_S)
        end = time.thread_time() + _COMPUTED_S
        while time.thread_time() < end:
            gc.collect()
        collected.set()
        looks.wait(_GIVEN_UP_S)

    assert _stalls(collect, asyncio.SelectorEventLoop, Interrupted) == []


def test_time_on_the_run_queue_does_not_count() -> None:
    times = stall_watch._Times
    before = times(at=9.5, until=10.0, running=1.0, queued=5.0, others_running=7.0, others_queued=3.0)
    assert stall_watch._blocked_s(before, times(10.5, 11.0, 1.125, 5.375, 7.0, 3.0)) == 0.125
    assert stall_watch._blocked_s(before, times(10.5, 11.0, 1.0, 5.0, 7.0, 3.0)) == 0.5
    assert stall_watch._blocked_s(before, times(10.5, 11.0, 1.0, 5.0, 7.25, 3.125)) == 0.125
    assert stall_watch._blocked_s(before, times(10.5, 11.0, 1.25, 5.0, 17.0, 3.0)) == 0.25
    assert stall_watch._blocked_s(before, times(10.5, 11.0, 1.0, 5.0, 7.0, 3.0, wanted=True)) == 0.0
    assert stall_watch._blocked_s(before, times(10.5, 11.0, 1.125, 5.0, 7.0, 3.0, wanted=True)) == 0.125
    assert stall_watch._blocked_s(before._replace(until=10.25), times(10.5, 11.0, 1.0, 5.0, 7.0, 3.0)) == 0.25


@pytest.fixture
def busy_processor() -> Iterator[None]:
    """One processor for this thread and those that it starts, and for three processes that never rest."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    busy = [subprocess.Popen([sys.executable, "-Sc", "print(flush=True)\nwhile 1: pass"], stdout=-1) for _ in range(3)]
    for process in busy:
        assert process.stdout is not None
        process.stdout.readline()
    yield
    for process in busy:
        process.kill()
        process.communicate()
    os.sched_setaffinity(0, allowed)


def test_a_loop_that_gets_no_processor_is_no_stall(busy_processor: None) -> None:
    took_s = []

    def compute_shortly(_: _Found) -> None:
        began, end = time.monotonic(), time.thread_time() + stall_watch.LIMIT_S / 2
        while time.thread_time() < end:
            pass
        took_s.append(time.monotonic() - began)

    found = [stall for _ in range(5) for stall in _stalls(compute_shortly, asyncio.SelectorEventLoop)]
    assert max(took_s) > stall_watch.LIMIT_S
    assert found == []


def test_a_loop_that_computes_among_others_is_a_stall(busy_processor: None) -> None:
    (stall,) = _stalls(_compute, asyncio.SelectorEventLoop)
    assert stall.blocked_s >= stall_watch.LIMIT_S


def test_the_file_gets_a_line_a_stall(tmp_path: Path) -> None:
    report = stall_watch.append_to_file(str(tmp_path / "stalls"))
    report(Stall(0.25, "a\nb\n"))
    report(Stall(0.5, "c\n"))
    lines = [json.loads(line) for line in (tmp_path / "stalls").read_text().splitlines()]
    assert [(each["pid"], each["blocked_s"], each["stack"]) for each in lines] == [
        (os.getpid(), 0.25, "a\nb\n"),
        (os.getpid(), 0.5, "c\n"),
    ]


def test_watches_that_come_and_go_leave_one_callback_among_those_of_the_collector() -> None:
    def callbacks() -> list[object]:
        return [
            each for each in gc.callbacks if type(getattr(each, "__self__", None)).__module__ == stall_watch.__name__
        ]

    seen = []
    for _ in range(3):
        loop = asyncio.new_event_loop()
        watch = StallWatch(loop, print)
        seen.append(callbacks())
        watch.close()
        loop.close()
        seen.append(callbacks())
    assert [len(each) for each in seen] == [1] * 6
