"""The Administration service: offsets of groups without members, samples, the segments of logs with the state of their
indexes, and the files of damaged bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Final

from broker_contract import administration_pb2 as pb
from broker_contract import groups_pb2

from storage_svc.log.disk.threads import Threads
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.scrub.scrubber import Scrubber
from storage_svc.log.segment.offset_index import ENTRY as OFFSET_ENTRY
from storage_svc.log.segment.time_index import ENTRY as TIME_ENTRY
from storage_svc.log.segment_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_stem
from storage_svc.rpc.groups import GroupsService
from storage_svc.rpc.quarantined_files import kept_files
from storage_svc.rpc.samples import Samples

#: Segments of one answer: about 200 KB.
SEGMENTS_MAX: Final = 1_000
#: Files of one answer about the scrub.
FILES_MAX: Final = 1_000
#: Segments that are read before other work gets a turn.
_STEP: Final = 2_000

_Place = tuple[str, int, int]
_Segment = pb.DescribeSegmentsResponse.Segment


@dataclass(frozen=True, slots=True)
class _Found:
    """A segment as the event loop knows it."""

    place: _Place
    folder: str
    size: int
    max_timestamp: int
    is_active: bool


class AdministrationService:
    def __init__(self, groups: GroupsService, directory: DataFolder, samples: Samples, scrubber: Scrubber) -> None:
        self._groups = groups
        self._scrubber = scrubber
        self.samples = samples
        self._directory = directory
        self._threads = Threads("segments", 1)

    async def alter_offsets(self, request: pb.AlterOffsetsRequest) -> pb.AlterOffsetsResponse:
        """Commit the offsets as a client that is no member; the coordinator refuses it while there are members."""
        done: asyncio.Future[groups_pb2.CommitOffsetsResponse] = asyncio.get_running_loop().create_future()
        commit = groups_pb2.CommitOffsetsRequest(
            group_id=request.group_id, generation_id=-1, retention_time_ms=-1, offsets=map(_offset, request.offsets)
        )

        def committed(answer: groups_pb2.CommitOffsetsResponse) -> None:
            if not done.done():  # the caller may have left
                done.set_result(answer)

        self._groups.commit_offsets(commit, committed)
        return pb.AlterOffsetsResponse(error_codes=(await done).error_codes)

    async def describe_samples(self, request: pb.DescribeSamplesRequest) -> pb.DescribeSamplesResponse:
        return self.samples.after(request.run_id, request.after)

    async def describe_lag_times(self, request: pb.DescribeLagTimesRequest) -> pb.DescribeLagTimesResponse:
        return await self.samples.lag_times(request.group_ids)

    async def describe_scrub(self, request: pb.DescribeScrubRequest) -> pb.DescribeScrubResponse:
        """Return the state of the scrub and the first files of damaged bytes. A thread reads the folders."""
        limit = min(max(request.limit, 1), FILES_MAX)
        logs = [(*key, each.folder) for key, each in sorted(self._directory.logs.items())]
        files = await self._threads.run(_kept, logs, limit + 1)
        totals = self._scrubber.totals
        return pb.DescribeScrubResponse(
            last_ms=self._scrubber.last_ms,
            next_ms=self._scrubber.next_ms,
            damaged_segments=totals.segments_damaged,
            unreadable_batches=totals.unreadable_batches,
            files=files[:limit],
            has_more=len(files) > limit,
        )

    async def describe_segments(self, request: pb.DescribeSegmentsRequest) -> pb.DescribeSegmentsResponse:
        """Return one page of segments. A thread reads the status of files."""
        after = request.after
        start = (after.topic, after.partition, after.base_offset) if request.HasField("after") else None
        limit = min(max(request.limit, 1), SEGMENTS_MAX)
        found: list[_Found] = []
        for number, each in enumerate(self._segments(request.topic, start), 1):
            found.append(each)
            if len(found) > limit:  # mutant: segments-paged
                break
            if not number % _STEP:
                await asyncio.sleep(0)
        segments = await self._threads.run(_described, found[:limit])
        return pb.DescribeSegmentsResponse(segments=segments, has_more=len(found) > limit)

    def _segments(self, topic: str, start: _Place | None) -> Iterator[_Found]:
        """Yield the segments after `start` in order. Logs that recovery withholds have none."""
        first = start[:2] if start is not None else ("", -1)
        keys = sorted(key for key in self._directory.logs if key >= first and (not topic or key[0] == topic))
        for key in keys:
            found = self._directory.logs.get(key)
            if found is not None and not found.withheld:
                yield from _segments_of(found, start)


def _segments_of(found: PartitionLog, start: _Place | None) -> Iterator[_Found]:
    active = found.segments.active
    for segment in list(found.segments):
        place = (found.topic, found.partition, segment.base_offset)
        if start is None or place > start:
            yield _Found(place, segment.folder, segment.size, segment.max_timestamp, segment is active)


def _offset(wanted: pb.AlterOffsetsRequest.Offset) -> groups_pb2.CommitOffsetsRequest.Offset:
    return groups_pb2.CommitOffsetsRequest.Offset(
        topic=wanted.topic,
        partition=wanted.partition,
        offset=wanted.offset,
        leader_epoch=wanted.leader_epoch,
        metadata=wanted.metadata,
    )


def _kept(logs: list[tuple[str, int, str]], limit: int) -> list[pb.DescribeScrubResponse.File]:
    """Return the first files in the quarantines of logs: topic, partition, folder."""
    files = (
        pb.DescribeScrubResponse.File(
            topic=topic, partition=partition, path=each.path, size_bytes=each.size, modified_ms=each.modified_ms
        )
        for topic, partition, folder in logs
        for each in kept_files(folder)
    )
    return list(islice(files, limit))


def _described(found: list[_Found]) -> list[_Segment]:
    """Return the segments with the sizes of their index files, and whether these can be right."""
    segments = []
    for each in found:
        topic, partition, base_offset = each.place
        stem = f"{each.folder}/{file_stem(base_offset)}"
        offset_bytes, (_, position) = _end(stem + INDEX_SUFFIX, OFFSET_ENTRY)
        time_bytes, (timestamp, _) = _end(stem + TIME_INDEX_SUFFIX, TIME_ENTRY)
        segments.append(
            _Segment(
                topic=topic,
                partition=partition,
                base_offset=base_offset,
                folder=each.folder,
                size_bytes=each.size,
                offset_index_bytes=max(offset_bytes, 0),
                time_index_bytes=max(time_bytes, 0),
                max_timestamp=timestamp if each.max_timestamp < 0 < time_bytes else each.max_timestamp,
                is_active=each.is_active,
                index_health=_health(each, offset_bytes, position, time_bytes, timestamp),
            )
        )
    return segments


def _health(
    found: _Found, offset_bytes: int, position: int, time_bytes: int, timestamp: int
) -> pb.DescribeSegmentsResponse.IndexHealth.ValueType:
    """Return the state of two index files, by their sizes and the last entry of each."""
    if found.is_active:
        return pb.DescribeSegmentsResponse.GROWING
    if offset_bytes < 0 or time_bytes < 0:
        return pb.DescribeSegmentsResponse.MISSING
    is_whole = offset_bytes % OFFSET_ENTRY.size == 0 and time_bytes % TIME_ENTRY.size == 0
    # A segment that was not read since the start has no timestamp here.
    is_inside = position < max(found.size, 1) and (found.max_timestamp < 0 or timestamp <= found.max_timestamp)
    return pb.DescribeSegmentsResponse.OK if is_whole and is_inside else pb.DescribeSegmentsResponse.DAMAGED


def _end(path: str, entry: Struct) -> tuple[int, tuple[int, ...]]:
    """Return a file's size and its last whole entry; -1 and zeros if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1, (0, 0)
    try:
        size = os.fstat(descriptor).st_size
        count = size // entry.size
        data = os.pread(descriptor, entry.size, (count - 1) * entry.size) if count else b""
        return size, entry.unpack(data) if len(data) == entry.size else (0, 0)
    except OSError:
        return -1, (0, 0)
    finally:
        os.close(descriptor)
