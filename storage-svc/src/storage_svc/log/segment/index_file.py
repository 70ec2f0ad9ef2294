"""The file of one index: entries of one fixed size, in order, without a head.

Entries of the file are mapped, read only: a search touches a few pages of them, and `release` gives the mapping back.
An index *grows* while its segment is appended to. Its latest entries are in memory, at most `MEMORY_BYTES` of them.
Then they are written, and the file is mapped again. On a disk that takes none they stay in memory.

Nothing is stored into the mapping, and no file is preallocated: a store into a mapped hole kills the process when the
disk is full. A file may be cut while it is mapped, because no entry after the last one is looked at. Files that Kafka
wrote end in zeros after a crash; `load` leaves those out.

Nothing here protects an entry: every caller that follows one compares it with the batch it leads to (segment.py). A
search in a damaged file still ends at an entry. If that entry is wrong, it is followed and found out, or it was never
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from struct import Struct
from typing import Final

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure

#: Bytes of entries in memory. With those of both indexes a partition has half of what it may have, 64 KB.
MEMORY_BYTES: Final = 16 << 10
_NOTHING: Final = b""


class IndexFile:
    """The file of one index of one segment, owned by that index. Call `load` before the first search if there is a
    file.
    """

    __slots__ = (
        "_descriptor",
        "_entry",
        "_files",
        "_latest",
        "_mapped",
        "_mapped_count",
        "_memory_max",
        "_stale",
        "_written",
        "count",
        "last",
        "path",
    )

    def __init__(self, files: Files, path: str, entry: Struct) -> None:
        self._files = files
        self._entry = entry
        self.path = path
        #: The number of entries.
        self.count = 0
        #: The fields of the last entry.
        self.last: tuple[int, ...] | None = None
        #: The file, of which that many entries are used.
        self._mapped: bytes | mmap = _NOTHING
        self._mapped_count = 0
        #: The entries after them.
        self._latest = bytearray()
        # The bytes of the latest entries at which they are written: more after each attempt that failed.
        self._memory_max = MEMORY_BYTES
        # The entries that the file has, those in memory included.
        self._written = 0
        self._descriptor = -1
        # Whether the entries of the file, if there is one, are another index's: `persist` replaces them.
        self._stale = False

    def at(self, index: int) -> tuple[int, ...]:
        """Return the fields of an entry, by its number."""
        after = index - self._mapped_count
        if after < 0:
            return self._entry.unpack_from(self._mapped, index * self._entry.size)
        return self._entry.unpack_from(self._latest, after * self._entry.size)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return map(self.at, range(self.count))

    def count_up_to(self, value: int, field: int) -> int:
        """Return the number of entries with at most this value in a field that rises from entry to entry."""
        if self.last is None or self.last[field] <= value:  # most reads are near the end of the log
            return self.count
        unpack, size, mapped = self._entry.unpack_from, self._entry.size, self._mapped_count
        data: bytes | bytearray | mmap
        if self._latest and unpack(self._latest, 0)[field] <= value:
            data, before, high = self._latest, mapped, self.count - mapped - 1
        else:
            data, before, high = self._mapped, 0, mapped
        low = 0
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * size)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return before + low

    def append(self, *fields: int) -> None:
        """Add an entry; the file has it after `persist` at the latest."""
        latest = self._latest
        latest += self._entry.pack(*fields)
        self.count += 1
        self.last = fields
        if len(latest) >= self._memory_max:
            self._give_back_latest()

    def _give_back_latest(self) -> None:
        """Write the latest entries and map them; if that fails they stay in memory."""
        try:
            self.persist()
            self._open()
            self._mapped = self._files.map_opened(self._descriptor, self.count * self._entry.size)
        except StorageFailure:
            self._memory_max = len(self._latest) + MEMORY_BYTES
            return
        finally:
            self.close()
        self._mapped_count = self.count
        self._latest, self._memory_max = bytearray(), MEMORY_BYTES

    def load(self, *, growing: bool) -> bool | None:
        """Map the file; return whether it holds whole entries, None when there is none.

        The few entries of a growing index are read instead: a mapping has a descriptor.
        """
        self.release()
        data = None if self._stale else self._files.map_file(self.path)
        if data is None:
            return None
        self._mapped = data
        self.count = self._mapped_count = len(data) // self._entry.size
        if self.count and not any(self.at(self.count - 1)):
            self.count = self._mapped_count = self._without_padding()
        if self.count:
            self.last = self.at(self.count - 1)
        self._written = self.count
        whole = len(data) % self._entry.size == 0
        if growing and self.count * self._entry.size < MEMORY_BYTES:
            self._latest = bytearray(data[: self.count * self._entry.size])
            self._unmap()
        return whole

    def _without_padding(self) -> int:
        """Return the number of entries before the zeros at the end."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if any(self.at(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def persist(self) -> None:
        """Write the entries that the file does not have yet.

        Raises:
            StorageFailure: they stay in memory, and `persist` may be called again.
        """
        size = self._entry.size
        start, end = self._written * size, self.count * size
        if start == end:
            return
        self._open()
        latest = bytes(self._latest[(self._written - self._mapped_count) * size :])
        self._files.append(self._descriptor, [latest], start, end - start)
        if self._stale:
            self._files.truncate(self._descriptor, end)
            self._stale = False
        self._written = self.count

    def _open(self) -> None:
        if self._descriptor < 0:
            self._descriptor = self._files.open(self.path, create=True)

    def finish(self) -> None:
        """Complete the file and release the index; `load` must come before the next search.

        Raises:
            StorageFailure: they stay in memory.
        """
        self.complete()
        self.release()

    def complete(self) -> None:
        """Make the file hold the entries and nothing else.

        Raises:
            StorageFailure: they stay in memory.
        """
        self.persist()
        self._open()
        self._files.truncate(self._descriptor, self.count * self._entry.size)
        self._stale = False

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries only, in the file too.

        Raises:
            StorageFailure: the file has more.
        """
        self._mapped_count = min(self._mapped_count, count)
        del self._latest[(count - self._mapped_count) * self._entry.size :]
        self.count = count
        self.last = self.at(count - 1) if count else None
        self._written = min(self._written, count)
        self._open()
        self._files.truncate(self._descriptor, count * self._entry.size)

    def restart(self) -> None:
        """Forget every entry, to begin a growing index. An existing file is ignored until it is replaced.

        A file system is slow to make files after thousands of deletions: none is deleted.
        """
        self.release()
        self._stale = True  # mutant: foreign-index-dropped

    def remove(self) -> None:
        """Forget every entry and delete the file."""
        self.release()
        self._files.unlink(self.path)

    def release(self) -> None:
        """Give back the memory or the mapping, and the descriptor."""
        self._unmap()
        self._latest, self._memory_max = bytearray(), MEMORY_BYTES
        self.count = self._written = 0
        self.last = None
        self.close()

    def close(self) -> None:
        """Give back the descriptor; the next `persist` opens the file again."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._files.close(descriptor)

    def _unmap(self) -> None:
        if type(self._mapped) is mmap:
            self._mapped.close()
        self._mapped, self._mapped_count = _NOTHING, 0
