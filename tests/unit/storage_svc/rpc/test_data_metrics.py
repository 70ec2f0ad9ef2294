"""Metrics of the logs and the data service."""

from __future__ import annotations

import asyncio

from broker_contract.data import Append, ReadPartition, ReadRequest, TopicIdPartition
from prometheus_client import CollectorRegistry
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.rpc.data import DataService
from storage_svc.rpc.data_metrics import DataMetrics
from support.scripted_transactions import NoTransactions


async def test_values(tmp_path):
    directory = DataFolder.open(tmp_path, LogSettings(flush_policy=FlushPolicy.GROUP))
    directory.create_many("t", range(2), bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    service = DataService(directory, lambda _: None, NoTransactions())
    registry = CollectorRegistry()
    registry.register(DataMetrics(directory, Maintenance(directory), service))
    batch = build_batch([Record(n, 0, b"k", b"v") for n in range(3)])
    answered = asyncio.Event()
    first, second = TopicIdPartition("t", 0), TopicIdPartition("t", 1)
    append = Append(1, "c", 9, -1, 60_000, [first, second, first], [batch, batch, batch[:-1]])
    service.append(append, lambda _: answered.set())
    await answered.wait()
    service.read(ReadRequest(1, "c", 0, 1, 9999, 0, False, [ReadPartition(first, 0, 9999)]), lambda _: None)
    give_up = service.read(
        ReadRequest(1, "c", 60_000, 1, 9999, 0, False, [ReadPartition(first, 3, 9999)]), lambda _: None
    )
    expected = {
        ("millrace_append_records_total", (("topic", "t"),)): 6,
        ("millrace_append_bytes_total", (("topic", "t"),)): 2 * len(batch),
        ("millrace_append_batches_total", (("topic", "t"),)): 2,
        ("millrace_segments", (("topic", "t"),)): 2,
        ("millrace_append_refused_total", (("error", "INVALID_RECORD"),)): 1,
        ("millrace_read_bytes_total", (("source", "cache"),)): len(batch),
        ("millrace_read_bytes_total", (("source", "disk"),)): 0,
        ("millrace_read_bytes_total", (("source", "file"),)): 0,
        ("millrace_append_duration_seconds_count", ()): 1,
        ("millrace_fetch_wait_seconds_count", ()): 0,
        ("millrace_fsync_duration_seconds_count", ()): 1,
        ("millrace_fsync_total", (("reason", "produce"),)): 1,
        ("millrace_fsync_total", (("reason", "flush"),)): 0,
        ("millrace_unflushed_bytes", ()): 0,
        ("millrace_open_files", ()): 2,
        ("millrace_crc_failures_total", ()): 0,
        ("kafka_server_replicamanager_underreplicatedpartitions", ()): 0,
        ("kafka_controller_kafkacontroller_activecontrollercount", ()): 1,
        ("millrace_parked_reads", ()): 1,
        ("millrace_dirty_logs", ()): 0,
        ("kafka_log_log_size", (("partition", "1"), ("topic", "t"))): len(batch),
        ("kafka_server_replicamanager_partitioncount", ()): 2,
        ("kafka_controller_kafkacontroller_offlinepartitionscount", ()): 0,
    }
    found = {key: registry.get_sample_value(key[0], dict(key[1])) for key in expected}
    assert found == expected
    free, total = (registry.get_sample_value(f"millrace_disk_{name}_bytes") for name in ("free", "total"))
    assert 0 < free < total
    give_up()
    assert registry.get_sample_value("millrace_fetch_wait_seconds_count") == 1
    await service.close()
    await directory.close()
