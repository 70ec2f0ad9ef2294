"""The deletion of committed offsets with their topic.

An offset names the id of its topic. Once that topic is gone, or another one has its name, the offset is stale: no
client gets it (`is_current`), from memory or after any start. So its tombstone may come later. The event loop goes on
between the steps, and a tombstone that the log refuses is written again.

Records of older versions, and of commits with a retention time, name no id. They belong to the topics that the start
found (`identify`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from protocol_lib.internal.offset_commit import OffsetCommitValue
from protocol_lib.records.record import write_tail
from protocol_lib.schema import ZERO_UUID
from service_chassis import logs as service_logs

from storage_svc.coordinator.consumer.group import Topics
from storage_svc.coordinator.hosting.hosted_group import AnyGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.stored.offsets_log import LoadedPartition, OffsetsLog
from storage_svc.coordinator.stored.records import encode_offset_key
from storage_svc.topic_partition import TopicPartition

log = service_logs.get(__name__)

#: The offsets checked in one turn of the event loop: about 1 ms, and 5 ms when all of them are deleted.
STEP_OFFSETS: Final = 1000
#: Seconds until tombstones are written again that the log has refused.
RETRY_S: Final = 1.0


class DeletedTopics:
    """The offsets of topics that are gone. Owner: the coordinator, on the event loop."""

    def __init__(
        self, hosted: HostedGroups, offsets_log: OffsetsLog, topics: Topics, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._hosted = hosted
        self._offsets_log = offsets_log
        self._topics = topics
        self._now_ms = wall_clock_ms
        self._due = asyncio.Event()
        #: Whether the log has refused a tombstone since the last sweep began.
        self._refused = False

    def topic_ids(self) -> dict[str, bytes]:
        """Return the ids of all topics as they are now."""
        found = ((name, self._topics.get(name)) for name in self._topics.names())
        return {name: topic.id for name, topic in found if topic is not None}

    def is_current(self, key: TopicPartition, offset: OffsetCommitValue) -> bool:
        """Return whether the offset is of the topic that has its name now."""
        topic = self._topics.get(key[0])
        return topic is not None and topic.id == offset.topic_id  # mutant: offsets-of-topic-id

    def sweep(self) -> None:
        """Begin to write the tombstones of stale offsets."""
        self._due.set()

    async def run(self) -> None:
        """Write tombstones whenever `sweep` asks for them."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._refused = False
            try:
                await self._sweep()
            except Exception:
                log.exception("forgetting offsets of deleted topics failed")
                self._refused = True
            if self._refused:
                self._due.set()
                await asyncio.sleep(RETRY_S)

    async def _sweep(self) -> None:
        looked_at = 0
        # Tombstones of one partition and one turn are one batch.
        for hosted in sorted(self._hosted.by_id.values(), key=lambda each: each.partition):
            looked_at += 1 + len(hosted.offsets.durable)
            if self._hosted.by_id.get(hosted.entity.group_id) is hosted:
                self._forget_stale(hosted)
            if looked_at >= STEP_OFFSETS:
                looked_at = 0
                await asyncio.sleep(0)

    def _forget_stale(self, hosted: AnyGroup) -> None:
        stale = hosted.offsets.stale(self.is_current)
        if stale:
            group_id = hosted.entity.group_id
            tails = [write_tail(encode_offset_key(group_id, *key), None) for key in stale]
            # wall clock: timestamps of tombstones
            self._offsets_log.gather(hosted.partition, tails, self._now_ms(), partial(self._written, hosted))

    def _written(self, hosted: AnyGroup, code: int) -> None:
        if code:
            self._refused = True
            self._due.set()
        else:
            hosted.offsets.forget(hosted.offsets.stale(self.is_current))
            self._hosted.forget_if_unused(hosted)


def identify(loaded: LoadedPartition, topic_ids: Mapping[str, bytes]) -> None:
    """Give offsets without a topic's id the one that their topic had at the start; without one they are stale."""
    opened = (loaded.opened.values(group_id) for group_id in loaded.opened.groups)
    for offsets in (*(each.items() for each in loaded.offsets.values()), *opened):
        for (topic, _), value in offsets:
            if value.topic_id == ZERO_UUID:
                value.topic_id = topic_ids.get(topic, ZERO_UUID)
