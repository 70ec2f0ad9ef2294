"""The segment that a cleaning writes, next to those it replaces; in pieces that are synced one by one."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from storage_svc.log.batch.header import Header, unpack_header
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Buffer, Files
from storage_svc.log.disk.pace import Pace
from storage_svc.log.errors import Uncleanable
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.transaction_index import AbortedTransaction
from storage_svc.log.segment_names import CLEANED_SUFFIX

#: Written and synced in pieces of this size, so that no sync of the cleaner's keeps the disk from the others for long.
_WRITE: Final = 256 << 10
_POSITION_MAX: Final = 2**31 - 1


class CleanedOutput:
    """The new segment of a group. While a piece of it is synced in a thread, the next one is gathered, not written."""

    def __init__(
        self,
        files: Files,
        pace: Pace,
        config: LogConfig,
        folder: str,
        base_offset: int,
        now_ms: int,
        syncs: ThreadPoolExecutor,
    ) -> None:
        self._files = files
        self._pace = pace
        self._parts: list[Buffer] = []
        self._size = 0
        self._syncs = syncs
        self._sync: Future[None] | None = None
        self.segment = Segment.create(files, folder, base_offset, config, now_ms, suffix=CLEANED_SUFFIX)

    def add(self, batch: bytes) -> None:
        """Write a batch after the last one."""
        self._parts.append(batch)
        self._size += len(batch)
        if self._size >= _WRITE:
            self._write()

    def _write(self) -> None:
        segment, parts, size = self.segment, self._parts, self._size
        self._parts, self._size = [], 0
        if segment.size + size > _POSITION_MAX:
            raise Uncleanable(f"segment {segment.base_offset} would be larger than {_POSITION_MAX} bytes")
        self._pace.spend(size)
        self._end_sync()
        found = (Header._make(unpack_header(batch)) for batch in parts)
        segment.append(parts, size, ((header.size, header.last_offset, header.max_timestamp) for header in found))
        self._begin_sync()

    def _begin_sync(self) -> None:
        self._sync = self._syncs.submit(self._files.sync, self.segment.descriptor)  # mutant: compacted-segment-synced

    def _end_sync(self) -> None:
        """Wait until the bytes that were written are on the disk."""
        sync, self._sync = self._sync, None
        if sync is not None:
            sync.result()

    def finish(self, modified_ms: int, aborted: list[AbortedTransaction]) -> None:
        """Complete and on the disk, with this modification time; `aborted`: those whose markers it holds."""
        if self._size:
            self._write()
        self._end_sync()
        segment = self.segment
        for entry in aborted:
            segment.transaction_index.append(entry)
        segment.finish()
        self._files.set_modified_ms(segment.path, modified_ms)
        self._begin_sync()
        self._end_sync()
        segment.release()
        for path in segment.paths():
            if path != segment.path and self._files.exists(path):
                self._files.sync_path(path)
        self._files.sync_path(segment.folder)

    def discard(self) -> None:
        """Remove every file of the segment."""
        if self._sync is not None:
            wait((self._sync,))
        self.segment.release()
        for path in self.segment.paths():
            self._files.unlink(path)
