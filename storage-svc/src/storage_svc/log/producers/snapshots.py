"""The producer snapshots of one log: `<folder>/<20 digits>.snapshot`, where segments begin and where a stop left it.

They alone tell of the producers whose batches were deleted (snapshot_file.py has the format).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.producers.snapshot_file import SNAPSHOT_SUFFIX
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment_names import file_stem


class ProducerSnapshots:
    """The stored producer states of one log, owned by its PartitionLog."""

    __slots__ = ("_files", "_folder", "_stored", "_synced")

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        #: The newest that is known to be synced.
        self._synced = ""
        # The offset of the snapshot that a clean stop left.
        self._stored = -1

    def note_stored(self, offset: int) -> None:
        """Note that the last stop stored the state as of this offset."""
        self._stored = offset

    def store_last(self, producers: ProducerState, offset: int) -> None:
        """Write their state as of the log's end, unless the last stop left it.

        Raises:
            StorageFailure: there is none.
        """
        if offset != self._stored:
            self.store(producers, offset)

    def store(self, producers: ProducerState, offset: int) -> list[str]:
        """Write their state as of the offset; the path to sync, or none where nothing was written yet.

        Raises:
            StorageFailure: there is none.
        """
        if offset == 0:
            return []
        path = self.path(offset)
        try:
            self._files.write_file(path, producers.encode())
        except StorageFailure:
            self._files.unlink(path)  # a part of it, which `newest` would count on
            raise
        return [path]

    def move(self, folder: str) -> None:
        """Note that the snapshots' folder has another path from now on."""
        self._folder, self._synced = folder, ""

    def path(self, offset: int) -> str:
        """Return the path of the snapshot that reaches to this offset."""
        return f"{self._folder}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"

    def note_synced(self, offset: int, paths: Collection[str]) -> None:
        """Note that these files were synced. If the snapshot of the offset is among them, `newest` need not sync it.

        A sync in `newest` would hold up the event loop.
        """
        path = self.path(offset)
        if path in paths:
            self._synced = path

    def to_sync(self, bases: Sequence[int]) -> str | None:
        """Return the path that `newest` would sync, so that a thread can; None if it would sync none."""
        for base in reversed(bases[1:]):
            path = self.path(base)
            if path == self._synced:
                return None
            if self._files.exists(path):
                return path
        return None

    def note_one_synced(self, path: str) -> None:
        """Note that a thread has synced this path of `to_sync`."""
        self._synced = max(self._synced, path)

    def newest(self, bases: Sequence[int]) -> int:
        """Return the index of the newest segment, by its base offset, that has a snapshot, and sync it; 0 if none has.

        Raises:
            StorageFailure: it could not be synced.
        """
        for index in range(len(bases) - 1, 0, -1):
            path = self.path(bases[index])
            if path == self._synced:
                return index
            if self._files.exists(path):
                self._files.sync_path(path)
                return index
        return 0
