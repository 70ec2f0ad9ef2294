"""The end of `millrace up` and of programs with a `Broker()`, at any moment and of every kind, under a load.

After each round no process, no listener and no lock is left, and the next round starts on the same folder and port. At
the end every acknowledged record is there once, and no folder is left.
"""

import contextlib
import fcntl
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from millrace.ports import Reservation

PARTITIONS = 3
CLEAN_MARKER = ".kafka_cleanshutdown"
LAYOUTS = ((), ("--processes",), ("--gateways", "2"))
#: Ends of `millrace up` that ask for a stop, and those that kill.
ORDERLY = ("stop", "interrupt twice", "hang up", "signal to all")
KILLING = ("kill the supervisor", "kill all")
#: Ends of a program that has forked; its child lives until the round after the next start.
FORKING = ("fork and close", "fork and kill")
_WITHOUT_A_HANDLER = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)

PROGRAM = """
import os, signal, sys, time
import millrace
port, data_dir, end = int(sys.argv[1]), sys.argv[2], sys.argv[3]
broker = millrace.Broker(kafka_port=port, data_dir=data_dir, topics="orders:{partitions}").start()
child = os.fork()
if child == 0:
    signal.pause()
print("ready", child, flush=True)
sys.stdin.readline()
if end == "fork and kill":
    os.kill(os.getpid(), signal.SIGKILL)
broker.close()
"""


class World:
    """The data folder, the port, and the mark of every process of all rounds."""

    def __init__(self, folder, port):
        self.data_dir, self.temporary = folder / "data", folder / "t"
        self.temporary.mkdir()
        self.port = port
        self.mark = f"MILLRACE_TEST_MARK={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.environment = {**os.environ, name: value, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"}
        self.log = (folder / "log").open("w+b")
        #: Children of forking programs that still live.
        self.forks = []

    def processes(self, but=()):
        """Return the processes of the rounds, without the living children of forks."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_ours = self.mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                if is_ours and int(folder.name) not in (*self.forks, *but):
                    found.append(int(folder.name))
        return found

    def until_all_ended(self, timeout_s=120.0):
        deadline = time.monotonic() + timeout_s
        while left := self.processes():
            assert time.monotonic() < deadline, (left, self.tail())
            time.sleep(0.02)

    def tail(self):
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 6000))
        return self.log.read().decode(errors="replace")

    def end_forks(self):
        for pid in self.forks:
            os.kill(pid, signal.SIGKILL)
        self.forks.clear()

    def spawn(self, arguments):
        """Start `millrace up` in a new terminal; return it and the terminal's other end."""
        master, slave = pty.openpty()

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        command = [sys.executable, "-m", "millrace", "up", "--kafka-port", str(self.port), "--http-port", "0"]
        process = subprocess.Popen(
            [*command, "--data-dir", str(self.data_dir), "--topics", f"orders:{PARTITIONS}", *arguments],
            stdin=slave, stdout=subprocess.PIPE, stderr=self.log, env=self.environment, preexec_fn=own_terminal,
        )  # fmt: skip
        os.close(slave)
        return process, master


def _end_up(world, process, terminal, kind):
    if kind == "stop":
        process.terminate()
    elif kind == "interrupt twice":
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
    elif kind == "hang up":
        os.close(terminal.pop())
        process.send_signal(signal.SIGHUP)
    else:
        number = signal.SIGTERM if kind == "signal to all" else signal.SIGKILL
        targets = [process.pid] if kind == "kill the supervisor" else [*world.processes(), process.pid]
        for pid in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _round_of_up(world, chance, kind, wait):
    process, master = world.spawn(chance.choice(LAYOUTS))
    terminal = [master]
    try:
        was_ready = chance.random() < 0.6
        if was_ready:
            assert process.stdout.readline().startswith(b"ready "), world.tail()
            wait(chance.uniform(0, 0.5))
        else:
            time.sleep(chance.uniform(0, 2.5))
        _end_up(world, process, terminal, kind)
        status = process.wait(120)
        world.until_all_ended()
        if kind in ORDERLY:
            assert status == 0 or (not was_ready and status in _WITHOUT_A_HANDLER), (status, world.tail())
            if was_ready:
                assert (world.data_dir / CLEAN_MARKER).exists(), world.tail()
                assert list(world.temporary.iterdir()) == []
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for descriptor in terminal:
            os.close(descriptor)
    return was_ready


def _round_of_a_fork(world, chance, kind, wait):
    program = PROGRAM.format(partitions=PARTITIONS)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(world.port), str(world.data_dir), kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=world.log, env=world.environment,
    ) as process:  # fmt: skip
        line = process.stdout.readline().split()
        assert line[:1] == [b"ready"], world.tail()
        world.forks.append(int(line[1]))
        wait(chance.uniform(0, 0.5))
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(120) == (0 if kind == "fork and close" else -signal.SIGKILL), world.tail()
    if kind == "fork and close":
        assert (world.data_dir / CLEAN_MARKER).exists()
    world.until_all_ended()
    return True


def _ends(tmp_path, rounds, start_load, check_once, seed=1):
    chance = random.Random(seed)
    kinds = [*ORDERLY, *KILLING, *FORKING]
    counts = Counter()
    with Reservation("localhost", 0) as reserved:
        world = World(tmp_path, reserved.address.port)
        bootstrap = str(reserved.address)
        load = start_load(
            bootstrap, "orders", PARTITIONS, pause_s=0.01,
            **{"message.timeout.ms": 3_000_000, "reconnect.backoff.max.ms": 200},
        )  # fmt: skip

        def wait(seconds):
            before = len(load.acknowledged)
            time.sleep(seconds)
            counts["records acknowledged while it served"] += len(load.acknowledged) - before

        try:
            for number in range(rounds):
                kind = kinds[number % len(kinds)]
                old_forks = list(world.forks)
                whole = _round_of_a_fork if kind in FORKING else _round_of_up
                counts["ready"] += whole(world, chance, kind, wait)
                counts[kind] += 1
                for pid in old_forks:  # they lived through a whole round of another process
                    os.kill(pid, signal.SIGKILL)
                    world.forks.remove(pid)
            world.end_forks()
            process, master = world.spawn(())
            try:
                assert process.stdout.readline().startswith(b"ready "), world.tail()
                load.until_acknowledged(100, 120)
                load.stop()
                assert load.fatal == []
                found = check_once(load, bootstrap, "orders", PARTITIONS, world.data_dir)
            finally:
                process.terminate()
                status = process.wait(120)
                process.stdout.close()
                os.close(master)
            assert status == 0
            world.until_all_ended()
            assert list(world.temporary.iterdir()) == []
        finally:
            world.end_forks()
            for pid in world.processes():
                os.kill(pid, signal.SIGKILL)
    return found, counts


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nothing_is_left_of_ends_of_every_kind(tmp_path, start_load, check_once, figures, scaled):
    kinds = (*ORDERLY, *KILLING, *FORKING)
    rounds = max(len(kinds), scaled(200))
    found, counts = _ends(tmp_path, rounds, start_load, check_once, seed=2)
    figures(
        f"{rounds} ends at random moments, {counts['ready']} of them after it was ready; {len(found)} records, "
        "0 lost, 0 twice; no process, listener, lock or folder left"
    )
    assert len(found) >= 100
    assert min(counts[kind] for kind in kinds) == rounds // len(kinds)
