"""DescribeProducers: the producers of many logs, up to a number that no client is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_contract import logs_pb2 as pb
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.rpc.logs import LogsService

FIRST = pb.DescribeProducersRequest.Target(topic="t", partition=0)
NOWHERE = pb.DescribeProducersRequest.Target(topic="nowhere", partition=0)


async def test_an_answer_ends_with_the_log_that_makes_it_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataFolder.open(tmp_path, LogSettings())
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    for producer_id in range(3):
        end_transaction(log, producer_id, 0, commit=True, coordinator_epoch=0)
    service = LogsService(directory)
    request = pb.DescribeProducersRequest(targets=[FIRST, NOWHERE, FIRST, FIRST])
    counts = [len(each.producers) for each in (await service.describe_producers(request)).partitions]
    assert counts == [3, 0, 3, 3]
    monkeypatch.setattr("storage_svc.rpc.logs._PRODUCERS_MAX", 5)
    counts = [len(each.producers) for each in (await service.describe_producers(request)).partitions]
    assert counts == [3, 0, 3]
    await directory.close()
