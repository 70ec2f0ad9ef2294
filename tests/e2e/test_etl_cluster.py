"""The standalone Spark cluster of docs/spark-cluster.md on loopback, with two workers: the results of one machine.

The commands are those of the page. An executor is killed in the run: its tasks run again elsewhere, and the table has
no record twice.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from millrace import Broker
from millrace_demo import flights, topics
from pyspark.sql import SparkSession
from support.etl_accounts import noted

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-cluster.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- host: ([\w, ]+) -->\n```bash\n(.*?)```", PAGE, flags=re.S))
PIPELINE = ROOT / "spark" / "pipelines" / "flights.yaml"
FLIGHTS = 300


def block(host: str, **exchanged: str) -> list[str]:
    """Return the command of a block of the page, with words of it exchanged."""
    text = BLOCKS[host]
    for word, other in exchanged.items():
        assert word in text, (host, word)
        text = text.replace(word, other)
    return ["bash", "-euc", text]


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", **more}


@contextmanager
def daemon(log: Path, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon of Spark's, with its log in a file, and kill it and its executors at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment(), stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        for pid in reversed([process.pid, *descendants(process.pid)]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def descendants(parent: int) -> list[int]:
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):  # a process that ended since
        for task in Path(f"/proc/{parent}/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                found += [pid, *descendants(pid)]
    return found


def found(log: Path, pattern: str) -> str:
    """Wait until a log has a line that matches; return the pattern's group."""
    end = time.monotonic() + 300
    while (match := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < end, log.read_text(errors="replace")
        time.sleep(0.1)
    return match[1]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[int]]]:
    """The master's address, and the process ids of two workers."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(daemon(log, block("head", **{"--host head": "--host 127.0.0.1", "7077": "0"})))
        address = found(log, r"Starting Spark master at spark://(127\.0\.0\.1:\d+)")
        workers = []
        for number in range(2):
            log = folder / f"worker{number}.log"
            changes = {"/var/lib/spark": str(folder / f"work{number}"), "head:7077": address}
            workers.append(running.enter_context(daemon(log, block("worker", **changes))).pid)
            found(log, "(Successfully registered with master)")
        yield address, workers


def executors(workers: list[int]) -> list[int]:
    """Return the process ids of the executors, which are below the workers."""
    children = []
    for pid in (pid for worker in workers for pid in descendants(worker)):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                children.append(pid)
    return children


def test_the_same_results_although_an_executor_is_killed(
    tmp_path: Path, master: tuple[str, list[int]], jars: Path, spark: SparkSession
) -> None:
    address, workers = master
    table = flights.table(FLIGHTS)
    killed: list[int] = []

    def kill_one(done: threading.Event) -> None:
        while not done.wait(0.05) and not killed:
            for pid in executors(workers)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    given = ",".join(f"{name}:{partitions}" for name, partitions in flights.PARTITIONS.items())
    with Broker(topics=given) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for key, value in [*flights.records(table), *((each.key, each.value) for each in flights.broken_records())]:
            producer.produce(flights.TOPIC, value, key)
        assert producer.flush(60) == 0
        (tmp_path / "tmp").mkdir()
        (tmp_path / "jars").symlink_to(jars)  # those of `millrace etl jars jars`
        driver = environment(
            MILLRACE_ETL_DRIVER_MEMORY="512m",
            MILLRACE_ETL_CHECKPOINT_DIR=str(tmp_path / "checkpoints"),
            MILLRACE_ETL_OUTPUT_DIR=str(tmp_path / "lake"),
            MILLRACE_ETL_TEMP_DIR=str(tmp_path / "tmp"),
        )
        places = {"broker:9092": broker.bootstrap_servers, "head:7077": address, "HOST=driver": "HOST=127.0.0.1"}
        command = block("driver", **places, **{"orders.yaml": str(PIPELINE)})
        done = threading.Event()
        killer = threading.Thread(target=kill_one, args=(done,))
        killer.start()
        try:
            ran = subprocess.run(
                command, cwd=tmp_path, env=driver, capture_output=True, text=True, timeout=900, check=False
            )
        finally:
            done.set()
            killer.join()
        assert ran.returncode == 0, ran.stderr
        assert len(killed) == 1
        totals = json.loads(ran.stdout.splitlines()[-1])
        assert (totals["rows_out"], totals["rows_total"]) == (FLIGHTS, FLIGHTS)
        noted(tmp_path / "checkpoints")
        assert topics.check_delays(broker.bootstrap_servers, flights.delays(table)).keys()
    rows = spark.read.format("delta").load(str(tmp_path / "lake" / "flights")).select("_key").collect()
    assert Counter(row["_key"] for row in rows) == Counter(key.decode() for key, _ in flights.records(table))
