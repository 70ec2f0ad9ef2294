"""`Broker()` in programs that fork, in several threads, and under MILLRACE_* variables."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading

import millrace
import pytest

from tests.support.waiting import until
from tests.unit.millrace.conftest import is_alive

CLEAN_MARKER = ".kafka_cleanshutdown"


_FORKED = """
import os, signal, socket, sys, time
import millrace
broker = millrace.Broker(data_dir=sys.argv[1], admin={admin}).start()
host, port = broker.kafka_address
client = socket.create_connection(broker.kafka_address)
own = socket.create_server(("127.0.0.1", 0))
time.sleep(0.2)
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.write(write_end, b"x")
    signal.pause()
os.read(read_end, 1)
left = [os.readlink(f"/proc/{{child}}/fd/{{name}}") for name in os.listdir(f"/proc/{{child}}/fd")]
print(sum(each.startswith(sys.argv[1]) for each in left), flush=True)
print(os.readlink(f"/proc/{{child}}/fd/{{own.fileno()}}").startswith("socket:"), flush=True)
"""


def _forked(tmp_path, then, admin=False):
    """Run a program that forks while it has a broker. The child lives on."""
    command = [sys.executable, "-c", _FORKED.format(admin=admin) + then, str(tmp_path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_fork_that_lives_on_keeps_no_lock_and_no_port(tmp_path):
    program = _forked(
        tmp_path,
        "broker.close()\n"
        "print(client.recv(1), flush=True)\n"  # the child's copy of the broker's end would keep it open
        "print(socket.socket().connect_ex((host, port)) != 0, flush=True)\n"
        "millrace.Broker(data_dir=sys.argv[1]).start().close()\n"
        "os.kill(child, 9)\n",
    )
    assert program.communicate(timeout=100)[0].splitlines() == ["0", "True", "b''", "True"]
    assert program.returncode == 0


def test_a_fork_does_not_keep_admin_api_when_its_program_is_killed(tmp_path):
    program = _forked(
        tmp_path,
        "print(child, *broker._supervisor.pids().values(), flush=True)\nos.kill(os.getpid(), 9)\n",
        admin=True,
    )
    *_, pids = (program.stdout.readline() for _ in range(3))  # the child keeps the pipe open
    program.wait(100)
    program.stdout.close()
    child, admin = map(int, pids.split())
    try:
        until(lambda: not is_alive(admin))
    finally:
        os.kill(child, 9)


def test_without_hooks_the_lock_and_the_port_are_given_up_at_the_close(tmp_path, monkeypatch):
    """A fork made by C code runs no hook of Python. It holds copies of the descriptors."""
    with millrace.Broker(data_dir=tmp_path) as broker:
        address = broker.kafka_address
        copies = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                copies.append(os.dup(int(name)))
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 5)
        with millrace.Broker(data_dir=tmp_path):
            pass
    finally:
        for copy in copies:
            os.close(copy)


def test_variables_apply_unless_an_argument_is_given(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MILLRACE_TOPICS", "fromenv:1")
    monkeypatch.setenv("MILLRACE_LOG_LEVEL", "info")
    monkeypatch.setenv("MILLRACE_LOG_FORMAT", "json")
    with millrace.Broker(data_dir=tmp_path / "a") as broker:
        assert (broker.data_dir / "fromenv-0").is_dir()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert "storage is ready" in [line["event"] for line in lines]
    with millrace.Broker(data_dir=tmp_path / "b", topics="given:1", log_level="error", log_format="text") as broker:
        assert [each.name for each in broker.data_dir.glob("*-0")] == ["given-0"]
    assert capfd.readouterr().err == ""


def test_admin_api_logs_like_the_broker(capfd, monkeypatch):
    with millrace.Broker(admin=True):
        pass
    assert capfd.readouterr().err == ""
    with millrace.Broker(admin=True, log_level="info", log_format="json"):
        pass
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert {line["service"] for line in lines} == {"broker", "admin-api"}


def test_of_threads_that_start_one_broker_one_starts_it(tmp_path):
    broker = millrace.Broker(data_dir=tmp_path)
    together, outcomes = threading.Barrier(4), []

    def start():
        together.wait()
        try:
            outcomes.append(broker.start())
        except RuntimeError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(map(str, outcomes)) == sorted([str(broker), *3 * ["the broker runs already"]])
    broker.close()
    assert (tmp_path / CLEAN_MARKER).exists()
