"""Supervision, with real processes that stand where services would."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from millrace import liveness, supervisor
from millrace.child import Child, ServiceProcess
from millrace.liveness import Liveness
from millrace.ports import Reservation
from millrace.supervisor import ServiceFailedError, Supervisor

from tests.support.frozen import freeze
from tests.support.waiting import until

SERVICE = """
import http.server, os, signal, socket, sys, threading, time
name, port, trace, *behaviour = sys.argv[1:]
with open(trace, "a") as file:
    file.write(f"{name} start {os.getpid()}\\n")
    file.flush()
    if "fail" in behaviour:
        sys.exit(int(behaviour[1]))
    if "fail-at" in behaviour and open(trace).read().count(f"{name} start") == int(behaviour[1]):
        sys.exit(1)
    if "fail-again" in behaviour and open(trace).read().count(f"{name} start") > 1:
        sys.exit(78)
    if os.environ.get("MILLRACE_ADMIN_HTTP_SOCKETS"):
        for number in os.environ["MILLRACE_ADMIN_HTTP_SOCKETS"].split(","):
            def serve(listening=socket.socket(fileno=int(number))):
                listening.setblocking(True)
                while True:
                    listening.accept()[0].sendall(b"served")
            serving = threading.Thread(target=serve, daemon=True)
            {"fail-when-called", "hang"} & {*behaviour} or serving.start()
    if "hang" in behaviour:
        time.sleep(600)
    if "fail-when-called" in behaviour:
        while "client" not in open(trace).read():
            time.sleep(0.02)
        os.write(0, b"no storage")
        sys.exit(78)
    if "slow" in behaviour:
        time.sleep(float(behaviour[1]))
        file.write(f"{name} serves {os.getpid()}\\n")
        file.flush()
    if "serves-last" in behaviour:
        while open(trace).read().count("start") < int(behaviour[1]):
            time.sleep(0.02)
        file.write(f"{name} serves {os.getpid()}\\n")
        file.flush()
    stopped = threading.Event()

    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if "ill" in behaviour and self.path == "/healthz" else 200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Ready)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def asked_to_stop():
        asked = os.read(0, 1)
        file.write(f"{name} asked {os.getpid()}\\n" * ("trace-asked" in behaviour))
        file.flush()
        "deaf" in behaviour or stopped.set()

    threading.Thread(target=asked_to_stop, daemon=True).start()
    while not stopped.wait(0.02):
        pass
    file.write(f"{name} stop {os.getpid()}\\n")
