"""The time of all processes that a process has started."""

import os
import subprocess
import sys
import threading
import time

from processes import metered

#: A program that ignores the end of its child, which uses the processor for a while and then sleeps for longer.
BUSY = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True); time.sleep(0.4)"
IGNORED = "import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
PARENT = f"{IGNORED}; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_the_time_of_processes_that_a_thread_started_counts_also_when_they_have_ended():
    """Spark's JVM starts the processes of Python in threads that run tasks, and their parent ignores their end."""
    with metered(os.getpid()) as used:
        thread = threading.Thread(target=subprocess.run, args=([sys.executable, "-c", PARENT],))
        thread.start()
        thread.join()
        found = used()
        assert 0.1 <= found <= 2
        own = time.process_time()
        while time.process_time() < own + 0.05:
            pass
        assert used() == found
