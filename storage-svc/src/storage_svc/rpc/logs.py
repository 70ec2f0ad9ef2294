"""The Logs service: producers that a log remembers, and the data folder with the size of each log."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from broker_contract import logs_pb2 as pb
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.log.disk.threads import Threads
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.producers.state import Producer

log = service_logs.get(__name__)

#: Logs or producers that are described before other work gets a turn.
_STEP: Final = 2_000
#: Producers of one answer. The gateway sends no client more than 170,000, and needs no logs after these.
_PRODUCERS_MAX: Final = 200_000


class LogsService:
    def __init__(self, directory: DataFolder) -> None:
        self._directory = directory
        self._root = os.path.abspath(directory.root)
        self._threads = Threads("log-dirs", 1)

    async def describe_producers(self, request: pb.DescribeProducersRequest) -> pb.DescribeProducersResponse:
        """Return the producers of each log named, or why there are none; of fewer logs if there are too many."""
        response, count = pb.DescribeProducersResponse(), 0
        for target in request.targets:
            found = self._directory.logs.get((target.topic, target.partition))
            if found is None:
                response.partitions.add(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif found.withheld or found.offline is not None:
                response.partitions.add(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                described = await _producers(found)
                response.partitions.append(described)
                count += len(described.producers)
                if count > _PRODUCERS_MAX:
                    break
        return response

    async def describe_log_dirs(self, request: pb.DescribeLogDirsRequest) -> pb.DescribeLogDirsResponse:  # noqa: ARG002
        """Return the data folder and all of its logs."""
        root = self._root
        try:
            disk = await self._threads.run(os.statvfs, root)
        except OSError as error:
            log.error("cannot describe the data folder", reason=str(error))
            return pb.DescribeLogDirsResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, path=root)
        response = pb.DescribeLogDirsResponse(
            path=root, total_bytes=disk.f_blocks * disk.f_frsize, usable_bytes=disk.f_bavail * disk.f_frsize
        )
        topics: dict[str, pb.DescribeLogDirsResponse.Topic] = {}
        for number, each in enumerate(list(self._directory.logs.values()), 1):
            topic = topics.get(each.topic)
            if topic is None:
                topic = topics[each.topic] = response.topics.add(name=each.topic)
            is_offline = each.withheld or each.offline is not None
            size = 0 if each.withheld else each.segments.size_bytes
            topic.partitions.add(partition=each.partition, size_bytes=size, is_offline=is_offline)
            if not number % _STEP:
                await asyncio.sleep(0)
        return response


async def _producers(found: PartitionLog) -> pb.DescribeProducersResponse.Partition:
    partition = pb.DescribeProducersResponse.Partition()
    for number, (producer_id, producer) in enumerate(list(found.producers.producers.items()), 1):
        partition.producers.append(_producer(producer_id, producer))
        if not number % _STEP:
            await asyncio.sleep(0)
    return partition


def _producer(producer_id: int, producer: Producer) -> pb.DescribeProducersResponse.Producer:
    return pb.DescribeProducersResponse.Producer(
        id=producer_id,
        epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
        last_timestamp=producer.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        transaction_first_offset=producer.transaction_first_offset,
    )
