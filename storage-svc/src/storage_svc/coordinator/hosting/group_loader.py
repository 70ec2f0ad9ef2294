"""Groups come from the offsets topic at start, a partition at a time, and go when their partition is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from service_chassis import logs as service_logs

from storage_svc.coordinator.hosting.deleted_topics import DeletedTopics, identify
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.hosting.load_order import LoadOrder
from storage_svc.coordinator.hosting.served_partitions import ServedPartitions
from storage_svc.coordinator.stored.offsets_log import OffsetsLog, load
from storage_svc.log.partition.partition_log import PartitionLog

log = service_logs.get(__name__)


class GroupLoader:
    """The loading of all groups. Owner: the coordinator, on the event loop."""

    def __init__(self, offsets_log: OffsetsLog, hosted: HostedGroups, deleted_topics: DeletedTopics) -> None:
        self._offsets_log = offsets_log
        self._hosted = hosted
        self._deleted_topics = deleted_topics
        self.partitions = ServedPartitions()
        offsets_log.on_offline = self._on_offline

    def start(self, order: LoadOrder) -> asyncio.Task[None]:
        """Begin to load; the returned task ends when everything is loaded, or has failed."""
        logs = self._offsets_log.to_load()
        self.partitions.begin_loading({each.partition: each.segments.size_bytes for each in logs})
        return asyncio.create_task(self._load(order, logs, self._deleted_topics.topic_ids()), name="load groups")

    async def _load(self, order: LoadOrder, logs: Sequence[PartitionLog], topic_ids: Mapping[str, bytes]) -> None:
        async def load_groups(each: PartitionLog) -> None:
            loaded = await load(each)
            # default threads: computes; nothing waits for a disk
            await asyncio.to_thread(identify, loaded, topic_ids)
            await self._hosted.install(each.partition, loaded, partial(self.partitions.is_lost, each.partition))

        await order.load(self.partitions, logs, load_groups)
        self._deleted_topics.sweep()
        if logs:
            log.info("groups loaded", groups=len(self._hosted.by_id), partitions=len(logs))

    def _on_offline(self, partition: int, reason: str) -> None:
        """Stop serving groups of a partition whose memory may be ahead of the log. Callers that wait for its records
        are answered first."""
        if self.partitions.lost(partition, reason):
            asyncio.get_running_loop().call_soon(self._unload, partition)

    def _unload(self, partition: int) -> None:
        groups = self._hosted.unload(partition)
        log.error("groups are not served any more", partition=partition, groups=groups)
