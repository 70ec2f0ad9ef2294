"""One segment: a `.log` file of consecutive record batches, its offset index and its time index.

    00000000000000000000.log   00000000000000000000.index   00000000000000000000.timeindex    (20 digits: base offset)

Batches are found through the index and by walking headers from there. The index entries of a batch are added when it
starts more than `index.interval.bytes` after the last indexed batch. So rebuilding the indexes from the log gives the
same bytes. The indexes are opened at the first look-up and their ends compared with the log. Later every entry that is
followed is compared with the batch it leads to. Indexes that do not agree are rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from random import random
from typing import Final

from service_chassis import logs

from storage_svc.log.batch.header import WALK_CHUNK, Header, headers
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Buffer, Files
from storage_svc.log.errors import DiskFull, NotNow, Refused, StorageFailure
from storage_svc.log.segment.index_agreement import ends_agree
from storage_svc.log.segment.offset_index import OffsetIndex
from storage_svc.log.segment.open_segments import OpenSegments
from storage_svc.log.segment.time_index import TimeIndex
from storage_svc.log.segment.transaction_index import TransactionIndex
from storage_svc.log.segment_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_SEAL_SUFFIX,
    file_stem,
)

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1

_log = logs.get(__name__)


class Segment:
    """A segment, owned by its PartitionLog.

    `size` counts whole batches; bytes of a failed write are cut off at once.
    """

    __slots__ = (
        "_age_max_ms",
        "_bytes_since_index",
        "_checked",
        "_closing",
        "_complete",
        "_entries_max",
        "_files",
        "_growing",
        "_index_interval",
        "_jitter",
        "_loaded",
        "_pins",
        "_stem",
        "_suffix",
        "awaits_sync",
        "base_offset",
        "created_ms",
        "descriptor",
        "file_id",
        "first_timestamp",
        "folder",
        "gone",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "registry",
        "relative_path",
        "size",
        "time_index",
        "transaction_index",
        "uncut",
        "used",
    )

    def __init__(
        self,
        files: Files,
        folder: str,
        base_offset: int,
        config: LogConfig,
        created_ms: int,
        *,
        suffix: str = "",
    ) -> None:
        self._files = files
        self.folder = folder
        self.base_offset = base_offset
        self._stem = f"{folder}/{file_stem(base_offset)}"
        self.descriptor = -1
        self.size = 0
        #: Whether bytes of a failed write are left after `size`, as they could not be cut off yet.
        self.uncut = False
        self.created_ms = created_ms
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(files, "", base_offset, index_bytes)
        self.time_index = TimeIndex(files, "", base_offset, index_bytes)
        self.transaction_index = TransactionIndex(files, "")
        self.rename(suffix)
        # The number of entries that fit into either index.
        self._entries_max = min(self.offset_index.entries_max, self.time_index.entries_max)
        self._jitter = random()
        self.configure(config)
        self._bytes_since_index = 0
        # Whether batches are appended to it, the indexes are open, and were seen to agree with the log.
        self._growing = self._loaded = self._checked = False
        # Whether a clean stop completed the index files, and nothing was looked up or appended since.
        self._complete = False
        self._pins = 0
        #: No part of its log any more: its files have other names.
        self.gone = False
        self._closing = False
        self.file_id = 0
        #: Whether a sync that was requested has yet to cover it: its descriptor stays open.
        self.awaits_sync = False
        #: Whether it was used since OpenSegments last looked for segments to release.
        self.used = False
        #: The open segments of all logs, which this one joins when it opens and leaves when it closes.
        self.registry: OpenSegments | None = None

    @classmethod
    def create(
        cls, files: Files, folder: str, base_offset: int, config: LogConfig, now_ms: int, *, suffix: str = ""
    ) -> Segment:
        """Create an empty segment; files that have its names are dropped."""
        segment = cls(files, folder, base_offset, config, now_ms, suffix=suffix)
        segment.open(create=True)
        try:
            if segment.size:
                files.truncate(segment.descriptor, 0)
                segment.size = 0
            segment._growing = True
            segment.restart_indexes()
            segment.transaction_index.restart()
        except StorageFailure:
            segment.close()
            raise
        return segment

    def rename(self, suffix: str) -> None:
        """Let the names of the segment's files end in this suffix from now on; open files stay open."""
        self._suffix = suffix
        self.path = f"{self._stem}{LOG_SUFFIX}{suffix}"
        self.relative_path = "/".join(self.path.rsplit("/", 2)[1:])
        self.offset_index.file.path = f"{self._stem}{INDEX_SUFFIX}{suffix}"
        self.time_index.file.path = f"{self._stem}{TIME_INDEX_SUFFIX}{suffix}"
        self.transaction_index.file.path = f"{self._stem}{TRANSACTION_INDEX_SUFFIX}{suffix}"
        self.transaction_index.seal_path = f"{self._stem}{TRANSACTION_SEAL_SUFFIX}{suffix}"

    def move(self, folder: str) -> None:
        """Note that the segment's folder has another path from now on; open files stay open."""
        self.folder = folder
        self._stem = f"{folder}/{file_stem(self.base_offset)}"
        self.rename(self._suffix)

    def open(self, *, create: bool = False) -> None:
        """Open the `.log` file, if it is not open."""
        if self.descriptor < 0:
            try:
                descriptor = self._files.open(self.path, create=create)
            except NotNow:
                if self.registry is None or not self.registry.release_some():
                    raise
                descriptor = self._files.open(self.path, create=create)
            try:
                status = self._files.status(descriptor)
            except StorageFailure:
                self._files.close(descriptor)
                raise
            self.descriptor = descriptor
            self.file_id = status.st_ino
            if not self.uncut:
                self.size = status.st_size
            if self.registry is not None:
                self.registry.add(self)
        self.used = True

    def configure(self, config: LogConfig) -> None:
        """Use these settings for the index interval and the age at which to roll."""
        self._index_interval = config.index_interval_bytes
        self._age_max_ms = config.segment_ms - int(self._jitter * min(config.segment_jitter_ms, config.segment_ms))

    def must_roll(
        self,
        staged: int,
        first_staged: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        config: LogConfig,
        now_ms: int,
    ) -> bool:
        """Return whether a batch with these properties belongs in a new segment; `has_index_room` must come first.

        `staged` bytes will be written before it, the first batch of them with the timestamp `first_staged`. The order
        and the terms are Kafka's (LogSegment.shouldRoll).
        """
        used = self.size + staged
        if used == 0:
            return False
        if not self._loaded:
            self.load()
        first = self.first_timestamp if self.size else first_staged
        return (
            used + size > config.segment_bytes
            or (max_timestamp - first if first >= 0 else now_ms - self.created_ms) > self._age_max_ms
            or self.offset_index.file.count >= self.offset_index.entries_max
            or self.time_index.file.count >= self.time_index.entries_max
            or last_offset - self.base_offset > _RELATIVE_OFFSET_MAX
        )

    def has_index_room(self, staged_batches: int) -> bool:
        """Return whether both indexes have room for that many batches: if so, `must_roll` needs their size only."""
        return self.offset_index.file.count + staged_batches < self._entries_max

    def locate(self, offset: int) -> tuple[int, Header] | None:
        """Return (position, header) of the first batch that ends at or after the offset."""
        if not self._loaded or self.descriptor < 0:
            self.load()
        self.used = True
        entry = self.offset_index.lookup(offset)
        unchecked = entry is not None
        for position, header in self.walk(entry[1] if entry else 0):
            last_offset = header.base_offset + header.last_offset_delta
            if unchecked and entry and last_offset != entry[0]:
                break
            unchecked = False
            if last_offset >= offset:
                return position, header
        if not unchecked:
            return None
        self.rebuild_damaged()
        return self.locate(offset)

    def headers(self) -> Iterator[tuple[int, Header]]:
        """Yield (position, header) of each batch of an open segment, as far as they follow each other."""
        return headers(self._files, self.descriptor, 0, self.size)

    def walk(self, position: int) -> Iterator[tuple[int, Header]]:
        """Yield batches from there on; none from a position that a damaged index invented."""
        return headers(self._files, self.descriptor, position if position >= 0 else self.size, self.size, WALK_CHUNK)

    def read(self, position: int, length: int) -> bytes:
        """Return `length` bytes at `position`, after opening the file if need be."""
        self.open()
        return self._files.read(self.descriptor, length, position)

    def append(self, parts: list[Buffer], size: int, batches: Iterable[tuple[int, int, int]]) -> None:
        """Write batches after the last one: these parts, of this size.

        `batches` has the size, the last offset and the largest timestamp of each.

        Raises:
            Refused: none of them is left, or `uncut` is set; until the next sync a power cut may bring them back.
            StorageFailure: the file cannot be trusted with more.
        """
        if self._files.keeps_space:
            raise DiskFull("cannot write to a file: the last space of the disk is kept for deletions")
        if not self._loaded or self.descriptor < 0:
            self.load()
        self.used = True
        if self.uncut:
            self.cut()
        try:
            self._files.append(self.descriptor, parts, self.size, size)
        except StorageFailure:
            self.uncut = True
            with suppress(Refused):  # mutant: half-batch-cut
                self._cut()
            raise
        position, note = self.size, self.note
        for batch_size, last_offset, max_timestamp in batches:
            note(position, batch_size, last_offset, max_timestamp)
            position += batch_size
        self.size = position

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Note a batch of the file: look-ups and rolling need it."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_index > self._index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def cut(self) -> None:
        """Cut off the bytes of a failed write that are still there, for good.

        Raises:
            Refused: they are left.
            StorageFailure: the file cannot be trusted with more.
        """
        self.open()
        self._cut()
        self._files.sync(self.descriptor)

    def _cut(self) -> None:
        self._files.truncate(self.descriptor, self.size)
        self.uncut = False

    def largest_timestamp(self) -> tuple[int, int]:
        """Return (timestamp, last offset of its batch) of the youngest record; (-1, base offset) without timestamps."""
        if not self._checked:
            self.load()
        return self.max_timestamp, self.max_timestamp_offset

    def load(self) -> None:
        """Make the file and the indexes ready for look-ups."""
        self.open()
        if self._loaded:
            return
        self._complete = False
        if self._open_indexes() and (self._checked or self._indexes_agree()):
            self._loaded = self._checked = True
        else:
            self.rebuild_damaged()
        if self._growing and self.first_timestamp < 0:
            for _, header in headers(self._files, self.descriptor, 0, self.size, WALK_CHUNK):
                self.first_timestamp = header.max_timestamp
                break

    def _open_indexes(self) -> bool:
        growing = self._growing
        try:
            whole = [index.file.load(growing=growing) for index in (self.offset_index, self.time_index)]
            return all(growing if each is None else each for each in whole)
        except StorageFailure as error:  # pages that cannot be read: other ones are written
            _log.error("index unreadable", segment=self.relative_path, reason=str(error))
            return False

    def _indexes_agree(self) -> bool:
        """Return whether the indexes can be believed; set the fields that `note` would have set."""
        indexes = self.offset_index, self.time_index
        if not ends_agree(self._files, self.descriptor, self.size, *indexes, self._index_interval):
            return False
        entry = self.offset_index.last
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last or (-1, self.base_offset)
        self._bytes_since_index = self.size - (entry[1] if entry else 0)
        return True

    def rebuild_damaged(self) -> None:
        """Rebuild indexes that contradict the batches, and log that."""
        _log.warning("index rebuilt", segment=self.relative_path)
        self.rebuild()

    def rebuild(self) -> None:
        """Make both indexes again from the batches' headers; the segment's batches are known to be whole."""
        self.restart_indexes()
        for position, header in headers(self._files, self.descriptor, 0, self.size):
            self.note(position, header.size, header.last_offset, header.max_timestamp)
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        if self._growing:
            return
        try:
            self.offset_index.file.complete()
            self.time_index.file.complete()
        except StorageFailure as error:  # they are in memory until the segment is released
            _log.warning("index not written", segment=self.relative_path, reason=str(error))

    def restart_indexes(self) -> None:
        """Empty both indexes and forget timestamps: `note` every batch from position 0 next."""
        self.offset_index.file.restart()
        self.time_index.file.restart()
        self.max_timestamp = self.first_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self._bytes_since_index = 0
        self._loaded = self._checked = True

    def load_for_append(self) -> None:
        """Load the segment, to append to it. The first batch's timestamp, which decides when to roll, is loaded too."""
        self._growing = True
        self.load()

    def rest(self) -> None:
        """Release the active segment that a clean stop left: the first append or look-up loads it."""
        self._growing = self._complete = True
        self.release()

    def finish(self) -> None:
        """Complete the index files, with an entry for the largest timestamp: no batch will be added.

        Raises:
            StorageFailure: the index files are not; they will be rebuilt when they are needed.
        """
        if self.uncut:
            self.cut()
        self.transaction_index.seal()
        if not self._loaded:
            if not self._growing or self._complete:
                self._growing = False
                return
            self.load()
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self._growing = self._loaded = self._checked = False
        self.offset_index.file.finish()
        self.time_index.file.finish()

    def release(self) -> None:
        """Give back memory and descriptors until the next look-up; entries that a growing index has not written are
        lost.
        """
        self.offset_index.file.release()  # loaded or not: one that could not be finished is open still
        self.time_index.file.release()
        self._loaded = False
        self.transaction_index.release()
        self.close()

    def release_unused(self) -> bool:
        """Write the entries that the index files lack, then release; return whether that was possible."""
        if self._pins or self.uncut or self.awaits_sync:  # mutant: close-after-sync
            return False
        if self._growing and self._loaded:
            try:
                self.offset_index.file.persist()
                self.time_index.file.persist()
            except StorageFailure as error:
                _log.warning("index not written", segment=self.relative_path, reason=str(error))
                return False
        self.release()
        return True

    def pin(self) -> None:
        """Keep the descriptor open while another thread syncs it."""
        self._pins += 1

    def unpin(self) -> None:
        """Give back a pin; a `close` that waited for the last one happens now."""
        self._pins -= 1
        if self._closing and self._pins == 0:
            self._closing = False
            self.close()

    def sync(self, files: Files) -> None:
        """Sync a pinned segment. It may have been closed before it was pinned, and deleted or replaced since."""
        if self.descriptor >= 0:
            files.sync(self.descriptor)
            return
        try:
            files.sync_path(self.path)
        except StorageFailure:
            if not self.gone:
                raise

    def close(self) -> None:
        """Close the `.log` file, or let the last `unpin` do it."""
        if self._pins:
            self._closing = True
        elif self.descriptor >= 0:
            self._files.close(self.descriptor)
            self.descriptor = -1
            if self.registry is not None:
                self.registry.discard(self)

    def paths(self) -> list[str]:
        """Return every file this segment may have, the `.log` last: a segment without its log is nothing."""
        return [path + self._suffix for path in self.own_paths()]

    def index_paths(self) -> list[str]:
        """Return the paths of the offset index and the time index."""
        return [self.offset_index.file.path, self.time_index.file.path]

    def own_paths(self) -> list[str]:
        """Return the paths that the files of this segment have as a part of its log."""
        return [self._stem + suffix for suffix in (*SUFFIXES[1:], LOG_SUFFIX)]
