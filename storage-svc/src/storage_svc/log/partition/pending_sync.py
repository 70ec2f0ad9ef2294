"""The part of a log that is written and not synced yet, and one sync of it.

A new folder or segment is durable only once the folder that names it is: the paths are synced first.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Protocol

from storage_svc.log.config import FlushPolicy
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import NotThere, StorageFailure
from storage_svc.log.segment.segment import Segment


class SyncTarget:
    """The content of one sync of one log. Its segments are pinned; `run` is called in the flusher's thread."""

    __slots__ = (
        "end_offset",
        "failure",
        "largest",
        "paths",
        "position",
        "recovery_point",
        "segment",
        "segments",
        "written",
    )

    def __init__(
        self,
        segments: list[Segment],
        paths: Collection[str],
        recovery_point: int,
        active: Segment,
        end_offset: int,
        written: int,
    ) -> None:
        """Describe one sync, after which everything below `recovery_point` is on disk; the log ended at `end_offset` in
        `active`.
        """
        self.segments = segments
        self.paths = paths
        self.recovery_point = recovery_point
        self.segment = active
        self.position = active.size
        self.largest = active.max_timestamp, active.max_timestamp_offset
        self.end_offset = end_offset
        self.failure: StorageFailure | None = None
        #: The part of `PartitionLog.appended_bytes` that is on disk after this sync.
        self.written = written

    def descriptors(self) -> list[int] | None:
        """Return the open files to sync; None if there is anything else to sync."""
        if self.paths:
            return None
        found = [segment.descriptor for segment in self.segments]
        return None if -1 in found else found

    def run(self, files: Files) -> None:
        """Sync everything, one call after the other; the first failure ends it and is kept in `failure`."""
        try:
            for path in self.paths:
                with suppress(NotThere):  # an index of a segment that has been deleted since needs none
                    files.sync_path(path)
            for segment in self.segments:
                segment.sync(files)  # mutant: segment-synced
        except StorageFailure as error:
            self.failure = error  # mutant: sync-failure-kept
        except Exception as error:  # a bug; the thread must live on, or no record would ever be acknowledged
            self.failure = StorageFailure(f"{type(error).__name__}: {error}")


class Syncable(Protocol):
    """A log as its flusher sees it: `sync_target`, then the sync in a thread, then `synced`."""

    @property
    def folder(self) -> str:
        """The folder, which names the log in log lines."""

    @property
    def policy(self) -> FlushPolicy:
        """The policy: whether the log's writers wait for syncs."""

    def request_sync(self) -> None:
        """Have everything synced that is written when the flusher begins its next sync."""

    def sync_target(self) -> SyncTarget | None:
        """Return the content of the next sync, pinned; None when there is nothing to sync."""

    def synced(self, target: SyncTarget) -> None:
        """Accept the end of the sync of this target."""


class PendingSync:
    """The unsynced part of one log, owned by its PartitionLog."""

    __slots__ = ("_active", "_segments", "paths", "records")

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        #: Folders and files other than segments, in the order in which they are to be synced.
        self.paths: dict[str, None] = {}
        self._active = False
        #: Records written to the active segment since it was last synced; counted under `os` only.
        self.records = 0

    def add_paths(self, *paths: str) -> None:
        """Sync these folders and files too."""
        self.paths |= dict.fromkeys(paths)

    def add_segments(self, *segments: Segment) -> None:
        """Sync these segments too, which are older than the active one."""
        self._segments += segments
        for segment in segments:
            segment.awaits_sync = True

    def forget_segments(self, segments: list[Segment]) -> None:
        """Leave out these segments, which are deleted."""
        self._segments = [segment for segment in self._segments if segment not in segments]
        for segment in segments:
            segment.awaits_sync = False

    def include(self, active: Segment) -> None:
        """Have the next sync cover everything that is written to the active segment by then."""
        self._active = active.awaits_sync = True

    def take(self, active: Segment, end_offset: int, appended_bytes: int) -> SyncTarget | None:
        """Return the content of the next sync, pinned, and begin a new list; None when there is nothing to sync.

        The log ends at `end_offset` in `active`, and has got that number of bytes since it was opened.
        """
        segments, recovery_point = self._segments, active.base_offset
        if self._active:
            segments, recovery_point = [*segments, active], end_offset
            self.records = 0
        elif not segments and not self.paths:
            return None
        written = appended_bytes - (0 if self._active else active.size)  # mutant: unflushed-bytes
        target = SyncTarget(segments, self.paths, recovery_point, active, end_offset, written)
        self._segments, self.paths, self._active = [], {}, False
        for segment in segments:
            segment.pin()
            segment.awaits_sync = False
        return target

    def give_up(self, active: Segment) -> None:
        """Unpin every segment: no sync will cover it any more."""
        for segment in (*self._segments, active):
            segment.awaits_sync = False

    def put_back(self, target: SyncTarget) -> None:
        """Have the next sync cover everything that this one, which the system refused, was to cover."""
        active = target.segment
        self._segments[:0] = [segment for segment in target.segments if segment is not active and not segment.gone]
        self._active = self._active or active in target.segments
        for segment in target.segments:
            segment.awaits_sync = not segment.gone
        self.paths = dict.fromkeys(target.paths) | self.paths
