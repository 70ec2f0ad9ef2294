"""Outputs that go away, fill up or take less while a pipeline runs: it goes on, and each row comes once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(600)]

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # noqa: E402
from millrace_demo.topics import read_all  # noqa: E402
from spark_etl.errors import RunError  # noqa: E402
from support.etl_kills import Drivers  # noqa: E402
from support.etl_runs import SCHEMA, Continuous, broker, etl, until  # noqa: E402
from support.frozen import freeze  # noqa: E402
from support.postgres import PASSWORD, USER, PostgresServer  # noqa: E402

__all__ = ["broker", "etl"]


def table_of(server: PostgresServer) -> str:
    login = f"user: {USER}, password: {PASSWORD}"
    return f'- {{type: postgres, url: "{server.url}?socketTimeout=3", table: t, columns: [id], {login}}}'


def done(continuous: Continuous, condition: Callable[[], bool]) -> None:
    until(lambda: continuous.error is not None or condition())
    assert continuous.error is None


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        yield PostgresServer(Path(folder))


def test_a_server_that_is_stopped_and_started_again(server, etl):
    def stored() -> list[tuple[str, ...]]:
        found = server.rows("SELECT to_regclass('t')") == [("t",)]
        return server.rows("SELECT id FROM t ORDER BY 1") if found else []

    def numbers(last: int) -> list[tuple[str, ...]]:
        return [(str(number),) for number in range(1, last + 1)]

    etl.produce(1, 2, 3)
    with Continuous(etl, "", sink=table_of(server)) as continuous:
        until(lambda: continuous.error is not None or etl.metrics.health()["state"] == "restarting")
        server.__enter__()
        done(continuous, lambda: stored() == numbers(3))
        server.__exit__()
        etl.produce(4, 5)
        until(lambda: continuous.error is not None or etl.work.totals.restarts >= 2)
        with server:
            done(continuous, lambda: stored() == numbers(5))
            restarts = etl.work.totals.restarts
            pids = server.pids()
            try:
                for pid in pids:
                    with suppress(OSError):  # a connection that has just ended
                        freeze(pid)
                etl.produce(6)
                until(lambda: continuous.error is not None or etl.work.totals.restarts > restarts)
            finally:
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            done(continuous, lambda: stored() == numbers(6))
    assert continuous.error is None
    assert etl.ids() == [1, 2, 3, 4, 5, 6]
    # The table had the batches before the server failed: they count in the try that ended them, once.
    assert (etl.work.totals.rows_in, etl.work.totals.rows_out) == (6, 6)


def test_a_signal_ends_a_batch_that_waits_for_the_database(server, broker, jars, tmp_path):
    """PostgreSQL is frozen, and the statement would wait for ten minutes. An end takes 30 s, and more under load."""
    drivers = Drivers(tmp_path, broker.bootstrap_servers, jars)
    sink = drivers.postgres(server, ", columns: [id]")
    drivers.write(SCHEMA, [sink], "trigger: {processing_time: 1 second}\n")
    drivers.produce([("a", {"id": 1})])
    with server:
        pids: list[int] = []
        try:
            with drivers.running(within=60):
                until(lambda: drivers.stored(server, "id") == [(1,)])
                pids = server.pids()
                for pid in pids:
                    with suppress(OSError):
                        freeze(pid)
                drivers.produce([("b", {"id": 2})])
                until(lambda: list((drivers.checkpoint / "_etl" / "begun").glob("*-1.json")) != [])
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    lines = (tmp_path / "run.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    reasons = {each["event"]: each.get("reason", "") for each in events}
    assert reasons["batch given up"].startswith("PostgreSQL: ")
    assert events[-1]["event"] == "stopped"


def test_a_topic_that_takes_less_or_is_deleted(etl):
    topic = f"{etl.name}.out"

    def values() -> list[int]:
        present = topic in etl.admin.list_topics(timeout=30).topics
        return sorted(json.loads(each.value())["id"] for each in read_all(etl.servers, topic)) if present else []

    with Continuous(etl, "", sink=f"- {{type: kafka, topic: {topic}}}") as continuous:
        etl.produce(1)
        done(continuous, lambda: values() == [1])
        less = ConfigEntry("max.message.bytes", "8192", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[less])
        etl.admin.incremental_alter_configs([resource])[resource].result(30)
        etl.produce(json.dumps({"id": 2, "kind": "x" * 9000}), 3)
        done(continuous, lambda: len(read_all(etl.servers, etl.letters)) == 1)
        assert values() == [1, 3]
        (letter,) = read_all(etl.servers, etl.letters)
        assert dict(letter.headers())["__etl.errors.rule"] == b"too_large"
        etl.admin.delete_topics([topic])[topic].result(30)
        etl.produce(4)
        done(continuous, lambda: values() == [4])
    assert continuous.error is None
    assert etl.ids() == [1, 2, 3, 4]


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]).returncode != 0:
        pytest.skip("the right to mount a file system is needed")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def filled(folder: Path, free_pages: int) -> Iterator[None]:
    """Leave a number of pages of 4 KiB free on a disk."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    os.truncate(path, path.stat().st_size - 4096 * free_pages)
    try:
        yield
    finally:
        path.unlink()


@pytest.mark.parametrize("place", ["checkpoint", "table"])
def test_a_disk_that_is_full(etl, place):
    disk = etl.folder / "disk"
    with small_disk(disk):
        (disk / place).mkdir()
        (etl.folder / place).symlink_to(disk / place)
        etl.produce(1, 2, 3, "bad")
        etl.run()
        for number, free_pages in enumerate((0, 2, 6, 8, 10), 4):
            etl.produce(number)
            with filled(disk, free_pages):
                try:
                    etl.run()
                except RunError as error:
                    assert str(error).endswith("No space left on device")  # noqa: PT017
        etl.run()
        assert etl.ids() == list(range(1, 9))
        assert len(etl.read(etl.letters)) == 1
