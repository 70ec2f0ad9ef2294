"""How `millrace up` ends: signals, terminals, ports and folders, with real processes."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from millrace import folders
from millrace.folders import _remove_if_abandoned, private_folder, remove_abandoned
from millrace.ports import AddressError, Reservation
from service_chassis.stop_signals import GAP_S
from up_process import RunningUp, UpFailedError

from tests.support.frozen import freeze
from tests.support.waiting import until
from tests.unit.millrace.conftest import is_alive

ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
CLEAN_MARKER = ".kafka_cleanshutdown"


def _pending(pid):
    """Return the signals that a process has not received yet."""
    fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["ShdPnd"], 16)


def _events(log):
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line["event"] for line in lines]


@pytest.mark.parametrize(
    "numbers",
    [
        (signal.SIGHUP, signal.SIGHUP),
        (signal.SIGINT, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP, signal.SIGHUP),
    ],
    ids=lambda numbers: "+".join(number.name for number in numbers),
)
def test_doubled_signals_stop_in_order(numbers, tmp_path):
    with RunningUp(*ANY_PORTS, "--data-dir", str(tmp_path), "--topics", "a:50") as up:
        for number in numbers:
            os.kill(up.pid, number)
            time.sleep(0.003)
        assert up.wait() == 0
        assert [event for event in _events(up.log()) if "killed" in event or "still" in event] == []
    assert (tmp_path / CLEAN_MARKER).exists()


def test_no_thread_but_one_that_waits_for_them_receives_the_signals():
    """Between a last check for signals and a wait, a handler of the main thread would come to nothing."""
    with RunningUp(*ANY_PORTS) as up:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        expected = sum(1 << (number - 1) for number in numbers)
        masks = []
        for status in Path(f"/proc/{up.pid}/task").glob("*/status"):
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
            masks.append(int(fields["SigBlk"], 16) & expected)
        assert sorted(masks) == [0] + [expected] * (len(masks) - 1)  # sigwait unblocks them for as long as it waits


def test_a_third_signal_kills_and_the_log_says_so(tmp_path):
    environment = {"MILLRACE_STOP_DEADLINE_S": "600"}
    with RunningUp(*ANY_PORTS, "--data-dir", str(tmp_path), environment=environment) as up:
        (broker,) = up.services()["broker"]
        freeze(broker)
        for _ in range(2):
            os.kill(up.pid, signal.SIGINT)
            until(lambda: not _pending(up.pid))
            time.sleep(GAP_S + 0.2)  # signals within GAP_S count once
            assert up.services()["broker"] == [broker]
        os.kill(up.pid, signal.SIGINT)
        assert up.wait() == 1
        events = _events(up.log())
        assert "still stopping; the next signal kills" in events
        assert events[-1] == "killed, asked three times"


def test_the_supervisor_waits_for_the_configured_deadline(tmp_path):
    environment = {"MILLRACE_STOP_DEADLINE_S": "0.5"}
    with RunningUp(*ANY_PORTS, "--data-dir", str(tmp_path), environment=environment) as up:
        (broker,) = up.services()["broker"]
        freeze(broker)
        assert up.stop() == 1
        assert _events(up.log())[-1] == "killed, did not stop within 4.5 s"


def test_signals_to_all_processes_leave_the_order_to_the_supervisor(tmp_path):
    """systemd signals all processes of a unit at once (KillMode=control-group), and again with SIGHUP."""
    with RunningUp(*ANY_PORTS, "--processes", "--data-dir", str(tmp_path)) as up:
        services = [pid for pids in up.services().values() for pid in pids]
        for number in (signal.SIGTERM, signal.SIGHUP):
            for pid in services:  # the supervisor last: its children get no help from its stop
                os.kill(pid, number)
        time.sleep(0.5)
        assert all(map(is_alive, services))
        os.kill(up.pid, signal.SIGTERM)
        assert up.wait() == 0
        stopped = [
            line["service"]
            for line in map(json.loads, filter(lambda line: line.startswith("{"), up.log().splitlines()))
            if line["event"] == "stopped"
        ]
        assert stopped == ["admin-api", "gateway-svc", "storage-svc"]
    assert (tmp_path / CLEAN_MARKER).exists()


def test_a_terminal_that_closes_stops_in_order(tmp_path):
    """bash passes SIGHUP on to its job, and the kernel sends another one to the foreground."""
    data_dir, log = tmp_path / "data", tmp_path / "log"
    command = f"{sys.executable} -m millrace up --kafka-port 0 --http-port 0 --data-dir {data_dir} --topics a:50"
    master, slave = pty.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal
    ) as shell:
        os.close(slave)
        os.write(master, f"{command} 2> {log}\n".encode())
        shown = b""
        while b"ready kafka=" not in shown:
            shown += os.read(master, 4096)
        (supervisor,) = _children(shell.pid)
        services = _children(supervisor)
        assert len(services) == 2
        os.close(master)
        until(lambda: not any(map(is_alive, (supervisor, *services))))
        shell.wait(60)
    assert (data_dir / CLEAN_MARKER).exists()
    assert [event for event in _events(log.read_text()) if "killed" in event] == []


def _children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nohup_is_obeyed(tmp_path):
    """A signal that was ignored at the start stays ignored, as after `nohup` and in a shell's background."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT)}
    try:
        up = RunningUp(*ANY_PORTS, "--data-dir", str(tmp_path)).start()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with contextlib.ExitStack() as stopped:
        stopped.callback(up.stop)
        services = up.services()
        for number in before:
            os.kill(up.pid, number)
        time.sleep(0.3)
        assert up.services() == services
        assert up.stop() == 0
        assert _events(up.log()).count("stopped") == 2


