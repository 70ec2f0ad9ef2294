"""A standalone Spark cluster on loopback, a master and two workers: the same results as on one machine.

An executor is killed in the run: its tasks run again elsewhere, and the table has no record twice.
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

import pyspark
import pytest
from confluent_kafka import Producer
from millrace import Broker
from millrace_demo import flights, topics
from pyspark.sql import SparkSession
from support.etl_accounts import noted

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1200)]

HOME = Path(pyspark.__file__).parent
PIPELINE = Path(__file__).parents[2] / "spark" / "pipelines" / "flights.yaml"
FLIGHTS = 300


@contextmanager
def daemon(log: Path, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon of Spark's, with its log in a file, and kill it and its executors at the end."""
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", "--host", "127.0.0.1"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments], env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def found(log: Path, pattern: str) -> str:
    """Wait until a log has a line that matches; return the pattern's group."""
    end = time.monotonic() + 300
    while (match := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < end, log.read_text(errors="replace")
        time.sleep(0.1)
    return match[1]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[int]]]:
    """The master's URL, and the process ids of two workers."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(daemon(log, "master.Master", "--port", "0", "--webui-port", "0"))
        url = found(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        workers = []
        for number in range(2):
            log = folder / f"worker{number}.log"
            given = ["-c", "1", "-m", "700m", "-d", str(folder / f"work{number}"), "--webui-port", "0", url]
            workers.append(running.enter_context(daemon(log, "worker.Worker", *given)).pid)
            found(log, "(Successfully registered with master)")
        yield url, workers


def executors(workers: list[int]) -> list[int]:
    """Return the process ids of the executors, which are children of the workers."""
    children = []
    for worker in workers:
        for task in Path(f"/proc/{worker}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended since
                children += [int(pid) for pid in (task / "children").read_text().split()]
    return children


def test_the_same_results_although_an_executor_is_killed(
    tmp_path: Path, master: tuple[str, list[int]], jars: Path, spark: SparkSession
) -> None:
    url, workers = master
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
        environment = {
            **os.environ,
            "MILLRACE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "MILLRACE_ETL_MASTER": url,
            "MILLRACE_ETL_DRIVER_HOST": "127.0.0.1",
            "MILLRACE_ETL_SPARK_OPTIONS": "spark.executor.memory=512m spark.executor.cores=1",
            "MILLRACE_ETL_DRIVER_MEMORY": "512m",
            "MILLRACE_ETL_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
            "MILLRACE_ETL_OUTPUT_DIR": str(tmp_path / "lake"),
            "MILLRACE_ETL_TEMP_DIR": str(tmp_path / "tmp"),
            "MILLRACE_ETL_JARS_DIR": str(jars),
        }
        command = [sys.executable, "-m", "spark_etl", "run", str(PIPELINE)]
        done = threading.Event()
        killer = threading.Thread(target=kill_one, args=(done,))
        killer.start()
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
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
