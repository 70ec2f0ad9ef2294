"""A broker for stock clients, and the toolchains they need.

The broker is `millrace up` in both of its modes, on free ports and a temporary data folder. With
MILLRACE_CONFORMANCE_BOOTSTRAP=HOST:PORT the same programs run against any broker that listens there, such as Kafka. A
missing toolchain skips a test with the reason; where CI=true it fails it.
"""

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.log_folders import CLEAN, copy_as_killed, millrace, stop
from conformance.log_rows import SEGMENT_BYTES, commit, create, produce, rows_of, write_topic
from support.maven import need_java
from up_process import RunningUp

#: Nobody waits for more members; members of the consumer protocol ask twice a second.
QUICK_GROUPS = {
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": "500",
    "MILLRACE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "500",
}
#: A transaction that has timed out is aborted at once.
QUICK_TRANSACTIONS = {"MILLRACE_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "200"}
LAYOUTS = {"one-process": [], "processes": ["--processes"]}


@pytest.fixture(scope="session", params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    if os.environ.get("MILLRACE_CONFORMANCE_BOOTSTRAP") and request.param != "one-process":
        pytest.skip("the broker is a foreign one: it has no layouts")
    return str(request.param)


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """`brokers(layout)` is the address of a broker that starts with the first call, and runs to the end."""
    with contextlib.ExitStack() as at_end:

        @functools.cache
        def started(layout: str) -> str:
            folder = tmp_path_factory.mktemp(layout)
            options = ("--data-dir", str(folder / "data"), "--kafka-port", "0", "--http-port", "0", *LAYOUTS[layout])
            environment = QUICK_GROUPS | QUICK_TRANSACTIONS
            up = RunningUp(*options, environment=environment, log_path=folder / "broker.log")
            return at_end.enter_context(up).kafka

        yield started


@pytest.fixture(scope="session")
def bootstrap(layout: str, brokers: Callable[[str], str]) -> str:
    return os.environ.get("MILLRACE_CONFORMANCE_BOOTSTRAP") or brokers(layout)


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
