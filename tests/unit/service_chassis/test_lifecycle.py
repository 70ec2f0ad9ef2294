import json
import signal
import socket
import subprocess
import sys

import pytest

SERVICE = """
import asyncio, sys, time
from service_chassis import health, lifecycle, metrics
from service_chassis.settings import ServiceSettings, setting

class Settings(ServiceSettings):
    http: str = setting("127.0.0.1:0", description="x")

async def serve(settings, stop):
    endpoint = health.HttpEndpoint(settings.http, metrics.Registry("x"), state := health.Health()).start()
    state.set_ready(True)
    print("ready", endpoint.port, flush=True)
    {body}
    print("closed", flush=True)

sys.exit(lifecycle.main("example", Settings, serve))
"""


@pytest.fixture
def run():
    started = []

    def start(body, *arguments, **environment):
        popen = subprocess.Popen(
            [sys.executable, "-c", SERVICE.format(body=body), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        started.append(popen)
        return popen

    yield start
    for popen in started:
        popen.kill()
        popen.communicate()


def _ended(popen):
    out, err = popen.communicate(timeout=60)
    return popen.returncode, out.splitlines(), [json.loads(line) for line in err.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_in_order(run, number):
    popen = run("await stop.wait()")
    assert popen.stdout.readline().startswith("ready")
    popen.send_signal(number)
    status, out, log = _ended(popen)
    assert (status, out) == (0, ["closed"])
    assert [(line["event"], line.get("signal")) for line in log] == [
        ("starting", None), ("stopping", number.name), ("stopped", None),
    ]  # fmt: skip


def test_deadline_cuts_and_names_what_was_cut(run):
    popen = run(
        "lifecycle._CUT_GRACE_S = 60; "  # long enough not to end this process
        "await stop.wait(); task = asyncio.create_task(asyncio.sleep(60), name='slow drain'); await task",
        MILLRACE_STOP_DEADLINE_S="0.2",
    )
    popen.stdout.readline()
    popen.terminate()
    status, out, log = _ended(popen)
    assert (status, out) == (1, [])
    assert (log[-1]["event"], log[-1]["reason"]) == ("stop cut off", "did not stop within 0.2 s")
    assert log[-1]["tasks"] == ["main", "slow drain"]


def _event(popen, event):
    while (line := json.loads(popen.stderr.readline()))["event"] != event:
        pass
    return line


def test_doubled_signals_count_once_and_the_third_cuts(run):
    popen = run(
        "from service_chassis import stop_signals; stop_signals.GAP_S = 0 if 'apart' in sys.stdin.readline() else 600; "
        "print('set', flush=True); await stop.wait(); await asyncio.sleep(600)",
        MILLRACE_STOP_DEADLINE_S="600",
    )
    popen.stdout.readline()
    popen.stdin.write("apart\n")
    popen.stdin.flush()
    popen.stdout.readline()
    popen.terminate()
    _event(popen, "stopping")
    for _ in range(5):
        popen.send_signal(signal.SIGHUP)
    popen.terminate()
    _event(popen, "still stopping; the next signal cuts the stop off")
    popen.terminate()
    assert _event(popen, "stop cut off")["reason"] == "asked three times"
    assert _ended(popen)[0] == 1


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(run):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child has it too, as after `nohup`
    try:
        popen = run("await stop.wait()")
    finally:
        signal.signal(signal.SIGHUP, before)
    popen.stdout.readline()
    popen.send_signal(signal.SIGHUP)
    popen.terminate()
    status, _, log = _ended(popen)
    assert (status, log[1]["signal"]) == (0, "SIGTERM")


@pytest.mark.parametrize("asked", ["s", ""])
def test_one_of_the_launcher_stops_when_its_standard_input_says_so_or_ends(run, asked):
    popen = run("await stop.wait()", MILLRACE_STOP_ON_STDIN="true")
    popen.stdout.readline()
    popen.stdin.write(asked)
    popen.stdin.flush()
    if not asked:
        popen.stdin.close()
    stopping = _event(popen, "stopping")
    assert stopping["signal"] == "launcher"
    popen.stdin = None  # else communicate flushes it
    assert _ended(popen)[0] == 0


def test_hanging_thread_does_not_outlive_the_deadline(run):
    popen = run("await stop.wait(); await asyncio.to_thread(time.sleep, 60)", MILLRACE_STOP_DEADLINE_S="0.1")
    popen.stdout.readline()
    popen.terminate()
    status, _, log = _ended(popen)
    assert status == 1
    assert log[-1]["event"] == "ended while a thread hangs"


def test_start_error_is_one_line_and_status_78(run):
    status, _, log = _ended(run("raise lifecycle.StartError('the data folder is in use')"))
    assert status == 78
    assert [line["event"] for line in log] == ["starting", "cannot start"]
    assert log[-1]["reason"] == "the data folder is in use"


def test_failure_is_logged_with_its_traceback(run):
    status, _, log = _ended(run("1 / 0"))
    assert status == 1
    assert log[-1]["exception"].endswith("ZeroDivisionError: division by zero")


def test_help_names_every_variable_and_its_default():
    popen = subprocess.run(
        [sys.executable, "-c", SERVICE.format(body="pass"), "--help"], capture_output=True, text=True, timeout=60
    )
    assert (popen.returncode, popen.stderr) == (0, "")
    assert popen.stdout.startswith("Usage: [VARIABLE=VALUE…] example [--help] [--version]\n")
    assert "\n  MILLRACE_HTTP=127.0.0.1:0\n      x\n" in popen.stdout
    assert "\n  MILLRACE_LOG_LEVEL=info\n" in popen.stdout


@pytest.mark.parametrize(
    ("argument", "ended"),
    [("--version", (0, "example 0.1.0\n", "")), ("-x", (2, "", "example: no such option: -x; see example --help\n"))],
)
def test_other_options(argument, ended):
    command = [sys.executable, "-c", SERVICE.format(body="pass"), argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == ended


@pytest.mark.parametrize("launched", [True, False])
def test_a_launcher_reads_the_reason_of_a_failed_start(launched):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        environment = {"MILLRACE_STOP_DEADLINE_S": "0"} | ({"MILLRACE_STOP_ON_STDIN": "true"} if launched else {})
        command = [sys.executable, "-c", SERVICE.format(body="pass")]
        done = subprocess.run(command, stdin=theirs, stderr=subprocess.PIPE, env=environment, timeout=60)
        assert done.returncode == 78
        theirs.close()
        reason = "MILLRACE_STOP_DEADLINE_S: must be above 0"
        assert ours.recv(4096).decode() == (reason if launched else "")
        assert (json.loads(done.stderr)["reason"] if done.stderr else "") == ("" if launched else reason)
