"""What a partition's log asks of the data folder it lies in; data_folder.py is the one that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_contract.revisions import Revisions

from storage_svc.log.config import FlushPolicy
from storage_svc.log.disk.files import Files
from storage_svc.log.segment.open_segments import OpenSegments
from storage_svc.topic_partition import TopicPartition

if TYPE_CHECKING:
    from storage_svc.log.partition.partition_log import PartitionLog


class LogEnvironment(Protocol):
    """What every log of a data folder shares."""

    files: Files
    policy: FlushPolicy
    open_segments: OpenSegments
    revisions: Revisions

    def clock(self) -> int:
        """Now, in milliseconds since 1970."""

    def mark(self, log: PartitionLog) -> None:
        """The log has something to sync."""

    def mark_later(self, log: PartitionLog, delay_ms: int) -> None:
        """Ask the log for a sync when the delay is over."""

    def suspect(self, key: TopicPartition) -> None:
        """Have the log of this partition scrubbed: it holds a batch that is not what was written."""

    def note_deleted(self, size: int) -> None:
        """Count the bytes of segments that were deleted because their time was over."""

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        """Delete files when the delay is over."""
