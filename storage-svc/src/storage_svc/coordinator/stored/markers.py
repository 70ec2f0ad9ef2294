"""Markers of transactions as they reach the logs and, in `__consumer_offsets`, the groups.

A marker that begins a segment waits until the one before it is durable. A marker that was refused or lost is written
again by its caller: a second one changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.log.errors import NotNow
from storage_svc.log.partition.partition_log import Appended, PartitionLog, Retry
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.names import OFFSETS_TOPIC
from storage_svc.transaction_ports import Marker

Done = Callable[[ErrorCode], None]

_log = service_logs.get(__name__)


def write_marker(log: PartitionLog, marker: Marker) -> Appended | Retry:
    """Write a marker to a log; the result may be AFTER_SYNC.

    One of our own coordinator has at least the coordinator epoch of the producer's last one.
    """
    coordinator_epoch = marker.coordinator_epoch
    if marker.is_own and (producer := log.producers.producers.get(marker.producer_id)) is not None:
        coordinator_epoch = max(coordinator_epoch, producer.coordinator_epoch)  # mutant: coordinator-epoch-kept
    return end_transaction(
        log,
        marker.producer_id,
        marker.producer_epoch,
        commit=marker.commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=marker.transaction_version,
        may_wait=True,
    )


class LogMarkerWriter:
    """The `MarkerWriter` over all logs of this process, on the event loop."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        end_in_groups: Callable[[int, Marker, Done], None],
    ) -> None:
        """Write the markers of `__consumer_offsets` by `end_in_groups`, which gets the partition."""
        self._logs = logs
        self._end_in_groups = end_in_groups
        self._loop = asyncio.get_running_loop()

    def write(self, partition: TopicPartition, marker: Marker, done: Done) -> None:
        """Write a marker, as `transaction_ports.MarkerWriter` states."""
        topic, index = partition
        if topic == OFFSETS_TOPIC:  # writes may wait for its logs to be made
            self._end_in_groups(index, marker, done)
        elif (log := self._logs.get(partition)) is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            self._write(log, marker, done)

    def _write(self, log: PartitionLog, marker: Marker, done: Done) -> None:
        try:
            appended = write_marker(log, marker)
        except Exception as error:  # a bug; the transaction must end all the same
            _log.exception("marker not written", log=log.folder)
            log.drop_staged(NotNow(str(error)))
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if isinstance(appended, Retry):
            log.on_durable(log.log_end_offset, lambda _: self._again(log, marker, done))
        elif appended.error_code:
            done(ErrorCode(appended.error_code))
        else:
            log.on_durable(appended.last_offset + 1, lambda code: done(ErrorCode(code)))

    def _again(self, log: PartitionLog, marker: Marker, done: Done) -> None:
        """Write the marker when other callbacks of the same sync have run."""
        self._loop.call_soon(self._write, log, marker, done)
