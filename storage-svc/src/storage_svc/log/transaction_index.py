"""The transaction index of a segment (`.txnindex`): the aborted transactions whose markers lie in the segment.

    entry = version i16 = 0, producer id i64, first offset i64, last offset i64, last stable offset i64
            big-endian, 34 bytes, last offsets strictly increasing

The last offset is that of the ABORT marker; the last stable offset is where it came to be once the transaction was
over, so a search may stop at the first entry whose last stable offset is not below what it looks for. The file is made
when the first transaction is aborted, never before. It is not checksummed: `load` checks what it holds, and recovery
makes it anew from the batches.

E.g. producer 7 wrote at 0 and 10 and aborted at 20 while producer 8 has been open since 5: (0, 7, 0, 20, 5).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from storage_svc.log.errors import StorageFailure
from storage_svc.log.files import Files

_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
_LAST_OFFSET: Final = Struct(">q")
_LAST_OFFSET_AT: Final = 18


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    #: That of the marker.
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Owned by its segment. The entries are in memory, as in the file, once anybody asked for them."""

    __slots__ = ("_data", "_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        #: The file's content; None until it was read.
        self._data: bytearray | None = None

    def _entries(self) -> bytearray:
        if self._data is None:
            data = self._files.read_file(self.path) or b""
            self._data = bytearray(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE])
        return self._data

    @property
    def known(self) -> bool:
        """Whether the entries are in memory."""
        return self._data is not None

    def __len__(self) -> int:
        return len(self._entries()) // ENTRY_SIZE

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for _, *fields in _ENTRY.iter_unpack(bytes(self._entries())):
            yield AbortedTransaction._make(fields)

    def load(self, base_offset: int, end_offset: int) -> bool:
        """Read the file; whether its entries are in order and their markers inside a segment of these offsets."""
        data = self._files.read_file(self.path) or b""
        self._data = bytearray(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE])
        if len(data) % ENTRY_SIZE:
            return False
        marker_min = base_offset
        for version, _, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(data):
            if version != _VERSION or not marker_min <= last_offset < end_offset:
                return False
            if not 0 <= first_offset <= last_offset or not 0 <= stable_offset <= last_offset + 1:
                return False
            marker_min = last_offset + 1
        return True

    def append(self, entry: AbortedTransaction) -> None:
        """Add the entry and write it.

        Raises:
            StorageFailure: neither the file nor this index has it.
        """
        data = self._entries()
        packed = _ENTRY.pack(_VERSION, *entry)
        descriptor = self._files.open(self.path, create=True)
        try:
            self._files.append(descriptor, [packed], len(data), ENTRY_SIZE)
        except StorageFailure:
            self._files.truncate(descriptor, len(data))
            raise
        finally:
            self._files.close(descriptor)
        data += packed

    def truncate(self, offset: int) -> None:
        """Forget the entries whose markers are at or behind the offset."""
        kept = self._position_of(offset)
        if kept < len(self):
            del self._entries()[kept * ENTRY_SIZE :]
            descriptor = self._files.open(self.path, create=True)
            try:
                self._files.truncate(descriptor, kept * ENTRY_SIZE)
            finally:
                self._files.close(descriptor)

    def begin_anew(self) -> None:
        """Forget every entry, to rebuild them from the log."""
        if self._data is None or self._data:
            self._files.unlink(self.path)
        self._data = bytearray()

    def assume_empty(self) -> None:
        """There is no file."""
        self._data = bytearray()

    def find(self, start: int, end: int) -> tuple[list[tuple[int, int]], bool]:
        """(producer id, first offset) of every transaction here that touches the offsets in [start, end), and whether
        later segments cannot have more."""
        data = self._entries()
        found: list[tuple[int, int]] = []
        for index in range(self._position_of(start), len(self)):
            _, producer_id, first_offset, _, stable_offset = _ENTRY.unpack_from(data, index * ENTRY_SIZE)
            if first_offset < end:
                found.append((producer_id, first_offset))
            if stable_offset >= end:
                return found, True
        return found, False

    def _position_of(self, offset: int) -> int:
        """The index of the first entry whose marker is at or behind the offset."""
        data = self._entries()

        def marker(index: int) -> int:
            return int(_LAST_OFFSET.unpack_from(data, index * ENTRY_SIZE + _LAST_OFFSET_AT)[0])

        return bisect_left(range(len(data) // ENTRY_SIZE), offset, key=marker)
