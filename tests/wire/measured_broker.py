"""A broker in a separate process that measures the cost of requests: `python measured_broker.py FOLDER`.

It prints its port, then answers two lines of its standard input. After "begin" it frees the memory that can be freed,
and starts to measure. After "end" it prints {"step_ms", "memory_mb", "unreachable", "what"}.

A step is one callback of the event loop. The clock is the processor time of the loop's thread, so other processes do
not count. They still slow down the caches, so the time is divided by the slowness of a fixed piece of work. Memory is
the highest growth of the resident set since "begin". The collector is off until then. "unreachable" is the number of
objects that only refer to each other, which therefore stay until a collection.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import re
import sys
import time
from asyncio import events
from pathlib import Path
from typing import Any

from gateway_svc.app import Gateway
from millrace.direct import DirectSettings, direct_storage
from service_chassis import lifecycle, logs
from storage_svc.app import Storage

_MB = 1 << 20
#: See `reference_ms`.
REFERENCE_MS = 4.5


def reference_ms() -> float:
    """Return the processor time of a fixed piece of work, which takes REFERENCE_MS on a quiet machine."""
    begin = time.thread_time()
    rows = [(str(number), number, [number]) for number in range(20_000)]
    made = {name: each for name, _, each in rows}
    assert len(made) == len(rows)
    return (time.thread_time() - begin) * 1000


class Steps:
    """The longest callback since `begin`."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.what = ""
        run = events.Handle._run
        clock = time.thread_time

        def measured(handle: Any) -> None:
            before = clock()
            run(handle)
            taken = clock() - before
            if taken > self.longest:
                self.longest = taken
                self.what = repr(handle)

        events.Handle._run = measured  # type: ignore[method-assign]


def _memory(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def main(folder: str) -> None:
    steps = Steps()
    settings = DirectSettings(
        data_dir=Path(folder),
        gateway_data_dir=folder,
        listeners="EXTERNAL://localhost:0",
        topics="wide:200",
        gateway_name="test",
        stop_deadline_s=3,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=3,
        auto_create_topics_enable=False,
    )
    core = await Storage.start(settings)
    gateway = await Gateway.start(settings, direct_storage(core))
    lifecycle.freeze_start_objects()
    print(json.dumps({"port": gateway.addresses["EXTERNAL"][1]}), flush=True)
    trim = ctypes.CDLL(None).malloc_trim
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    base = 0
    while line := await lines.readline():
        if line.strip() == b"begin":
            gc.collect()
            gc.disable()
            trim(0)
            _forget_peak()
            base = _memory("VmRSS")
            print("{}", flush=True)
            steps.longest, steps.what = -1.0, ""
            # The rest of this step counts for nothing.
            await asyncio.sleep(0)
            steps.longest = 0.0
        else:
            memory = _memory("VmHWM") - base
            longest, what = steps.longest, steps.what
            unreachable = gc.collect()
            slowness = max(1.0, reference_ms() / REFERENCE_MS)
            measured = {"step_ms": round(longest * 1000 / slowness, 1), "memory_mb": round(memory / _MB, 1)}
            print(json.dumps({**measured, "unreachable": unreachable, "what": what}), flush=True)
    await gateway.stop()
    await core.stop()


if __name__ == "__main__":
    with logs.configured("test", "error", "json"):
        asyncio.run(main(sys.argv[1]))