"""


class Ensemble:
    """A supervisor running in a thread, and the output of its processes."""

    def __init__(self, folder, held, specification, stop_deadline_s=10.0):
        self._trace = folder / "trace"
        self._trace.touch()
        script = folder / "service.py"
        script.write_text(SERVICE)
        services = []
        for name, behaviour in specification.items():
            address = held.enter_context(Reservation("127.0.0.1", 0)).address
            command = (sys.executable, str(script), name, str(address.port), str(self._trace), *behaviour)
            if "last" in behaviour:
                self.clients = held.enter_context(Reservation("localhost", 0)).address
            clients = self.clients if "last" in behaviour else None
            settings = {"MILLRACE_LOG_FORMAT": "json"}
            services.append(ServiceProcess(name, settings, str(address), command=command, clients=clients))
        self.supervisor = Supervisor(services, stop_deadline_s)
        self.ready = threading.Event()
        self.error = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.supervisor.run(self.ready.set)
        except ServiceFailedError as error:
            self.error = error

    def client(self, host):
        """Return a connection to the process that starts last, and note it in the trace."""
        connection = socket.create_connection((host, self.clients.port), timeout=60)
        with self._trace.open("a") as file:
            file.write("client connected 0\n")
        return connection

    def join(self):
        self._thread.join(60)
        assert not self._thread.is_alive()

    def trace(self):
        return [line.rsplit(" ", 1)[0] for line in self._trace.read_text().splitlines()]


@pytest.fixture
def ensemble(tmp_path):
    with contextlib.ExitStack() as held:

        def start(specification, **options):
            made = Ensemble(tmp_path, held, specification, **options)
            held.callback(made.join)
            held.callback(made.supervisor.stop)
            return made

        yield start


def test_starts_all_and_stops_in_reverse_order(ensemble):
    made = ensemble({"storage": [], "gateway": [], "admin": []})
    assert made.ready.wait(60)
    assert sorted(made.supervisor.pids()) == ["admin", "gateway", "storage"]
    made.supervisor.stop()
    made.join()
    assert made.error is None
    assert sorted(made.trace()[:3]) == ["admin start", "gateway start", "storage start"]
    assert made.trace()[3:] == ["admin stop", "gateway stop", "storage stop"]
    assert made.supervisor.pids() == {}


def test_the_last_starts_when_the_others_are_ready(ensemble, monkeypatch):
    monkeypatch.setattr(supervisor, "_HELD_BACK_MAX_S", 60.0)
    made = ensemble({"broker": ["slow", "0.3"], "admin": ["last"]})
    until(lambda: "admin start" in made.trace())
    assert made.trace() == ["broker start", "broker serves", "admin start"]


def test_the_last_does_not_wait_for_long(ensemble, monkeypatch):
    monkeypatch.setattr(supervisor, "_HELD_BACK_MAX_S", 0.2)
    made = ensemble({"broker": ["serves-last", "2"], "admin": ["last"]})
    assert made.ready.wait(60)
    *started, serves = made.trace()
    assert (sorted(started), serves) == (["admin start", "broker start"], "broker serves")


def test_the_last_may_never_start(ensemble, monkeypatch):
    monkeypatch.setattr(supervisor, "_HELD_BACK_MAX_S", 60.0)
    made = ensemble({"broker": ["slow", "60"], "admin": ["last"]}, stop_deadline_s=0)
    monkeypatch.setattr(supervisor, "CUT_GRACE_S", 0.1)
    until(lambda: made.trace() == ["broker start"])
    with pytest.raises(ConnectionRefusedError):
        made.client("127.0.0.1")
    made.supervisor.stop()
    made.join()
    assert made.error is None
    assert made.trace() == ["broker start"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_clients_wait_for_the_last_and_then_are_its_own(ensemble, host):
    made = ensemble({"broker": [], "admin": ["slow", "0.3", "last"]})
    assert made.ready.wait(60)
    with made.client(host) as client:
        assert client.recv(6) == b"served"
    admin = made.supervisor._children[1]
    until(lambda: admin.ready_at is not None)
    before = made.supervisor.pids()["admin"]
    os.kill(before, signal.SIGKILL)  # from here on nobody listens until the service does so itself
    until(lambda: made.supervisor.pids().get("admin", before) != before)
    with pytest.raises(ConnectionRefusedError):
        made.client(host)


def test_one_that_starts_last_and_cannot_ends_the_whole_and_disconnects_its_clients(ensemble):
    made = ensemble({"broker": [], "admin": ["fail-when-called", "last"]})
    assert made.ready.wait(60)
    with made.client("127.0.0.1") as client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    made.join()
    assert str(made.error) == "no storage"
    assert made.supervisor.pids() == {}


def test_one_that_starts_last_and_hangs_ends_the_whole_and_disconnects_its_clients(ensemble, monkeypatch):
    monkeypatch.setattr(supervisor, "_LAST_START_MAX_S", 1.0)
    monkeypatch.setattr(supervisor, "CUT_GRACE_S", 0.1)
    made = ensemble({"broker": [], "admin": ["hang", "last"]}, stop_deadline_s=0)
    assert made.ready.wait(60)
    with made.client("127.0.0.1") as client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    made.join()
    assert str(made.error) == "admin was not ready within 1 s"
    assert made.supervisor.pids() == {}


def logged(capfd):
    """Return our lines of the log so far. Clients of other tests in this process may write to standard error, too."""
    return [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]


def test_a_death_of_another_while_the_last_starts_is_like_any_other(ensemble, capfd):
    made = ensemble({"broker": [], "admin": ["hang", "last"]}, stop_deadline_s=0)
    assert made.ready.wait(60)
    before = made.supervisor.pids()["broker"]
    os.kill(before, signal.SIGKILL)
    until(lambda: made.supervisor.pids().get("broker", before) != before)
    with made.client("127.0.0.1") as client:
        made.supervisor.kill()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    made.join()
    assert made.error is None
    assert made.supervisor.killed == ["admin", "broker"]


def test_an_address_that_is_taken_before_the_last_listens(ensemble):
    made = ensemble({"broker": ["slow", "0.3"], "admin": ["last"]})
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", made.clients.port))
        taken.listen()
        made.join()
    reason = f"cannot listen at {made.clients}: Address already in use"
    assert str(made.error) == f"admin could not start: {reason}"
    assert not made.ready.is_set()


def test_a_death_is_logged_and_the_service_comes_back_under_its_address(ensemble, capfd):
    made = ensemble({"storage": [], "gateway": []})
    assert made.ready.wait(60)
    before = made.supervisor.pids()
    os.kill(before["gateway"], signal.SIGKILL)
    until(lambda: made.supervisor.pids().get("gateway", before["gateway"]) != before["gateway"])
    assert made.supervisor.pids()["storage"] == before["storage"]
    lines = []

    def back():
        lines.extend(logged(capfd))
        return len(lines) == 2

    until(back)
    ended, returned = lines
    assert (ended["level"], ended["event"], ended["process"]) == ("error", "service ended", "gateway")
    assert (ended["pid"], ended["how"], ended["restart_in_s"]) == (before["gateway"], "signal SIGKILL", 0.1)
    assert (returned["event"], returned["pid"]) == ("service is back", made.supervisor.pids()["gateway"])


def test_restarts_back_off_until_the_service_has_recovered(ensemble, capfd, monkeypatch):
    """Ready for STABLE_AFTER_S it has; one that ends before it is ready has not, however long that took."""
    monkeypatch.setattr(supervisor, "RESTART_DELAY_MAX_S", 0.3)
    monkeypatch.setattr(supervisor, "STABLE_AFTER_S", 600.0)
    made = ensemble({"storage": ["fail-at", "5"]})
    assert made.ready.wait(60)
    (storage,) = made.supervisor._children

    def kill_when_ready():
        until(lambda: storage.ready_at is not None)
        pid = made.supervisor.pids()["storage"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: made.supervisor.pids().get("storage", pid) != pid)

    for _ in range(4):
        kill_when_ready()
    monkeypatch.setattr(supervisor, "STABLE_AFTER_S", 0.0)
    kill_when_ready()
    made.supervisor.stop()
    made.join()
    log = logged(capfd)
    delays = [line["restart_in_s"] for line in log if line["event"] == "service ended"]
    assert delays == [0.1, 0.2, 0.3, 0.3, 0.3, 0.1]


@pytest.mark.parametrize("status", ["1", "78"])
def test_one_that_cannot_start_ends_the_whole(ensemble, status):
    made = ensemble({"storage": [], "gateway": ["fail", status]})
    made.join()
    assert not made.ready.is_set()
    assert str(made.error) == f"gateway could not start (status {status}); its log line says why"
    assert made.supervisor.pids() == {}


def test_status_78_is_not_tried_again_later_either(ensemble):
    made = ensemble({"storage": ["fail-again"]})
    assert made.ready.wait(60)
    os.kill(made.supervisor.pids()["storage"], signal.SIGKILL)
    made.join()
    assert str(made.error) == "storage could not start (status 78); its log line says why"


def test_what_does_not_stop_is_killed_at_the_deadline(ensemble, capfd, monkeypatch):
    made = ensemble({"storage": [], "gateway": ["deaf"]})
    assert made.ready.wait(60)
    deadlines = iter([0.25, 60.0])  # the gateway's is over soon, storage's is not
    monkeypatch.setattr(supervisor, "CUT_GRACE_S", 0.25)
    monkeypatch.setattr(Supervisor, "stop_deadline_s", property(lambda _: next(deadlines)))
    made.supervisor.stop()
    made.join()
    assert made.supervisor.pids() == {}
    assert made.supervisor.killed == ["gateway"]
    (line,) = logged(capfd)
    assert (line["event"], line["process"]) == ("killed, did not stop within 0.5 s", "gateway")
    assert made.trace()[2:] == ["storage stop"]


def test_asked_again_it_says_so_and_asked_to_kill_it_does(ensemble, capfd):
    made = ensemble({"storage": ["deaf"], "gateway": ["deaf"]}, stop_deadline_s=600)
    assert made.ready.wait(60)
    made.supervisor.stop()
    made.supervisor.stop()
    made.supervisor.kill()
    made.join()
    log = logged(capfd)
    assert [(line["event"], line.get("process")) for line in log] == [
        ("still stopping; the next signal kills", None),
        ("killed, asked three times", "gateway"),
        ("killed, asked three times", "storage"),
    ]
    assert made.supervisor.killed == ["gateway", "storage"]


def test_an_end_by_a_signal_without_a_name_is_a_death_like_any_other(ensemble, capfd):
    made = ensemble({"storage": []})
    assert made.ready.wait(60)
    first = made.supervisor.pids()["storage"]
    os.kill(first, signal.SIGRTMIN + 1)
    until(lambda: made.supervisor.pids().get("storage", first) != first)
    made.supervisor.stop()
    made.join()
    assert made.error is None
    assert logged(capfd)[0]["how"] == f"signal {signal.SIGRTMIN + 1}"


def test_signals_to_a_service_are_blocked_until_it_ignores_them(ensemble):
    """The end of a service that a signal ended would be out of order, and its start is too short to ignore it."""
    made = ensemble({"storage": []})
    assert made.ready.wait(60)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(made.supervisor.pids()["storage"], number)
    made.supervisor.stop()
    made.join()
    assert made.trace() == ["storage start", "storage stop"]


def test_a_service_that_cannot_be_started_again_is_tried_later(ensemble, capfd, monkeypatch):
    made = ensemble({"storage": []})
    assert made.ready.wait(60)
    refusals = iter([OSError("no descriptor"), RuntimeError("no thread")])
    start = Child.start

    def refused(child, descriptors):
        child.starts += 1
        for refusal in refusals:
            raise refusal
        return start(child, descriptors)

    monkeypatch.setattr(Child, "start", refused)
    first = made.supervisor.pids()["storage"]
    os.kill(first, signal.SIGKILL)
    until(lambda: made.supervisor.pids().get("storage", first) != first)
    made.supervisor.stop()
    made.join()
    log = logged(capfd)
    assert [(line["event"], line.get("reason")) for line in log[:3]] == [
        ("service ended", None), ("service not started", "no descriptor"), ("service not started", "no thread"),
    ]  # fmt: skip


def test_a_service_that_hangs_after_it_was_ready_is_killed_and_comes_back(ensemble, capfd, monkeypatch):
    monkeypatch.setattr(liveness, "INTERVAL_S", 0.05)
    monkeypatch.setattr(liveness, "TIMEOUT_S", 0.2)
    made = ensemble({"storage": [], "gateway": []})
    assert made.ready.wait(60)
    before = made.supervisor.pids()
    freeze(before["gateway"])
    until(lambda: made.supervisor.pids().get("gateway", before["gateway"]) != before["gateway"])
    monkeypatch.setattr(liveness, "INTERVAL_S", 600.0)
    hangs, ended = logged(capfd)[:2]
    assert (hangs["event"], hangs["process"]) == ("service hangs, killed", "gateway")
    assert "timed out" in hangs["reason"]
    assert (ended["event"], ended["how"]) == ("service ended", "signal SIGKILL")
    assert made.supervisor.pids()["storage"] == before["storage"]


def test_only_failures_in_a_row_are_a_hang(monkeypatch):
    answers = iter(["late"] * 5 + [None] + ["late"] * 7)
    monkeypatch.setattr(liveness, "check", lambda *_: next(answers))
    child = Child(ServiceProcess("storage", {}, "127.0.0.1:1"), popen=object(), ready_at=1.0)
    hanging = []
    watch = Liveness([child], lambda *hangs: hanging.append(hangs))
    for _ in range(12):
        watch.ask_all()
    assert hanging == [(child, child.popen, "late")]
    watch.ask_all()
    assert len(hanging) == 1
    child.ready_at = None  # not asked: `next` would raise
    watch.ask_all()


def test_of_one_that_not_even_a_kill_ends_it_lets_go(ensemble, capfd, monkeypatch):
    """A process in a call of the kernel that hangs, on a dead disk, ends when that returns."""
    made = ensemble({"storage": ["deaf"]}, stop_deadline_s=0.0)
    assert made.ready.wait(60)
    monkeypatch.setattr(supervisor, "CUT_GRACE_S", 0.0)
    monkeypatch.setattr(supervisor, "KILL_WAIT_S", 0.1)
    pid = made.supervisor.pids()["storage"]
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)
    try:
        made.supervisor.stop()
        made.join()
    finally:
        os.kill(pid, signal.SIGKILL)
    (line,) = logged(capfd)
    assert (line["event"], line["process"]) == ("killed, but it has not ended", "storage")
    assert made.supervisor.killed == ["storage"]


def test_a_supervisor_without_descriptors_calls_no_service_hanging(monkeypatch):
    def exhausted():
        raise OSError("no descriptors")

    monkeypatch.setattr(liveness.socket, "socket", exhausted)
    monkeypatch.setattr(liveness, "check", lambda *_: pytest.fail("it was asked"))
    child = Child(ServiceProcess("storage", {}, "127.0.0.1:1"), popen=object(), ready_at=1.0)
    watch = Liveness([child], lambda *_: pytest.fail("it hangs"))
    for _ in range(liveness.FAILURES_MAX + 1):
        watch.ask_all()


def test_one_that_ended_by_itself_was_not_killed():
    """After a request to kill nobody waits: the supervisor learns of the end only after the kill."""
    process = ServiceProcess("storage", {}, "")
    with subprocess.Popen([sys.executable, "-c", ""]) as popen:
        popen.wait()
        child = Child(process, popen)
        supervisor = Supervisor([process], stop_deadline_s=60)
        supervisor._children.append(child)
        supervisor.kill()
        threading.Timer(0.3, supervisor._wait, (child, popen)).start()
        supervisor._stop_all()
    assert (supervisor.killed, supervisor.pids()) == ([], {})
