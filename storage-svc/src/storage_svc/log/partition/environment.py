"""The services that a partition's log gets from the data folder it lies in; data_folder.py implements them."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from broker_contract.revisions import Revisions

from storage_svc.log.batch.room import Room
from storage_svc.log.config import FlushPolicy
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.pending_sync import Syncable
from storage_svc.log.segment.open_segments import OpenSegments
from storage_svc.topic_partition import TopicPartition


class DeletionReason(StrEnum):
    """The reason why a segment goes."""

    #: All its records lie below the log start offset: DeleteRecords has raised that.
    LOG_START = "log_start"
    #: `retention.bytes`
    SIZE = "size"
    #: `retention.ms`
    TIME = "time"


class LogEnvironment(Protocol):
    """The parts and steps that all logs of a data folder share."""

    files: Files
    policy: FlushPolicy
    open_segments: OpenSegments
    revisions: Revisions
    room: Room

    def clock(self) -> int:
        """Return the present time in milliseconds since 1970."""

    def mark(self, log: Syncable) -> None:
        """Put the log on its flusher's list: it has something to sync."""

    def mark_later(self, log: Syncable, delay_ms: int) -> None:
        """Ask the log for a sync when the delay is over."""

    def suspect(self, key: TopicPartition) -> None:
        """Have the log of this partition scrubbed: a batch in it differs from the one that was written."""

    def note_failed_write(self) -> None:
        """Note that the system may have lost records which it accepted."""

    def note_deleted(self, size: int, reason: DeletionReason) -> None:
        """Count the bytes of a segment that was deleted."""

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        """Delete files when the delay is over."""
