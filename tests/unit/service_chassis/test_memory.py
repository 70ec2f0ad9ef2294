import subprocess
import sys

import pytest

#: Frees every block of 40 MB but a few scattered ones, waits, and prints how many MB it has less by then.
PROGRAM = """
import asyncio, os, time
from service_chassis import memory

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

async def main():
    memory.give_back_when_idle(0.2)
    worked_until = time.process_time() + 0.3
    while time.process_time() < worked_until:
        pass
    blocks = [bytes(4000) for _ in range(10_000)]
    blocks[:] = blocks[::500]
    before = resident()
    deadline = time.monotonic() + 10
    while WAITED and resident() > before - 20 and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    print(before - resident())

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
@pytest.mark.parametrize("waited", [True, False])
def test_an_idle_service_gives_back_what_it_freed(waited):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("WAITED", str(waited))], capture_output=True, text=True, timeout=30
    )
    assert ended.stderr == ""
    assert (float(ended.stdout) > 20) == waited
