"""The allocator's settings, measured in a separate process: they cannot be reset."""

import subprocess
import sys

PROGRAM = """
import resource
from service_chassis.allocation import keep_freed_memory

def faults(pieces):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        held = [bytearray(1_000_000) for _ in range(pieces)]
        del held
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 50

before = faults(5)
kept = keep_freed_memory()
faults(5)
print(before, kept, faults(5))
"""


def test_megabytes_are_not_mapped_anew():
    output = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    before, kept, after = output.split()
    assert kept == "True"
    assert int(before) > 500  # five megabytes are some 1,200 pages
    assert int(after) < 10
