"""The last 15 minutes of every topic and group: one sample each SAMPLE_S, for each admin-api to read.

A sample has the sums of each topic's partitions, the lag of each consumer group, and the bytes of the volume. It is
kept as admin-api receives it: rows in protobuf, compressed. 2,000 topics and 2,000 groups take 40 KB a sample. Rows
after ROWS_MAX topics or groups are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Final

from broker_contract import administration_pb2 as pb
from service_chassis import logs
from service_chassis.steps import TaskSteps

from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.log.disk.threads import Threads
from storage_svc.log.folder.data_folder import DataFolder

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
        self, directory: DataFolder, coordinator: GroupCoordinator, clock_ms: Callable[[], int] = _now_ms
    ) -> None:
        self._directory = directory
        self._coordinator = coordinator
        self._clock_ms = clock_ms
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

    async def _add_groups(self, rows: pb.SampleRows) -> None:
        if self._coordinator.is_loading():
            return
        steps = TaskSteps(_STEP)
        groups = self._coordinator.groups
        for group_id in list(groups):
            await steps.count()  # mutant: samples-in-turns
            hosted = groups.get(group_id)
            if hosted is None or getattr(hosted.group, "protocol_type", "") not in ("", "consumer"):
                continue
            error, found = self._coordinator.offsets.fetch(group_id, None)
            if error or not found:
                continue
            if len(rows.groups) == ROWS_MAX:
                return
            lag = 0
            for key, offset in found:
                partition = self._directory.logs.get(key)
                if partition is not None and not partition.withheld and offset is not None:
                    lag += max(0, partition.high_watermark - offset.offset)
            rows.groups.add(group_id=group_id, lag=lag)
            await steps.count(len(found))

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
