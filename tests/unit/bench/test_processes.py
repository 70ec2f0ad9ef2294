"""The time of all processes that a process has started."""

import os
import subprocess
import sys
import threading

from processes import cpu_seconds, descendants

BUSY = "import time; print(flush=True)\nwhile time.process_time() < 0.15: pass\nprint(flush=True); input()"


def test_the_time_of_a_process_that_a_thread_started_counts_also_when_it_has_ended():
    """Spark's JVM starts the processes of Python in threads that run tasks."""
    before = cpu_seconds([os.getpid()])
    known = set(descendants(os.getpid()))
    found: list[tuple[set[int], float]] = []

    def start() -> None:
        with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.readline()
            new = set(descendants(os.getpid())) - known
            found.append((new - {process.pid}, cpu_seconds(new)))
            process.communicate(b"\n")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    ((others, used),) = found
    assert others == set()
    assert used >= 0.1
    assert cpu_seconds([os.getpid()]) - before >= 0.1
