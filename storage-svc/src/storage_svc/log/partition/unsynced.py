"""What of a log is written and not synced yet, and one sync of it.

A new folder or segment is durable only once the folder that names it is: their paths are synced first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from storage_svc.log.config import FOREVER
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.environment import LogEnvironment
from storage_svc.log.segment.segment import Segment

if TYPE_CHECKING:
    from storage_svc.log.partition.partition_log import PartitionLog


class SyncTarget:
    """What one sync of one log covers. Its segments are pinned; `run` is called in the flusher's thread."""

    __slots__ = ("end_offset", "failure", "log", "paths", "position", "recovery_point", "segment", "segments")

    def __init__(self, log: PartitionLog, segments: list[Segment], paths: Collection[str], recovery_point: int) -> None:
        self.log = log
        self.segments = segments
        self.recovery_point = recovery_point
        self.end_offset = log.log_end_offset
        self.segment = log.segments.active
        self.position = log.segments.active.size
        self.failure: StorageFailure | None = None
        self.paths = paths

    def descriptors(self) -> list[int] | None:
        """Of the files to sync, if open files are all there is to it."""
        if self.paths:
            return None
        found = [segment.descriptor for segment in self.segments]
        return None if -1 in found else found

    def run(self, files: Files) -> None:
        try:
            for path in self.paths:
                if files.exists(path):  # an index of a segment that was deleted meanwhile needs none
                    files.sync_path(path)
            for segment in self.segments:
                segment.sync(files)
        except StorageFailure as error:
            self.failure = error
        except Exception as error:  # a bug; the thread must live on, or nobody's records would ever be acknowledged
            self.failure = StorageFailure(f"{type(error).__name__}: {error}")


class Unsynced:
    """Owned by its PartitionLog."""

    __slots__ = ("_active", "_paths", "_segments", "records")

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._paths: dict[str, None] = {}
        self._active = False
        #: Records written to the active segment since it was last synced; counted under `os` only.
        self.records = 0

    def add_paths(self, *paths: str) -> None:
        self._paths |= dict.fromkeys(paths)

    def add_segments(self, *segments: Segment) -> None:
        """Segments behind the active one."""
        self._segments += segments

    def forget_segments(self, segments: list[Segment]) -> None:
        """They are deleted."""
        self._segments = [segment for segment in self._segments if segment not in segments]

    def include_active(self) -> None:
        """The next sync covers what is written to the active segment by then."""
        self._active = True

    def note_written(self, log: PartitionLog, records: int, environment: LogEnvironment) -> None:
        """Under `os`: a sync is asked for only when the topic's flush.messages or flush.ms say so, or for a folder."""
        if self.records == 0 and log.config.flush_ms != FOREVER:
            environment.mark_later(log, log.config.flush_ms)
        self.records += records
        if self.records >= log.config.flush_messages:
            log.request_sync()
        elif self._paths:
            environment.mark(log)

    def take(self, log: PartitionLog) -> SyncTarget | None:
        """What to sync now, pinned; None when there is nothing."""
        segments, recovery_point = self._segments, log.segments.active.base_offset
        if self._active:
            segments, recovery_point = [*segments, log.segments.active], log.log_end_offset
            self.records = 0
        elif not segments and not self._paths:
            return None
        target = SyncTarget(log, segments, self._paths, recovery_point)
        self._segments, self._paths, self._active = [], {}, False
        for segment in segments:
            segment.pin()
        return target
