"""The last 15 minutes of every topic and group: one sample each SAMPLE_S, for each admin-api to read.

A sample has the sums of each topic's partitions, the lag of each consumer group in records and in time (lag_times.py),
and the bytes of the volume. It is kept as admin-api receives it: rows in protobuf, compressed. 2,000 topics and 2,000
groups take 50 KB a sample. Rows after ROWS_MAX topics or groups are left out. Gateways report the bytes that they sent
to clients with each renewal of their leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker_contract import administration_pb2 as pb
from service_chassis import logs
from service_chassis.steps import TaskSteps

from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.log.disk.threads import Threads
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.rpc.lag_times import LagTimes
from storage_svc.topic_partition import TopicPartition

SAMPLE_S: Final = 15.0
SAMPLES: Final = 60
#: Topics, and groups, of a sample.
ROWS_MAX: Final = 4_000
#: Samples of one answer, each of which may have 500 KB.
_ANSWERED_MAX: Final = 4
#: Logs, groups and committed offsets that are read before other work gets a turn.
_STEP: Final = 200
_COMPRESSION: Final = 1

log = logs.get(__name__)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # wall clock: the times of samples, which charts show


class Samples:
    """The samples of one storage. The event loop owns it."""

    def __init__(
        self,
        directory: DataFolder,
        coordinator: GroupCoordinator,
        clock_ms: Callable[[], int] = _now_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._coordinator = coordinator
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._lag_times = LagTimes()
        #: Bytes that gateways sent to clients, of topics that exist, or did at the last sample.
        self._sent: Counter[str] = Counter()
        self._threads = Threads("samples", 1)
        self._kept: deque[pb.DescribeSamplesResponse.Sample] = deque(maxlen=SAMPLES)
        self._number = 0
        #: The number of this run: those of its samples mean nothing in another.
        self._run_id = time.time_ns()  # wall clock: another number for each process
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take a sample now, and each SAMPLE_S until `stop`."""
        self._task = asyncio.create_task(self._take_all(), name="samples")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def after(self, run_id: int, number: int) -> pb.DescribeSamplesResponse:
        """Return the oldest samples after one; the oldest of all after one of another run."""
        known = number if run_id == self._run_id else 0
        found = [each for each in self._kept if each.number > known]
        return pb.DescribeSamplesResponse(
            run_id=self._run_id, samples=found[:_ANSWERED_MAX], has_more=len(found) > _ANSWERED_MAX
        )

    def add_sent(self, sent: Mapping[str, int]) -> None:
        """Count bytes that a gateway has sent to clients, by topic."""
        self._sent.update(sent)

    async def lag_times(self, group_ids: Sequence[str]) -> pb.DescribeLagTimesResponse:
        """Return the lag of groups in time, in each partition where they have committed an offset."""
        answer = pb.DescribeLagTimesResponse()
        steps = TaskSteps(_STEP)
        for group_id in group_ids:
            group = answer.groups.add()
            error, found = self._coordinator.offsets.fetch(group_id, None)
            for (topic, partition), offset in [] if error else found:
                await steps.count()
                age_s = None if offset is None else self._age_s((topic, partition), offset.offset)
                if age_s is not None:
                    group.partitions.add(topic=topic, partition=partition, lag_ms=int(age_s * 1000))
        return answer

    def _age_s(self, key: TopicPartition, offset: int) -> float | None:
        log = self._directory.logs.get(key)
        if log is None or log.withheld:
            return None
        return self._lag_times.age_s(key, max(offset, log.log_start_offset), log.high_watermark, self._monotonic())

    async def take(self) -> None:
        """Take one sample. A volume that does not answer has none of its bytes in it."""
        at_ms = self._clock_ms()
        rows = pb.SampleRows()
        await self._add_topics(rows)
        await self._add_groups(rows)
        packed, total, usable = await self._threads.run(_packed, rows, self._directory.root)
        self._number += 1
        self._kept.append(
            pb.DescribeSamplesResponse.Sample(
                number=self._number, at_ms=at_ms, rows=packed, total_bytes=total, usable_bytes=usable
            )
        )

    async def _add_topics(self, rows: pb.SampleRows) -> None:
        steps = TaskSteps(_STEP)
        topics: dict[str, pb.SampleRows.Topic] = {}
        for each in list(self._directory.logs.values()):
            await steps.count()
            if each.withheld or each.offline is not None:
                continue
            topic = topics.get(each.topic)
            if topic is None:
                if len(topics) == ROWS_MAX:
                    continue
                topic = topics[each.topic] = rows.topics.add(name=each.topic)
            end = each.high_watermark
            topic.end_offsets += end
            topic.records += end - each.log_start_offset
            topic.bytes += each.segments.size_bytes
            topic.appended_bytes += each.appended_bytes
        self._sent = Counter({name: self._sent[name] for name in topics if name in self._sent})
        for name, sent_bytes in self._sent.items():
            topics[name].sent_bytes = sent_bytes

    async def _add_groups(self, rows: pb.SampleRows) -> None:
        if self._coordinator.is_loading():
            return
        steps = TaskSteps(_STEP)
        groups, times = self._coordinator.groups, self._lag_times
        times.begin()
        for group_id in list(groups):
            await steps.count()  # mutant: samples-in-turns
            hosted = groups.get(group_id)
            if hosted is None or hosted.entity.protocol_type not in ("", "consumer"):
                continue
            error, found = self._coordinator.offsets.fetch(group_id, None)
            if error or not found:
                continue
            if len(rows.groups) == ROWS_MAX:
                break
            lag, age_s = 0, 0.0
            for key, offset in found:
                partition = self._directory.logs.get(key)
                if partition is not None and not partition.withheld and offset is not None:
                    end = partition.high_watermark
                    times.note(key, end, self._monotonic())
                    lag += max(0, end - offset.offset)
                    age_s = max(age_s, self._age_s(key, offset.offset) or 0.0)
            rows.groups.add(group_id=group_id, lag=lag, lag_ms=int(age_s * 1000))
            await steps.count(len(found))
        times.finish()

    async def _take_all(self) -> None:
        while True:
            try:
                await self.take()
            except Exception:
                log.exception("no sample")
            await asyncio.sleep(SAMPLE_S)


def _packed(rows: pb.SampleRows, root: str) -> tuple[bytes, int, int]:
    """Return the rows, and the bytes of the volume: all of them and the usable ones, -1 where it does not answer."""
    packed = zlib.compress(rows.SerializeToString(), _COMPRESSION)
    try:
        disk = os.statvfs(root)
    except OSError:
        return packed, -1, -1
    return packed, disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
