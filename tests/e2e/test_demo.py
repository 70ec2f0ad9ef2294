"""The main job on a few flights, its interruption, and its output when something is wrong."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from millrace import Broker
from support.late import confluent

pytestmark = pytest.mark.etl

FLIGHTS = 3_000
BROKEN = 6


def demo(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "millrace_demo", *map(str, arguments)]


@pytest.mark.timeout(240)
def test_the_main_job(tmp_path, jars, traces):
    chart = tmp_path / "charts" / "delays.png"
    command = demo("run", "--flights", FLIGHTS, "--chart", chart, "--jars", jars)
    done = subprocess.run(
        command, env=traces.environment(), cwd=tmp_path, capture_output=True, text=True, timeout=230, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(
        rf"{FLIGHTS:,} flights and {BROKEN} dead letters, every one accounted for · [\d.]+ MB in at [\d.]+ MB/s, "
        r"out at [\d.]+ MB/s · Spark [\d.]+ s · [\d.]+ s in all",
        lines[-1],
    )
    assert f"chart: {chart}" in lines
    assert any(re.match(r" +UA +United Air Lines Inc\. +\d+ +\d+ +[+-][\d.]+ +[+-][\d.]+ ", line) for line in lines)
    assert any("broken-type: wrong type: month" in line for line in lines)
    assert chart.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    traces.wait_gone()
    assert traces.processes() == []
    assert traces.files() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["charts", "tmp"]


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("starting the broker", signal.SIGINT),
        ("creating the topics", signal.SIGTERM),
        ("loading the flights", signal.SIGINT),
        ("Spark ETL", signal.SIGINT),
    ],
)
def test_a_signal_at_any_moment_cleans_up(tmp_path, jars, traces, moment, number):
    command = demo("run", "--flights", FLIGHTS, "--chart", tmp_path / "delays.png", "--jars", jars)
    with subprocess.Popen(
        command, env=traces.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for line in child.stdout:
            if line.startswith(moment):
                break
        else:
            pytest.fail(f"{moment} did not come: {child.stderr.read()}")
        if moment == "Spark ETL":
            assert _comes_up(traces, "SparkSubmit")  # the JVM, two processes below the demo
        child.send_signal(number)
        _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (
        128 + number,
        f"stopped by {signal.Signals(number).name}, everything is put away\n",
    )
    traces.wait_gone()
    assert traces.processes() == []
    assert traces.files() == []


def _comes_up(traces, what: str) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if any(what in command for command in traces.processes()):
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def broker():
    with Broker(admin=True) as broker:
        yield broker


def addresses(broker: Broker) -> list[str]:
    host, port = broker.http_address or pytest.fail("no REST address")
    return ["--bootstrap-servers", broker.bootstrap_servers, "--rest", f"http://{host}:{port}"]


def run(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(demo(*arguments), capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def test_load_then_load_again_then_a_wrong_count(broker):
    status, output, errors = run("load", *addresses(broker), "--flights", "500")
    assert (status, errors) == (0, "")
    assert output.splitlines()[-1].startswith("506 records, ")
    status, output, errors = run("load", *addresses(broker), "--flights", "500")
    assert (status, errors) == (0, "")
    assert output.splitlines()[-1] == "the topic flights holds the 506 records already"
    status, _, errors = run("load", *addresses(broker), "--flights", "501")
    assert status == 1
    assert errors.startswith("MismatchError: the topic flights holds 506 records, neither none nor 507")
    status, _, errors = run("check", "--bootstrap-servers", broker.bootstrap_servers, "--flights", "501")
    assert (status, errors) == (1, "MismatchError: the topic flights ends at 506 records, expected 507\n")
    # all flights are right, but no ETL job has run
    status, _, errors = run("check", "--bootstrap-servers", broker.bootstrap_servers, "--flights", "500")
    assert (status, errors) == (1, "MismatchError: 0 dead letters, 6 broken records: not the same keys\n")
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("flights", b"{}", b"one too many")
    assert producer.flush(30) == 0
    status, _, errors = run("check", "--bootstrap-servers", broker.bootstrap_servers, "--flights", "501")
    assert status == 1
    assert "1 keys lost" in errors


def test_a_broker_that_is_not_there():
    status, _, errors = run("run", "--bootstrap-servers", "127.0.0.1:1", "--flights", "10")
    assert (status, errors) == (1, "DemoError: --bootstrap-servers needs --rest\n")
