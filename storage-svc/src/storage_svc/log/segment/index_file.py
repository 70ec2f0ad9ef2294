"""The file of one index: entries of one fixed size, in order, without a head.

An index *grows* while its segment is appended to. Every entry is in memory, in the bytes of the file; `persist` writes
those that the file lacks. Once it is finished it is only read: `load` maps the file, a search touches a few pages of
it, and `release` gives the mapping back.

A growing file is neither mapped nor preallocated: a store into a mapped hole kills the process when the disk is full.
Files that Kafka wrote end in zeros after a crash; `load` leaves those out.

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

_NOTHING: Final = b""


class IndexFile:
    """The file of one index of one segment, owned by that index. Call `load` before the first search if there is a
    file.
    """

    __slots__ = ("_data", "_descriptor", "_entry", "_files", "_stale", "_written", "count", "last", "path")

    def __init__(self, files: Files, path: str, entry: Struct) -> None:
        self._files = files
        self._entry = entry
        self.path = path
        #: The number of entries.
        self.count = 0
        #: The fields of the last entry.
        self.last: tuple[int, ...] | None = None
        self._data: bytes | bytearray | mmap = _NOTHING
        self._written = 0
        self._descriptor = -1
        # Whether the entries of the file, if there is one, are another index's: `persist` replaces them.
        self._stale = False

    def at(self, index: int) -> tuple[int, ...]:
        """Return the fields of an entry, by its number."""
        return self._entry.unpack_from(self._data, index * self._entry.size)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return map(self.at, range(self.count))

    def count_up_to(self, value: int, field: int) -> int:
        """Return the number of entries with at most this value in a field that rises from entry to entry."""
        if self.last is None or self.last[field] <= value:  # most reads are near the end of the log
            return self.count
        unpack, data, size = self._entry.unpack_from, self._data, self._entry.size
        low, high = 0, self.count - 1
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * size)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def append(self, *fields: int) -> None:
        """Add an entry; the file has it after `persist`."""
        data = self._data
        if type(data) is not bytearray:
            data = self._data = self._copied()
        data += self._entry.pack(*fields)
        self.count += 1
        self.last = fields

    def _copied(self) -> bytearray:
        """Return the entries as bytes that can grow."""
        data = bytearray(self._data[: self.count * self._entry.size])
        self._unmap()
        return data

    def load(self, *, growing: bool) -> bool | None:
        """Read or map the file; whether it holds whole entries, None when there is none."""
        self.release()
        data = None if self._stale else self._files.map_file(self.path)
        if data is None:
            return None
        self._data = data
        self.count = len(data) // self._entry.size
        if self.count and not any(self.at(self.count - 1)):
            self.count = self._without_padding()
        if self.count:
            self.last = self.at(self.count - 1)
        self._written = self.count
        whole = len(data) % self._entry.size == 0
        if growing and self.count:
            self._data = self._copied()
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
        start, end = self._written * self._entry.size, self.count * self._entry.size
        if start == end:
            return
        self._open()
        self._files.append(self._descriptor, [bytes(self._data[start:end])], start, end - start)
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
        if type(self._data) is mmap:
            self._data = self._copied()  # no file is cut while it is mapped
        self._open()
        self._files.truncate(self._descriptor, self.count * self._entry.size)
        self._stale = False

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries only, in the file too.

        Raises:
            StorageFailure: the file has more.
        """
        data = self._copied()
        del data[count * self._entry.size :]
        self._data = data
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
        self._data = _NOTHING
        self.count = self._written = 0
        self.last = None
        self.close()

    def close(self) -> None:
        """Give back the descriptor; the next `persist` opens the file again."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._files.close(descriptor)

    def _unmap(self) -> None:
        if type(self._data) is mmap:
            self._data.close()
