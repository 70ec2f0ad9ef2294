"""The storage core as a whole, in this process and as a separate process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_contract import cluster_pb2, producers_pb2
from broker_contract import groups_pb2 as groups
from broker_contract import topics_pb2 as topics
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis import metrics, probe
from storage_svc.app import Storage
from storage_svc.settings import StorageSettings
from support.group_calls import answered

from tests.unit.storage_svc.conftest import until


async def offset_of(storage: Storage, group_id: str) -> int:
    """Return the offset that the group has committed. After a start its partition may still be loading."""
    await until(lambda: not storage.coordinator.is_loading())
    wanted = groups.FetchOffsetsRequest(groups=[groups.FetchOffsetsRequest.Group(group_id=group_id, all=True)])
    (found,) = (await storage.groups.fetch_offsets(wanted)).groups[0].offsets
    return found.offset


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    settings = StorageSettings(data_dir=tmp_path / "made", topics="orders:3,users", num_partitions=2)
    storage = await Storage.start(settings)
    described = await storage.topics.describe_topics(topics.DescribeTopicsRequest(all=True))
    assert [(topic.name, topic.partition_count) for topic in described.topics] == [("orders", 3), ("users", 2)]
    offset = groups.CommitOffsetsRequest.Offset(topic="orders", partition=2, offset=7, leader_epoch=-1)
    commit = groups.CommitOffsetsRequest(group_id="g", generation_id=-1, retention_time_ms=-1, offsets=[offset])
    assert list((await answered(storage.groups.commit_offsets, commit)).error_codes) == [0]
    gateway = cluster_pb2.RegisterGatewayRequest(name="gw", lease_ms=60_000)
    registered = await storage.cluster.register_gateway(gateway)
    live = await storage.cluster.describe_cluster(cluster_pb2.DescribeClusterRequest())
    assert [each.name for each in registered.gateways] == ["gw"]
    assert list(registered.gateways) == list(live.gateways)
    fresh = producers_pb2.InitProducerIdRequest(producer_id=-1, producer_epoch=-1)
    assert (await storage.producers.init_producer_id(fresh)).producer_id == 0
    await storage.stop()

    storage = await Storage.start(settings.replaced(num_partitions=9))
    again = await storage.topics.describe_topics(topics.DescribeTopicsRequest(all=True))
    assert [topic.name for topic in again.topics] == ["__consumer_offsets", "orders", "users"]
    assert list(again.topics)[1:] == list(described.topics)
    assert await offset_of(storage, "g") == 7
    assert await storage.cluster.register_gateway(gateway) == registered
    assert (await storage.producers.init_producer_id(fresh)).producer_id == 1000
    await storage.stop()


async def test_indexes_that_a_crash_took_are_made_anew_as_the_topics_settings_say(tmp_path: Path) -> None:
    settings = StorageSettings(data_dir=tmp_path)
    storage = await Storage.start(settings)
    await storage.topic_registry.create("fine", 1, {"index.interval.bytes": "100"})
    for _ in range(20):
        batch = build_batch([Record(0, 1_700_000_000_000, b"k", bytes(300))])
        assert storage.logs.logs["fine", 0].append(batch).error_code == 0
    await storage.stop()
    index = tmp_path / "fine-0" / f"{0:020d}.index"
    written = index.read_bytes()
    assert len(written) == 19 * 8
    index.unlink()
    for path in [tmp_path / name for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint")]:
        path.unlink()
    storage = await Storage.start(settings)
    await storage.stop()
    assert index.read_bytes() == written


async def test_without_its_catalog_a_folder_gives_no_producer_the_id_of_another(tmp_path: Path) -> None:
    """Storage would take a new producer's first batch for one of the old producer's, and not write it."""
    settings = StorageSettings(data_dir=tmp_path, topics="orders")
    storage = await Storage.start(settings)
    for producer_id in (41, 2**62, 2**63 - 1):
        batch = build_batch(
            [Record(0, 1_700_000_000_000, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        assert storage.logs.logs["orders", 0].append(batch).error_code == 0
    await storage.stop()
    (tmp_path / "catalog.sqlite").unlink()
    storage = await Storage.start(settings)
    fresh = producers_pb2.InitProducerIdRequest(producer_id=-1, producer_epoch=-1)
    assert (await storage.producers.init_producer_id(fresh)).producer_id == 42
    await storage.stop()


async def test_a_start_that_fails_lets_go_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"nonsense" * 1000)
    settings = StorageSettings(data_dir=tmp_path)
    with pytest.raises(Exception, match="not a database"):
        await Storage.start(settings)
    (tmp_path / "catalog.sqlite").unlink()
    storage = await Storage.start(settings)
    await storage.stop()


class FullRegistry(metrics.Registry):
    def register(self, collector: metrics.Collects) -> None:
        raise ValueError("full")


async def test_a_catalog_is_open_once_and_closed_when_a_start_fails(tmp_path: Path) -> None:
    storage = await Storage.start(StorageSettings(data_dir=tmp_path / "one"))
    with pytest.raises(ValueError, match="full"):
        await Storage.start(StorageSettings(data_dir=tmp_path / "two"), registry=FullRegistry("storage-svc"))
    assert open_catalogs(tmp_path) == ["one"]
    await storage.stop()
    assert open_catalogs(tmp_path) == []


def open_catalogs(folder: Path) -> list[str]:
    paths = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            paths.append(descriptor.readlink())
    return [path.parent.name for path in paths if path.name == "catalog.sqlite" and folder in path.parents]


async def test_readiness_and_metrics(tmp_path: Path) -> None:
    storage = await Storage.start(StorageSettings(data_dir=tmp_path, topics="orders:3"))
    assert storage.health.faults() == {}
    assert storage.registry.get_sample_value("millrace_topics") == 1
    assert storage.registry.get_sample_value("millrace_partitions") == 3
    assert storage.registry.get_sample_value("millrace_groups", {"state": "Stable"}) == 0
    assert storage.registry.get_sample_value("millrace_build_info", {"service": "storage-svc", "version": "0.1.0"}) == 1
    await storage.stop()
    assert storage.health.faults() == {"service": "stopping"}


def test_the_core_does_without_grpc() -> None:
    code = "import sys, storage_svc.app; sys.exit(any(name.split('.')[0] == 'grpc' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


# --- the process ----------------------------------------------------------------------------------------------------


class Process:
    """`python -m storage_svc` on a Unix socket, with its health at a port that was free."""

    _numbers = itertools.count()

    def __init__(self, folder: Path, **settings: str) -> None:
        number = next(self._numbers)
        self.log = folder / f"log-{number}"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}
        self.environment |= {
            "MILLRACE_DATA_DIR": str(folder / "data"),
            "MILLRACE_STORAGE_BIND": f"unix:{folder}/s-{number}.sock",
            "MILLRACE_STORAGE_HTTP": "127.0.0.1:0",
            **settings,
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "storage_svc"], env=self.environment, stderr=log)

    def lines(self) -> list[dict[str, object]]:
        """Return its log lines."""
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def get(self, path: str) -> str:
        address = self.environment["MILLRACE_STORAGE_HTTP"]
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def ready(self) -> Process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.lines():
                if line["event"] == "serving":
                    self.environment["MILLRACE_STORAGE_HTTP"] = f"127.0.0.1:{line['http_port']}"
                    self.get("/readyz")
                    return self
            time.sleep(0.05)
        raise AssertionError(self.end())

    def end(self, number: int = signal.SIGTERM) -> tuple[int, list[dict[str, object]]]:
        """Exit status and log lines."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60), self.lines()

    def fault(self) -> str | None:
        return probe.check(self.environment["MILLRACE_STORAGE_HTTP"], timeout_s=60)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start a process on the test's folder with these settings."""
    started: list[Process] = []

    def begin(**settings: str) -> Process:
        started.append(Process(tmp_path, **settings))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def test_serve_and_stop_in_order(tmp_path: Path, start: Callable[..., Process]) -> None:
    process = start(MILLRACE_TOPICS="orders:2").ready()
    assert process.fault() is None
    assert "millrace_partitions 2.0" in process.get("/metrics")
    status, lines = process.end()
    assert status == 0
    events = [line["event"] for line in lines]
    assert events.index("storage is ready") < events.index("serving") < events.index("stopping")
    assert events.index("stopping") < events.index("storage is closed") < events.index("stopped")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "refused" in str(process.fault())


