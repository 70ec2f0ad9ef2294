"""A broker for stock clients, and the toolchains they need.

The broker is `millrace up` in both of its modes, on free ports and a temporary data folder. With
MILLRACE_CONFORMANCE_BOOTSTRAP=HOST:PORT the same programs run against any broker that listens there, such as Kafka. A
missing toolchain skips a test with the reason; where CI=true it fails it.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.log_folders import CLEAN, copy_as_killed, millrace, stop
from conformance.log_rows import SEGMENT_BYTES, commit, create, produce, rows_of, write_topic
from support.maven import need_java

READY = re.compile(r"^ready kafka=(\S+) http=\S+$")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40
#: Nobody waits for more members; members of the consumer protocol ask twice a second.
QUICK_GROUPS = {
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": "500",
    "MILLRACE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "500",
}
#: A transaction that has timed out is aborted at once.
QUICK_TRANSACTIONS = {"MILLRACE_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "200"}
LAYOUTS = {"one-process": [], "processes": ["--processes"]}


def _await_ready(process: subprocess.Popen[str]) -> str:
    """Return the Kafka address of the ready line. The watchdog ends a broker that never prints it."""
    assert process.stdout is not None
    watchdog = threading.Timer(START_TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if match := READY.match(line.strip()):
                return match[1]
    finally:
        watchdog.cancel()
    return ""


@pytest.fixture(scope="session", params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    if os.environ.get("MILLRACE_CONFORMANCE_BOOTSTRAP") and request.param != "one-process":
        pytest.skip("the broker is a foreign one: it has no layouts")
    return str(request.param)


@pytest.fixture(scope="session")
def bootstrap(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if foreign := os.environ.get("MILLRACE_CONFORMANCE_BOOTSTRAP"):
        yield foreign
        return
    folder = tmp_path_factory.mktemp(layout)
    millrace = Path(sys.executable).with_name("millrace")
    command = [str(millrace), "up", "--data-dir", str(folder / "data"), "--kafka-port", "0", "--http-port", "0"]
    environment = os.environ | QUICK_GROUPS | QUICK_TRANSACTIONS
    with (folder / "broker.log").open("w") as log:
        process = subprocess.Popen(
            command + LAYOUTS[layout], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
        try:
            address = _await_ready(process)
            assert address, f"no ready line; the log ends with\n{(folder / 'broker.log').read_text()[-2000:]}"
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="session")
def need() -> Callable[..., None]:
    """`need("go")` goes on when every named program is there."""

    def check(*programs: str) -> None:
        missing = [program for program in programs if shutil.which(program) is None]
        if missing and os.environ.get("CI") == "true":
            pytest.fail(f"not installed: {', '.join(missing)}")
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")

    return check


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that Millrace wrote and closed in order: the topics `ours` and `stamped`, and a group's offsets."""
    need_java()
    data = tmp_path_factory.mktemp("millrace") / "data"
    with millrace(data) as up:
        create(up.kafka, "ours", segment_bytes=str(SEGMENT_BYTES))
        write_topic(up.kafka, "ours", rows_of("ours"))
        create(up.kafka, "stamped", message_timestamp_type="LogAppendTime", compression_type="zstd")
        produce(up.kafka, "stamped", 0, rows_of("stamped")[1], "gzip", idempotent=True)
        commit(up.kafka, "ours")
        copy_as_killed(data)
        stop(up)
    assert (data / CLEAN).exists()
    return data
