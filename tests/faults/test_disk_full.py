"""A disk with no room left: producers get errors, readers are served, and appends go on once there is room again."""

import contextlib
import os
import resource
import subprocess

import pytest
from broker_contract import data_pb2 as pb
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.app import Storage
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.space_reserve import RESERVE_BYTES
from storage_svc.settings import StorageSettings
from support.late import confluent
from up_process import RunningUp

from tests.support.waiting import until, until_async

ANY_PORTS = ("--kafka-port", "0", "--http-port", "0", "--topics", "orders:1")
LAYOUTS = [((), "broker"), (("--processes",), "storage-svc")]
RECORD = bytes(100_000)


def _producer(bootstrap_servers):
    return confluent.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "retries": 0,
            "linger.ms": 0,
            "message.timeout.ms": 30_000,
            "batch.num.messages": 1,
        }
    )


def _produce_one(producer, number):
    """Produce one record, and return its error or its offset."""
    results = []
    value = f"{number:09d}".encode() + RECORD
    producer.produce("orders", value, on_delivery=lambda error, message: results.append(error or message.offset()))
    producer.flush(60)
    assert len(results) == 1
    return results[0]


class _Acknowledged:
    """The acknowledged records, for `check_once`."""

    def __init__(self):
        self.acknowledged = {}


def _fill(kafka, load, records_max):
    """Produce until an error comes, and return it."""
    producer = _producer(kafka)
    for number in range(records_max):
        result = _produce_one(producer, number)
        if isinstance(result, confluent.KafkaError):
            return result
        load.acknowledged[0, result] = (f"{number:09d}".encode() + RECORD).decode()
    pytest.fail("the disk did not get full")


@pytest.mark.parametrize(("arguments", "service"), LAYOUTS, ids=["combined", "separate"])
def test_no_room_for_a_segment(arguments, service, check_once):
    """RLIMIT_FSIZE of the storage process: its writes fail in the middle of a batch, as on a full disk."""
    with RunningUp(*ANY_PORTS, *arguments) as up:
        (pid,) = up.services()[service]
        load = _Acknowledged()
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (2_050_000, unlimited[1]))
        error = _fill(up.kafka, load, 100)
        assert error.code() == confluent.KafkaError.KAFKA_STORAGE_ERROR
        assert 10 < len(load.acknowledged) < 25
        assert len(check_once(load, up.kafka, "orders", 1)) == len(load.acknowledged)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        offset = _produce_one(_producer(up.kafka), 999)
        assert offset == len(load.acknowledged)
        assert up.services()[service] == [pid]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with contextlib.ExitStack() as held:
        command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("needs to mount a file system")
        held.callback(lambda: subprocess.run(["umount", str(disk)], check=True))
        yield disk


def test_full_file_system(small_disk, check_once):
    data_dir = small_disk / "data"
    with RunningUp(*ANY_PORTS, "--data-dir", str(data_dir)) as up:
        ballast = small_disk / "ballast"
        load = _Acknowledged()
        with open(ballast, "wb") as file:
            file.write(bytes(8_000_000))
        error = _fill(up.kafka, load, 400)
        assert error.code() == confluent.KafkaError.KAFKA_STORAGE_ERROR
        assert len(check_once(load, up.kafka, "orders", 1)) == len(load.acknowledged) > 10
        ballast.unlink()
        producer, results = _producer(up.kafka), []

        def is_accepted():
            results.append(_produce_one(producer, 999))
            return results[-1] == len(load.acknowledged)

        until(is_accepted, lambda: results)
        assert up.stop() == 0
    with RunningUp(*ANY_PORTS, "--data-dir", str(data_dir)) as up:
        assert len(check_once(load, up.kafka, "orders", 1)) == len(load.acknowledged) + 1


def free_bytes(disk):
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def fill(disk):
    """Leave no free byte."""
    with contextlib.suppress(OSError), open(disk / "ballast", "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.fixture
async def full(small_disk):
    """Storage with a topic of 50 records in six segments, on a disk without a free byte; its log, and the disk."""
    storage = await Storage.start(StorageSettings(data_dir=small_disk / "data"))
    await storage.topic_registry.create("t", 1, {"segment.bytes": "1048576", "file.delete.delay.ms": "0"})
    for number in range(5):
        await storage.topic_registry.create(f"empty-{number}", 1, {})
    log = storage.logs.logs["t", 0]
    for _ in range(50):
        assert log.append(build_batch([Record(0, 1, None, os.urandom(100_000))])).error_code == 0
    assert await log.durable(50) == 0
    storage.logs.checkpoints.write_all()
    reserve = small_disk / "data" / "space-reserve"
    await until_async(lambda: reserve.exists() and reserve.stat().st_size == RESERVE_BYTES)
    fill(small_disk)
    assert free_bytes(small_disk) == 0
    assert log.append(build_batch([Record(0, 1, None, bytes(50_000))])).error_code == 56
    yield storage, log, small_disk
    (small_disk / "ballast").unlink()
    await storage.stop()


async def test_retention_frees_a_full_disk(full):
    storage, log, disk = full
    properties = {"segment.bytes": "1048576", "file.delete.delay.ms": "0", "retention.bytes": "2000000"}
    log.configure(LogConfig.from_properties(properties))
    await storage.maintenance.apply_retention()
    await until_async(lambda: free_bytes(disk) >= 3_000_000 and not storage.logs.files.keeps_space)
    assert log.append(build_batch([Record(0, 1, None, bytes(50_000))])).base_offset == 50


async def test_records_are_deleted_on_a_full_disk(full):
    storage, log, disk = full
    target = pb.DeleteRecordsRequest.Target(topic="t", partition=0, offset=45)
    answer = await storage.offsets.delete_records(pb.DeleteRecordsRequest(targets=[target]))
    assert [(each.error_code, each.log_start_offset) for each in answer.partitions] == [(0, 45)]
    await until_async(lambda: free_bytes(disk) >= 3_000_000)
    assert log.log_start_offset == 45


async def test_topics_are_deleted_on_a_full_disk(full):
    storage, _, disk = full
    await storage.topic_registry.delete([storage.topic_registry.get("t")])
    await until_async(lambda: free_bytes(disk) >= 5_000_000)
    await until_async(lambda: not list((disk / "data").glob("t-*")))


async def test_records_leave_the_last_space_to_deletions(full):
    storage, log, disk = full
    batch = build_batch([Record(0, 1, None, bytes(50_000))])
    registry = storage.topic_registry
    for number in range(5):  # each of them needs space, and frees none
        storage.logs.checkpoints.write_all()
        await until_async(lambda: storage.logs.files.keeps_space)
        assert log.append(batch).error_code == 56
        topic = registry.get(f"empty-{number}")
        await registry.delete([topic])
        assert topic.name not in registry
    assert free_bytes(disk) > RESERVE_BYTES // 2
    await storage.stop()
    again = await Storage.start(StorageSettings(data_dir=disk / "data"))
    assert again.logs.logs["t", 0].append(batch).error_code == 56
    await again.topic_registry.delete([again.topic_registry.get("t")])
    await until_async(lambda: not again.logs.files.keeps_space)
    assert (disk / "data" / "space-reserve").stat().st_size == RESERVE_BYTES
    await again.stop()