def test_a_second_process_on_the_folder_is_refused(tmp_path: Path, start: Callable[..., Process]) -> None:
    first = start().ready()
    status, lines = start().end(signal.SIGCONT)
    assert status == 78
    assert lines[-1]["event"] == "cannot start"
    assert str(tmp_path / "data") in str(lines[-1]["reason"])
    assert first.fault() is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"MILLRACE_TOPICS": "a/b:1"}, "MILLRACE_TOPICS"),
        ({"MILLRACE_STORAGE_BIND": "unix:/nowhere/at/all.sock"}, "unix:/nowhere/at/all.sock"),
        ({"MILLRACE_STORAGE_HTTP": "192.0.2.1:9101"}, "192.0.2.1:9101"),
    ],
)
def test_what_keeps_it_from_starting_is_said(
    start: Callable[..., Process], settings: dict[str, str], reason: str
) -> None:
    status, lines = start(**settings).end(signal.SIGCONT)
    assert status == 78
    assert reason in str(lines[-1]["reason"])


def test_a_damaged_catalog_is_named_with_what_to_do_about_it(tmp_path: Path, start: Callable[..., Process]) -> None:
    assert start(MILLRACE_TOPICS="orders:2").ready().end()[0] == 0
    catalog = tmp_path / "data" / "catalog.sqlite"
    kept = catalog.read_bytes()
    catalog.write_bytes(kept[:4096] + bytes(4096) + kept[8192:])

    process = start()
    assert process.process.wait(timeout=60) == 78
    assert "Traceback" not in process.log.read_text()
    line = process.lines()[-1]
    assert line["event"] == "cannot start"
    reason = str(line["reason"])
    assert reason.startswith(f"{catalog} is damaged (")
    assert "move catalog.sqlite, catalog.sqlite-wal and catalog.sqlite-shm away" in reason

    catalog.unlink()
    process = start().ready()
    assert "millrace_partitions 2.0" in process.get("/metrics")
    assert process.end()[0] == 0
