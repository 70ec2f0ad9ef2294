"""The output of `millrace up`: one sentence for a mistake, three lines when ready."""

import contextlib
import os
import pty
import random
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

UP = (sys.executable, "-m", "millrace", "up", "--kafka-port", "0", "--http-port", "0")


def _up(*arguments, environment=None):
    done = subprocess.run(
        [*UP, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **(environment or {})}
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (
            ["--topics", "a:b"],
            {"MILLRACE_LOG_LEVEL": "error"},
            "millrace up: --topics: 'a:b': the number of partitions must be a whole number from 1\n",
        ),
        (
            ["--topics", "a:9,b"],
            {"MILLRACE_LOG_LEVEL": "error", "MILLRACE_PARTITIONS_MAX": "9"},
            "millrace up: --topics: 10 partitions are more than MILLRACE_PARTITIONS_MAX=9\n",
        ),
        (
            ["--topics", "bad/name:3", "--processes"],
            {"MILLRACE_LOG_LEVEL": "error"},
            "millrace up: --topics: 'bad/name:3': a topic name consists of ASCII letters, digits, '.', '_' and '-'\n",
        ),
        (
            [],
            {"MILLRACE_LOG_LEVEL": "error", "MILLRACE_NUM_PARTITIONS": "many", "MILLRACE_FLUSH_POLICY": "never"},
            "millrace up: MILLRACE_FLUSH_POLICY: must be 'group' or 'os'; "
            "MILLRACE_NUM_PARTITIONS: not a whole number\n",
        ),
        (
            ["--data-dir", "/dev/null"],
            {"MILLRACE_NUM_PARTITION": "4"},
            "millrace up: warning: MILLRACE_NUM_PARTITION is no setting; did you mean MILLRACE_NUM_PARTITIONS?\n"
            "millrace up: --data-dir: /dev/null is not a folder\n",
        ),
        (
            ["--data-dir", "/dev/null"],
            {"MILLRACE_ETL_OUTPUT_DIR": "/lake", "MILLRACE_XYZ": ""},
            "millrace up: warning: MILLRACE_XYZ is no setting of Millrace\n"
            "millrace up: --data-dir: /dev/null is not a folder\n",
        ),
    ],
)
def test_a_mistake_is_one_sentence(arguments, environment, message):
    assert _up(*arguments, environment=environment) == (1, "", message)


def test_a_rest_api_that_cannot_start_ends_all_and_says_why(tmp_path):
    """Kafka clients were served at first: the ready line comes before admin-api has read its tokens."""
    tokens = str(tmp_path / "missing")
    settings = {"MILLRACE_LOG_LEVEL": "error", "MILLRACE_ADMIN_AUTH": "token", "MILLRACE_ADMIN_TOKENS_FILE": tokens}
    status, out, message = _up(environment=settings)
    assert (status, out.split(" ", 1)[0]) == (1, "ready")
    assert message == f"millrace up: MILLRACE_ADMIN_TOKENS_FILE: cannot read {tokens}: No such file or directory\n"


def test_a_busy_port_is_named_with_its_option():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        for option in ("--kafka-port", "--http-port"):
            message = f"millrace up: {option}: cannot listen at localhost:{port}: Address already in use\n"
            assert _up(option, str(port)) == (1, "", message)
        status, out, message = _up("--metrics-port", str(port - 1))
        assert (status, out) == (1, "")
        assert message.startswith("millrace up: --metrics-port: cannot listen at 127.0.0.1:")


def _two_free_ports():
    """Return the first of two ports that no socket has, below those that the kernel chooses for others."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for number in (port, port + 1):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", number))
            return port


def test_a_terminal_gets_text_and_the_three_lines(tmp_path):
    port = _two_free_ports()
    ours, theirs = pty.openpty()
    command = [*UP, "--data-dir", str(tmp_path / "data"), "--metrics-port", str(port)]
    environment = {**os.environ, "MILLRACE_BROKER_HTTP": "localhost:9103"}
    environment.pop("MILLRACE_LOG_FORMAT", None)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    with process, os.fdopen(ours, "rb", buffering=0) as terminal, contextlib.ExitStack() as undo:
        undo.callback(process.kill)
        ready, metrics, console = (process.stdout.readline() for _ in range(3))
        http = re.fullmatch(r"ready kafka=localhost:\d+ http=(localhost:\d+)\n", ready)[1]
        urls = (f"http://127.0.0.1:{port}/metrics", f"http://127.0.0.1:{port + 1}/metrics")
        assert metrics == f"metrics broker={urls[0]} admin-api={urls[1]}\n"
        assert console == f"open http://{http}/\n"
        with urllib.request.urlopen(f"http://{http}/healthz", timeout=30) as answer:  # it may wait for admin-api
            assert answer.status == 200
        for url, name in zip(urls, ("millrace_kafka_requests_total", 'service="admin-api"'), strict=True):
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert name in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        shown = b""
        try:
            while part := terminal.read(65536):
                shown += part
        except OSError:  # the last writer closed the terminal
            assert process.wait(60) == 0
    lines = shown.decode().splitlines()
    assert lines[0] == (
        "millrace up: warning: MILLRACE_BROKER_HTTP has no effect on `millrace up`, which chooses its value; "
        "use --metrics-port"
    )
    assert [line for line in lines if line.startswith("{")] == []
    assert max(len(line) for line in lines if " starting " in line) < 700


@pytest.mark.parametrize("module", ["millrace.launch_options", "millrace.launch", "socket", "millrace.supervisor"])
def test_ctrl_c_during_the_imports_shows_no_traceback(module):
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"for name in ({module!r},): sys.modules.pop(name, None)\n"
        "sys.argv = ['millrace', 'up', '--data-dir', '/dev/null']\n"
        "from millrace.cli import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
