"""A storage core that is started, used and killed in one process: calls that tests of whole lives share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker_contract import data_pb2 as data
from broker_contract import topics_pb2 as topics
from broker_contract.data import Append, AppendOutcome, AppendResponse, TopicIdPartition
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record, read_records
from storage_svc.app import Storage
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.settings import StorageSettings

NOW_MS = 1_700_000_000_000


async def started(path: Path, **settings: Any) -> Storage:
    return await Storage.start(StorageSettings(data_dir=path, **settings))


def kill(storage: Storage) -> None:
    """Leave the folder as a process that is killed does: its files are closed, nothing is synced or completed."""
    os.close(storage.logs._lock)
    storage.logs._lock = -1
    storage.logs.files.give_back_reserve()
    for log in storage.logs.logs.values():
        for segment in log.segments:
            segment.close()


async def produce(storage: Storage, topic: str, values: Iterable[bytes], key: bytes | None = None) -> list[int]:
    """Append each value as a batch with acks=all; return their offsets."""
    offsets = []
    for value in values:
        appended = await append(storage, topic, build_batch([Record(0, NOW_MS, key, value)]))
        assert appended.error_code == 0, appended
        offsets.append(appended.base_offset)
    return offsets


async def append(storage: Storage, topic: str, batch: bytes, partition: int = 0) -> AppendOutcome:
    answered: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
    wanted = [TopicIdPartition(topic, partition)]
    storage.data.append(Append(1, "c", 9, -1, 30_000, wanted, [batch]), answered.set_result)
    return (await answered).outcomes[0]


async def create(storage: Storage, name: str, partitions: int = 1, **configs: str) -> int:
    """Create a topic, with underscores for dots in the configs' names; return the error code."""
    entries = [topics.ConfigEntry(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    wanted = topics.NewTopic(name=name, partition_count=partitions, replication_factor=1, configs=entries)
    return (await storage.topics.create_topics(topics.CreateTopicsRequest(topics=[wanted]))).topics[0].error_code


async def delete(storage: Storage, name: str) -> int:
    """Delete a topic; return the error code."""
    wanted = topics.DeleteTopicsRequest(topics=[topics.TopicRef(name=name)])
    return (await storage.topics.delete_topics(wanted)).topics[0].error_code


async def delete_records(storage: Storage, topic: str, offset: int) -> data.DeleteRecordsResponse.Deleted:
    target = data.DeleteRecordsRequest.Target(topic=topic, partition=0, offset=offset)
    return (await storage.offsets.delete_records(data.DeleteRecordsRequest(targets=[target]))).partitions[0]


def values_of(log: PartitionLog) -> dict[int, bytes]:
    """Return the value of every record that consumers can read, by offset."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while content := log.read_batches(offset, 1 << 20):
        for header, batch in read_batches(content):
            found |= {record.offset: record.value or b"" for record in read_records(batch)}
            offset = header.last_offset + 1
    return {at: value for at, value in found.items() if log.log_start_offset <= at < log.high_watermark}
