"""The call Data.Records: the bytes of slices, from the segment files to the caller's socket.

All slices are found and their segments pinned before the first byte leaves. So a call that has begun an answer sends
all of it, even if retention, compaction or a deletion removes a segment meanwhile. A slice is checked like a read. It
must lie in a segment of an existing log, in the file that it names, and below the high watermark.

    limit                                       beyond it
    RECORDS_SLICES_MAX slices                   INVALID_ARGUMENT
    CALLS_MAX calls, half of the open segments  RESOURCE_EXHAUSTED: the caller reads by value
    CHUNK_MAX_S until a caller has read a chunk the connection is cut: segments would stay open for ever

A thread reads bytes that are not in memory before they are sent (cold_reads.py). Otherwise sendfile would wait for the
disk, and the event loop with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from broker_contract import data_pb2
from broker_contract.data import MACHINE_METADATA, RECORDS_SLICES_MAX
from broker_contract.frames import frame_prefix
from service_chassis import logs as service_logs
from service_chassis.grpc_server import ServerCall
from service_chassis.grpc_status import RpcError, Status
from service_chassis.machine import machine_id

from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.log_reader import Span
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.segment.open_segments import open_segments_max
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment_names import LOG_SUFFIX
from storage_svc.rpc.cold_reads import ColdReads

#: Most bytes of one chunk: any client of gRPC takes 4 MiB, and a frame of ours is as long.
CHUNK_BYTES_MAX: Final = (4 << 20) - (64 << 10)
#: Most bytes of a request: RECORDS_SLICES_MAX slices with the longest names of topics.
RECORDS_REQUEST_BYTES_MAX: Final = RECORDS_SLICES_MAX * 512
#: Most calls at once.
CALLS_MAX: Final = 1024
#: Seconds in which a caller has to read a chunk.
CHUNK_MAX_S: Final = 900.0

_log = service_logs.get(__name__)


class SliceSender:
    """The calls of one storage, on the event loop of its logs."""

    def __init__(self, logs: Mapping[tuple[str, int], PartitionLog], cold: ColdReads) -> None:
        self._logs = logs
        self._cold = cold
        #: Calls, and segments that they have pinned.
        self._calls = self._pinned = 0
        self._pinned_max = open_segments_max() // 2

    async def records(self, request: data_pb2.RecordsRequest, call: ServerCall) -> None:
        """Send the bytes of all slices, one after the other.

        Raises:
            RpcError: the slices cannot be sent, or a file could not be read.
        """
        slices = request.slices
        if not 0 < len(slices) <= RECORDS_SLICES_MAX or not all(each.length for each in slices):
            raise RpcError(Status.INVALID_ARGUMENT, f"{len(slices)} slices, or an empty one")
        if self._calls >= CALLS_MAX or self._pinned + len(slices) > self._pinned_max:
            raise RpcError(Status.RESOURCE_EXHAUSTED, "too many records are being sent")
        segments: list[Segment] = []
        self._calls += 1
        try:
            for each in slices:
                segments.append(self._pinned_segment(each))
            if machine_id() and (MACHINE_METADATA, machine_id()) in call.metadata:
                call.connection.send_without_pauses()
            for segment, each in zip(segments, slices, strict=True):
                await self._send(call, segment, each.position, each.length)
        except StorageFailure as error:
            _log.error("records not sent", reason=str(error))
            raise RpcError(Status.DATA_LOSS, str(error)) from error
        finally:
            self._calls -= 1
            self._pinned -= len(segments)
            for segment in segments:
                segment.unpin()

    def _pinned_segment(self, piece: data_pb2.RecordsRequest.Slice) -> Segment:
        segment = self._segment(piece)
        if segment is None:
            raise RpcError(Status.NOT_FOUND, "a slice is gone")
        segment.pin()
        self._pinned += 1
        return segment

    def _segment(self, piece: data_pb2.RecordsRequest.Slice) -> Segment | None:
        """Return the open segment that holds a slice; None if there is none any more."""
        folder, _, name = piece.path.partition("/")
        topic, _, partition = folder.rpartition("-")
        base = name.removesuffix(LOG_SUFFIX)
        if not all(each.isascii() and each.isdigit() and len(each) <= 20 for each in (partition, base)):
            return None
        log = self._logs.get((topic, int(partition)))
        if log is None or log.deleted or log.withheld:
            return None
        segment = log.segments[log.segments.index_of(int(base))]
        last = log.readable.segment
        if segment.relative_path != piece.path or segment.base_offset > last.base_offset:
            return None
        segment.open()
        end = log.readable.position if segment is last else segment.size
        if (
            segment.file_id != piece.file_id or piece.position + piece.length > end
        ):  # mutant: slice-below-high-watermark
            return None
        return segment

    async def _send(self, call: ServerCall, segment: Segment, position: int, length: int) -> None:
        end = position + length
        while position < end:
            size = min(end - position, CHUNK_BYTES_MAX)
            if self._cold.are_cold([[Span(segment, position, size)]]):
                call.begin()  # before the disk answers: the caller waits for it
                await self._cold.warm(segment, position, size)
            try:
                async with asyncio.timeout(CHUNK_MAX_S):
                    await call.write_file(frame_prefix(size), segment.descriptor, position, size)
            except TimeoutError:
                call.connection.abort("the caller does not read")
                raise RpcError(Status.DEADLINE_EXCEEDED, "the caller does not read") from None
            position += size
