"""Offsets of partitions: by timestamp, by leader epoch, and the log start offset moved up by deleting records.

A client that has an acknowledgement finds its records in the next answer. With acks=1 that acknowledgement may come
before the sync. So a request whose answer depends on the high watermark waits for the sync of all that was appended
before it came.

The service lives on the event loop's thread, as the logs do. Other threads look up records (look_ups.py) and write
checkpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from broker_contract import data_pb2 as pb
from protocol_lib.errors import DecodeError, ErrorCode
from service_chassis import logs as service_logs
from service_chassis.time_slices import Abandoned

from storage_svc.log.config import INTERNAL_TOPICS
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import drop_below_start
from storage_svc.log.partition.timestamps import segment_starts
from storage_svc.rpc.found_records import epoch_error
from storage_svc.rpc.look_ups import LookUps

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_HIGH_WATERMARK: Final = -1
#: The longest wait for a sync. Gateways wait twice as long for an answer.
SYNC_WAIT_S: Final = 5.0

_log = service_logs.get(__name__)


class OffsetsService:
    def __init__(self, directory: DataFolder) -> None:
        self._directory = directory
        self._logs = directory.logs
        #: The look-ups of records by timestamp.
        self.look_ups = LookUps()
        self._beginning: set[asyncio.Task[bool]] = set()

    async def _unsynced(self, partitions: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Wait until all that is written to these logs now is synced; return the partitions where it took too long.

        A log that is offline, deleted or unknown is not waited for.
        """
        waiting = {
            asyncio.ensure_future(log.durable(log.log_end_offset)): partition
            for partition in dict.fromkeys(partitions)
            if (log := self._logs.get(partition)) is not None and log.high_watermark < log.log_end_offset
        }
        if not waiting:
            return set()
        _, late = await asyncio.wait(waiting, timeout=SYNC_WAIT_S)
        for task in late:
            task.cancel()
        return {waiting[task] for task in late}

    # -- by timestamp -------------------------------------------------------------------------------------------------

    async def list_offsets(self, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        """Find offsets by timestamp, one answer per target; (-1, -1) where no record is that young."""
        unsynced = await self._unsynced(
            (target.topic, target.partition) for target in request.targets if target.timestamp != _EARLIEST
        )
        offsets = [
            _no_offset(ErrorCode.OFFSET_NOT_AVAILABLE)
            if (target.topic, target.partition) in unsynced and target.timestamp != _EARLIEST
            else await self._find_offset(target, request.isolation_level)
            for target in request.targets
        ]
        return pb.ListOffsetsResponse(offsets=offsets)

    async def _find_offset(
        self, target: pb.ListOffsetsRequest.Target, isolation_level: int
    ) -> pb.ListOffsetsResponse.Found:
        log = self._logs.get((target.topic, target.partition))
        if log is None:
            return _no_offset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if error := epoch_error(target.current_leader_epoch, log.leader_epoch):
            return _no_offset(error)
        if log.withheld:
            return _no_offset(ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            if target.segment_starts_max > 0:
                # wall clock: the timestamp of the end of a log
                starts = segment_starts(log, target.timestamp, target.segment_starts_max, self._directory.clock())
                return pb.ListOffsetsResponse.Found(timestamp=-1, offset=-1, leader_epoch=-1, segment_starts=starts)
            if target.timestamp == _EARLIEST:
                earliest = log.log_start_offset
                # The next record's epoch where there is none yet.
                epoch = log.epochs.at(earliest) if earliest < log.log_end_offset else log.leader_epoch
                return pb.ListOffsetsResponse.Found(timestamp=-1, offset=earliest, leader_epoch=epoch)
            latest = log.last_stable_offset if isolation_level else log.high_watermark
            if target.timestamp == _LATEST:
                return pb.ListOffsetsResponse.Found(timestamp=-1, offset=latest, leader_epoch=log.leader_epoch)
            if target.timestamp < 0 and target.timestamp != _MAX_TIMESTAMP:
                return _no_offset(ErrorCode.INVALID_REQUEST)
            if target.timestamp == _MAX_TIMESTAMP:
                record = await self.look_ups.largest(log)
            else:
                record = await self.look_ups.by_timestamp(log, target.timestamp)
            if log.deleted:
                return _no_offset(log.unavailable)
        except StorageFailure as error:
            _log.error("list offsets failed", log=log.folder, reason=str(error))
            return _no_offset(ErrorCode.KAFKA_STORAGE_ERROR)
        except Abandoned:
            return _no_offset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except DecodeError as error:
            _log.error("records unreadable", log=log.folder, reason=str(error))
            log.suspect()
            return _no_offset(ErrorCode.CORRUPT_MESSAGE)
        if record is None or record.offset >= latest:
            return _no_offset(0)
        return pb.ListOffsetsResponse.Found(
            timestamp=record.timestamp, offset=record.offset, leader_epoch=record.leader_epoch
        )

    # -- by leader epoch ----------------------------------------------------------------------------------------------

    async def end_epochs(self, request: pb.EndEpochsRequest) -> pb.EndEpochsResponse:
        """Find the ends of leader epochs, one answer per target; (-1, -1) for an epoch newer than the log's."""
        unsynced = await self._unsynced((target.topic, target.partition) for target in request.targets)
        return pb.EndEpochsResponse(
            ends=[
                pb.EndEpochsResponse.End(error_code=ErrorCode.OFFSET_NOT_AVAILABLE, leader_epoch=-1, end_offset=-1)
                if (target.topic, target.partition) in unsynced
                else self._end_epoch(target)
                for target in request.targets
            ]
        )

    def _end_epoch(self, target: pb.EndEpochsRequest.Target) -> pb.EndEpochsResponse.End:
        log = self._logs.get((target.topic, target.partition))
        error = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if log is None
            else epoch_error(target.current_leader_epoch, log.leader_epoch)
        )
        if log is None or error:
            return pb.EndEpochsResponse.End(error_code=error, leader_epoch=-1, end_offset=-1)
        epoch, end_offset = log.end_of_epoch(target.leader_epoch)
        return pb.EndEpochsResponse.End(leader_epoch=epoch, end_offset=end_offset)

    # -- deleting -----------------------------------------------------------------------------------------------------

    async def delete_records(self, request: pb.DeleteRecordsRequest) -> pb.DeleteRecordsResponse:
        """Delete the records below each target's offset: for readers, and for every later start, when this returns.

        Apache Kafka answers before its checkpoint is written; after a crash its deleted records may come back.
        """
        unsynced = await self._unsynced((target.topic, target.partition) for target in request.targets)
        starts: dict[PartitionLog, int] = {}
        answers = [
            (None, int(ErrorCode.REQUEST_TIMED_OUT))
            if (target.topic, target.partition) in unsynced
            else self._delete(target, starts)
            for target in request.targets
        ]
        if starts:
            beginning = asyncio.create_task(self._begin_logs(starts))
            self._beginning.add(beginning)
            beginning.add_done_callback(self._beginning.discard)
            if not await asyncio.shield(beginning):  # mutant: deletion-outlives-caller
                answers = [
                    (None, ErrorCode.KAFKA_STORAGE_ERROR if log is not None else error) for log, error in answers
                ]
            # Another request may have deleted the topic by now.
            answers = [(None, log.unavailable) if log is not None and log.deleted else (log, e) for log, e in answers]
        return pb.DeleteRecordsResponse(
            partitions=[
                pb.DeleteRecordsResponse.Deleted(
                    error_code=error, log_start_offset=-1 if log is None else log.log_start_offset
                )
                for log, error in answers
            ]
        )

    async def _begin_logs(self, starts: Mapping[PartitionLog, int]) -> bool:
        """Let logs begin at these offsets once that is stored; return whether it was.

        A task of its caller, which may be cancelled: stored offsets would otherwise apply at the next start.
        """
        stored = await self._directory.checkpoints.store_log_starts(starts)  # mutant: deletion-stored-first
        for log, start in starts.items() if stored else ():
            self._drop_segments(log, start)
        return stored

    def _delete(
        self, target: pb.DeleteRecordsRequest.Target, starts: dict[PartitionLog, int]
    ) -> tuple[PartitionLog | None, int]:
        """Note where the log begins from now on in `starts`; return the log, or the error.

        The checks are in Kafka's order. Nothing applies before it is stored: a refused deletion has deleted nothing.
        """
        if target.topic in INTERNAL_TOPICS:
            return None, ErrorCode.INVALID_TOPIC_EXCEPTION
        log = self._logs.get((target.topic, target.partition))
        if log is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if log.offline is not None:
            return None, ErrorCode.KAFKA_STORAGE_ERROR
        if log.config.cleanup_policy == {"compact"}:
            return None, ErrorCode.POLICY_VIOLATION
        offset = log.high_watermark if target.offset == _HIGH_WATERMARK else target.offset
        if not 0 <= offset <= log.high_watermark:
            return None, ErrorCode.OFFSET_OUT_OF_RANGE
        starts[log] = max(offset, starts.get(log, log.log_start_offset))
        return log, 0

    def _drop_segments(self, log: PartitionLog, start: int) -> None:
        if log.deleted:
            return
        log.raise_log_start(start)
        _log.info("records deleted", log=log.folder, log_start_offset=log.log_start_offset)
        try:
            drop_below_start(log)
        except StorageFailure as error:  # they are below the log start: retention tries again
            _log.warning("segments below the log start not deleted", log=log.folder, reason=str(error))


def _no_offset(error_code: int) -> pb.ListOffsetsResponse.Found:
    return pb.ListOffsetsResponse.Found(error_code=error_code, timestamp=-1, offset=-1, leader_epoch=-1)