@pytest.mark.parametrize("layout", [(), ("--processes",)], ids=["combined", "separate"])
def test_a_stop_while_admin_api_starts(layout, tmp_path):
    up = RunningUp(*ANY_PORTS, "--data-dir", str(tmp_path), *layout)
    up.spawn()
    until(lambda: "admin-api" in up.services())
    services = [pid for pids in up.services().values() for pid in pids]
    assert up.stop() == 0
    assert (tmp_path / CLEAN_MARKER).exists()
    assert [pid for pid in services if is_alive(pid)] == []
    assert "killed" not in up.log()


@pytest.mark.parametrize("standard_output", ["/dev/full", "closed", "no reader"])
def test_standard_output_may_be_unwritable(standard_output, tmp_path):
    log = tmp_path / "log"
    redirection = {"/dev/full": ">/dev/full", "closed": ">&- <&-", "no reader": ""}[standard_output]
    command = f"exec {sys.executable} -m millrace up --kafka-port 0 --http-port 0 --data-dir {tmp_path}/data"
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            ["sh", "-c", f"{command} {redirection}"], stdout=subprocess.PIPE, stderr=log_file, start_new_session=True
        )
    process.stdout.close()
    try:
        until(lambda: _events(log.read_text()).count("starting") == 2)
        http = next(
            json.loads(line)["settings"]["admin_health_http"]
            for line in log.read_text().splitlines()
            if '"starting"' in line and '"admin_health_http"' in line
        )
        until(lambda: process.poll() is None and _answers(http))
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def _answers(address):
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return connection.recv(64).startswith(b"HTTP/1.1 200 ")
    return False


def test_of_two_starts_on_one_port_at_once_one_is_refused(tmp_path):
    with Reservation("localhost", 0) as free:
        port = str(free.address.port)
        arguments = ("--kafka-port", port, "--http-port", "0", "--gateways", "2")
        first = RunningUp(*arguments, "--data-dir", str(tmp_path / "a"))
        second = RunningUp(*arguments, "--data-dir", str(tmp_path / "b"))
        with contextlib.ExitStack() as stopped:
            for up in (first, second):
                up.spawn()
                stopped.callback(up.stop)
            refusals = []
            for up in (first, second):
                try:
                    up.await_ready()
                except UpFailedError:
                    refusals.append(up.log())
            assert refusals == [
                f"millrace up: --kafka-port: cannot listen at localhost:{port}: another start of Millrace "
                "has claimed it (its UDP port is in use)\n"
            ]


