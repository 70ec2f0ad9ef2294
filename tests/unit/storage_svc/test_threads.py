"""The few threads of the event loop's default executor are left to work that does not wait while storage serves.

Other work has a comment, `# default threads: REASON`.
"""

import ast
import asyncio
import threading
from pathlib import Path

import storage_svc
from storage_svc.app import Storage
from storage_svc.log.disk.threads import Threads, end_idle
from storage_svc.settings import StorageSettings
from support.remarks import remark

from tests.support.waiting import until

_ROOT = Path(storage_svc.__file__).parent


def _is_default(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    executor = call.args[0] if call.args else None
    is_none = isinstance(executor, ast.Constant) and executor.value is None
    return name == "to_thread" or (name == "run_in_executor" and is_none)


def test_the_default_executor_is_left_to_work_that_does_not_wait() -> None:
    calls = [
        (path.name, call.lineno, remark(source, call.lineno, "default threads"))
        for path in _ROOT.rglob("*.py")
        for source in [path.read_text()]
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and _is_default(call)
    ]
    assert len(calls) > 5
    assert [call for call in calls if not call[2]] == []


async def test_work_that_hangs_holds_threads_of_its_purpose_only() -> None:
    hung, go_on = Threads("hung", 2), threading.Event()
    waiting = [hung.run(go_on.wait, 60) for _ in range(5)]
    assert await asyncio.wait_for(Threads("other", 1).run(pow, 2, 5), 60) == 32
    assert [each.done() for each in waiting] == [False] * 5
    go_on.set()
    assert await asyncio.gather(*waiting) == [True] * 5


async def test_idle_threads_end_with_the_storage_of_their_loop(tmp_path: Path) -> None:
    def of_another_loop() -> threading.Thread:
        return asyncio.run(_ran(others))

    async def _ran(threads: Threads) -> threading.Thread:
        return await threads.run(threading.current_thread)

    others = Threads("others", 1)
    other = await asyncio.to_thread(of_another_loop)
    storage = await Storage.start(StorageSettings(data_dir=tmp_path))
    assert await storage.logs.checkpoints.store()
    idle = await _ran(storage.logs.checkpoints._threads)
    await storage.stop()
    until(lambda: not idle.is_alive())
    assert other.is_alive()
    others.end()


async def test_threads_that_have_ended_begin_with_the_next_work() -> None:
    threads, go_on = Threads("again", 1), threading.Event()
    works = [threads.run(go_on.wait, 60), threads.run(pow, 2, 5)]
    end_idle(asyncio.get_running_loop())
    after = await threads.run(threading.current_thread)
    go_on.set()
    assert await asyncio.gather(*works) == [True, 32]
    threads.end(wait=True)
    assert not after.is_alive()
