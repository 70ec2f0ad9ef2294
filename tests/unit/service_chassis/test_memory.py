import subprocess
import sys

import pytest

#: Lets go of every block of 40 MB but a few scattered ones, waits, and prints how many MB it has less by then.
PROGRAM = """
import asyncio, gc, os, time
from service_chassis import memory

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

class Block:
    def __init__(self):
        self.data, self.itself = bytes(4000), self

async def main():
    gc.set_threshold(1_000_000)
    memory.give_back_when_idle(0.2)
    worked_until = time.process_time() + 0.3
    while time.process_time() < worked_until:
        pass
    blocks = [KIND for _ in range(10_000)]
    blocks[:] = blocks[::500]
    before = resident()
    deadline = time.monotonic() + 10
    while WAITED and resident() > before - 20 and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    print(before - resident())

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
@pytest.mark.parametrize("kind", ["bytes(4000)", "Block()"])
@pytest.mark.parametrize("waited", [True, False])
def test_an_idle_service_gives_back_what_it_let_go_of(waited, kind):
    program = PROGRAM.replace("WAITED", str(waited)).replace("KIND", kind)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert ended.stderr == ""
    assert (float(ended.stdout) > 20) == waited


#: Has much that is not let go of, works twice, and prints how often all of it was looked through.
LONG_TO_FIND = """
import asyncio, gc, time
from service_chassis import memory

async def main():
    kept = [[] for _ in range(1_000_000)]
    looked = []
    gc.callbacks.append(lambda phase, found: looked.append(found["generation"]) if phase == "start" else None)
    gc.set_threshold(1_000_000)
    memory.give_back_when_idle(0.2)
    for _ in range(2):
        worked_until = time.process_time() + 0.3
        while time.process_time() < worked_until:
            pass
        await asyncio.sleep(0.7)
    print(looked.count(2), len(kept))

asyncio.run(main())
"""


def test_what_takes_long_to_find_is_looked_for_seldom():
    ended = subprocess.run([sys.executable, "-c", LONG_TO_FIND], capture_output=True, text=True, timeout=30)
    assert (ended.stderr, ended.stdout) == ("", "1 1000000\n")


#: Prints the page faults of five megabytes before a service runs and in it, in a separate process: it cannot be undone.
FAULTS = """
import resource
from service_chassis import lifecycle

def faults(pieces):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        held = [bytearray(1_000_000) for _ in range(pieces)]
        del held
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 50

async def serve(stop):
    faults(5)
    print(faults(5))

print(faults(5))
lifecycle.run(serve)
"""


def test_no_service_maps_its_megabytes_again():
    output = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout
    before, after = output.split()
    assert int(before) > 500  # five megabytes are some 1,200 pages
    assert int(after) < 10