def test_a_claimed_port_is_claimed_once():
    with Reservation("localhost", 0, claim=True) as first:
        port = first.address.port
        with pytest.raises(AddressError, match=rf"cannot listen at localhost:{port}: another start of Millrace has"):
            Reservation("localhost", port, claim=True)
        with pytest.raises(AddressError, match="another start of Millrace has"):
            Reservation("0.0.0.0", port, claim=True)
        Reservation("localhost", port).close()
        with Reservation("localhost", 0, claim=True) as other:
            assert other.address.port != port
    Reservation("localhost", port, claim=True).close()


def test_the_next_start_removes_what_a_killed_one_left(tmp_path_factory, monkeypatch):
    tmp_path = tmp_path_factory.mktemp("t")  # short enough for a Unix socket below it
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with RunningUp(*ANY_PORTS, environment={"TMPDIR": str(tmp_path)}) as up:
        services = [pid for pids in up.services().values() for pid in pids]
        (folder,) = tmp_path.iterdir()
        for pid in services:
            freeze(pid)
        os.kill(up.pid, signal.SIGKILL)
        os.waitid(os.P_PID, up.pid, os.WEXITED | os.WNOWAIT)
        remove_abandoned()
        assert folder.exists()  # its services are still at it
        for pid in services:
            os.kill(pid, signal.SIGCONT)
        until(lambda: not any(map(is_alive, services)))
    assert folder.exists()
    found = []

    def removed():
        """Start until the last threads of the services have let go of their descriptors."""
        with private_folder() as (mine, _):
            remove_abandoned()
            found[:] = [entry != mine for entry in tmp_path.iterdir()]
        return found == [False]

    until(removed)
    assert list(tmp_path.iterdir()) == []


def test_only_our_own_abandoned_folders_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, mode in (("millrace-open", 0o755), ("millrace-bare", 0o700), ("other", 0o700)):
        (tmp_path / name).mkdir(mode=mode)
    (tmp_path / "millrace-open" / "lock").touch()
    (tmp_path / "other" / "lock").touch()
    (tmp_path / "millrace-link").symlink_to(tmp_path / "other")
    (tmp_path / "millrace-file").touch()
    before = sorted(tmp_path.rglob("*"))
    unfinished = tmp_path / "millrace-old"
    for name in ("millrace-old", "millrace-full"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "millrace-full" / "notes").touch()
    for name in ("millrace-old", "millrace-full"):
        os.utime(tmp_path / name, (0, 0))
    remove_abandoned()
    assert not unfinished.exists()
    full = [tmp_path / "millrace-full", tmp_path / "millrace-full" / "notes"]
    assert sorted(tmp_path.rglob("*")) == sorted([*before, *full])


def test_a_folder_that_goes_while_a_cleaner_looks_is_no_fault(tmp_path, monkeypatch):
    _remove_if_abandoned(tmp_path / "millrace-gone")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def goes_first(folder):
        seen.append(folder)
        folder.rmdir()
        _remove_if_abandoned(folder)

    (tmp_path / "millrace-going").mkdir(mode=0o700)
    monkeypatch.setattr(folders, "_remove_if_abandoned", goes_first)
    monkeypatch.setattr(folders, "_parents", lambda: {str(tmp_path)})
    remove_abandoned()
    assert seen == [tmp_path / "millrace-going"]


def test_a_folder_that_a_cleaner_takes_at_its_birth_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    flock, first = fcntl.flock, []

    def cleaned_before(descriptor, operation):
        if not first:
            first.append(True)
            monkeypatch.setattr(fcntl, "flock", flock)
            remove_abandoned()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", cleaned_before)
    with private_folder() as (folder, _):
        assert list(tmp_path.iterdir()) == [folder]
