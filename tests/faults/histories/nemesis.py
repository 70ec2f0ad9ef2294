"""Client programs and services of a running broker, which are killed and made to stand still at random."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from up_process import RunningUp

#: A service that was killed comes back, and a program ends, within this time.
BACK_TIMEOUT_S = 60.0
#: Time at the end in which no fault begins.
QUIET_S = 4.0
#: A client that stands still for this time finds its transaction aborted and its session ended.
PAUSE_MAX_S = 7.0
_ASSERTION = -signal.SIGABRT
_ROOT = Path(__file__).parents[3]
#: The environment of a program, with the roots of pytest's `pythonpath`: it finds what a test finds.
PROGRAM_ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{_ROOT / 'tests'}{os.pathsep}{_ROOT / 'bench'}"}


class Program:
    """A module that runs as a process: `arguments` are those of its first, second, … life."""

    def __init__(self, name: str, module: str, arguments: Callable[[int], Sequence[str]], log_path: Path) -> None:
        self.name = name
        self._command = [sys.executable, "-m", module]
        self._arguments = arguments
        self._log: IO[bytes] = log_path.open("ab")
        self._lives = 0
        self.start()

    def start(self) -> None:
        self._lives += 1
        command = [*self._command, *self._arguments(self._lives)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=self._log, cwd=_ROOT, env=PROGRAM_ENVIRONMENT
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        """Return whether it has ended by an assertion of librdkafka (docs/clients.md).

        Raises AssertionError if it has ended otherwise.
        """
        status = self._process.poll()
        assert status in (None, _ASSERTION), f"{self.name} has ended with {status}"
        return status is not None

    def kill(self) -> None:
        self.has_ended()
        self._process.kill()
        self._process.wait()

    def kill_and_start(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        """End it by SIGTERM. Raises AssertionError if it does not end, or fails."""
        self.has_ended()
        self._process.terminate()
        try:
            status = self._process.wait(2 * BACK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)  # it writes where its threads are
            time.sleep(0.2)
            raise AssertionError(f"{self.name} does not end") from None
        assert status in (0, _ASSERTION), f"{self.name} ends with {status}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        self._log.close()


def run_threads(targets: Mapping[str, Callable[[], None]]) -> None:
    """Run each target in a thread, and exit when all have ended; with status 3 at once if one raises."""
    faulthandler.register(signal.SIGUSR1)

    def failed(arguments: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(arguments)
        os._exit(3)

    threading.excepthook = failed
    threads = [threading.Thread(target=target, name=name) for name, target in targets.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)  # the interpreter would wait for clients of groups to leave them


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, with times of the monotonic clock in nanoseconds. Recovery may begin when it is over."""

    name: str
    began: int
    over: int
    hits_service: bool


class Nemesis:
    """Does one fault after the other to the services of a broker and to client programs."""

    def __init__(self, up: RunningUp, services: Sequence[str], programs: Sequence[Program], seed: int) -> None:
        self._up = up
        #: Services that are hit together: each alone, and all.
        self._victims: list[tuple[str, ...]] = [(service,) for service in services]
        if len(services) > 1:
            self._victims.append(tuple(services))
        self._programs = programs
        self._chance = random.Random(seed)
        self.faults: list[Fault] = []
        #: Programs that an assertion of librdkafka ended.
        self.client_assertions = 0

    def run(self, duration_s: float) -> None:
        """Do faults with short pauses, and none in the last seconds. All services and programs run afterwards."""
        # Kinds come in turns, in another order in each round, so that a short run has most of them.
        kinds: list[Callable[[], None]] = []
        end = time.monotonic() + duration_s
        while time.monotonic() < end - QUIET_S:
            time.sleep(self._chance.uniform(0.5, 2.5))
            if not kinds:
                kinds = [functools.partial(self._kill_services, victims) for victims in self._victims]
                kinds += [self._pause_services, self._client]
                self._chance.shuffle(kinds)
            kinds.pop()()
            for program in self._programs:
                if program.has_ended():
                    program.start()
                    self.client_assertions += 1
        time.sleep(max(QUIET_S / 2, end - time.monotonic()))

    def _kill_services(self, victims: Sequence[str]) -> None:
        killed_at = time.monotonic_ns()
        self._up.kill(*victims)
        self.faults.append(Fault(f"kill {' and '.join(victims)}", killed_at, killed_at, True))

    def _pause_services(self) -> None:
        victims = self._chance.choice(self._victims)
        running = self._up.services()
        began = time.monotonic_ns()
        self._pause([running[service][0] for service in victims], self._chance.uniform(0.3, 3))
        self.faults.append(Fault(f"pause {' and '.join(victims)}", began, time.monotonic_ns(), True))

    def _pause(self, pids: Sequence[int], duration_s: float) -> None:
        with contextlib.ExitStack() as stopped:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
                stopped.callback(os.kill, pid, signal.SIGCONT)
            time.sleep(duration_s)

    def _client(self) -> None:
        program = self._chance.choice(self._programs)
        began = time.monotonic_ns()
        if self._chance.random() < 0.6:
            program.kill_and_start()
            name = "kill"
        else:
            self._pause([program.pid], self._chance.choice([0.5, 1.5, PAUSE_MAX_S]))
            name = "pause"
        self.faults.append(Fault(f"{name} {program.name}", began, time.monotonic_ns(), False))
