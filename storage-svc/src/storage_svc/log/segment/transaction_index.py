"""The transaction index of a segment (`.txnindex`): the aborted transactions whose markers lie in the segment.

    entry = version i16 = 0, producer id i64, first offset i64, last offset i64, last stable offset i64
            big-endian, 34 bytes, last offsets strictly increasing

The last offset is that of the ABORT marker. The last stable offset is its value once the transaction was over. So a
search may stop at the first entry whose last stable offset is not below the wanted offset. The file is made when the
first transaction is aborted, never before.

Kafka's format has no checksum. A second file holds it, `.txnindex.crc32c`, in eight hexadecimal digits, written once
nothing is added any more (`seal`). If the file differs from its seal, or is gone while the seal is there, it is rebuilt
from the batches. Without a seal (a folder that Kafka made, an active segment after a crash) entries are compared with
the batches (transaction_index_check.py).

E.g. producer 7 wrote at 0 and 10 and aborted at 20 while producer 8 has been open since 5: (0, 7, 0, 20, 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.segment.index_file import IndexFile

_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
_LAST_OFFSET: Final = 3  # of an entry's fields


def _checksum(data: bytes) -> bytes:
    return b"%08x\n" % crc32c(data)


class AbortedTransaction(NamedTuple):
    """One entry of the index."""

    producer_id: int
    first_offset: int
    #: That of the marker.
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index of one segment, owned by that segment.

    The file has every entry; it is mapped from the first search until `release`.
    """

    __slots__ = ("_absent", "_files", "file", "known", "seal_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.file = IndexFile(files, path, _ENTRY)
        self.seal_path = ""
        #: Whether the entries are at hand.
        self.known = False
        # Whether there is neither a file nor a seal.
        self._absent = False

    def _entries(self) -> IndexFile:
        if not self.known:
            self.file.load(growing=False)
            self.known = True
        return self.file

    def __len__(self) -> int:
        return self._entries().count

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for _, *fields in self._entries():
            yield AbortedTransaction._make(fields)

    def seal(self) -> None:
        """Write the checksum of the file, to which nothing is added any more, if there are entries.

        Raises:
            StorageFailure: there is no seal, or one that does not fit.
        """
        if len(self):
            self._files.write_file(self.seal_path, _checksum(self._files.read_file(self.file.path) or b""))

    def sealed(self) -> bool | None:
        """Return whether the file agrees with its seal; None without a seal.

        Raises:
            StorageFailure: the disk did not answer.
        """
        seal = self._files.read_file(self.seal_path)
        return None if seal is None else _checksum(self._files.read_file(self.file.path) or b"") == seal

    def load(self, base_offset: int, end_offset: int) -> bool:
        """Map the file; whether its entries are in order and their markers inside a segment of these offsets."""
        self.known = True
        if self.file.load(growing=False) is False:
            return False
        marker_min = base_offset
        for version, _, first_offset, last_offset, stable_offset in self.file:
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
        self._absent = False
        file = self._entries()
        count = file.count
        file.append(_VERSION, *entry)
        try:
            file.persist()
        except StorageFailure:
            file.truncate(count)
            raise
        finally:
            file.close()

    def truncate(self, offset: int) -> None:
        """Forget the entries whose markers are at or after the offset."""
        file = self._entries()
        kept = file.count_up_to(offset - 1, _LAST_OFFSET)
        if kept < file.count:
            file.truncate(kept)
            file.close()

    def replace(self, entries: Sequence[AbortedTransaction]) -> None:
        """Replace all entries by these, as a whole and synced.

        Raises:
            StorageFailure: the file is as it was.
        """
        self.file.release()
        self._files.unlink(self.seal_path)
        if entries:
            data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
            self._files.replace_file(self.file.path, data)
            self._files.replace_file(self.seal_path, _checksum(data))
        else:
            self._files.unlink(self.file.path)
        self.known = self._absent = not entries

    def restart(self) -> None:
        """Forget every entry, to rebuild them from the log."""
        if self._absent:
            return
        if not self.known or self.file.count:
            self.file.remove()
        self._files.unlink(self.seal_path)
        self.known = self._absent = True

    def assume_empty(self) -> None:
        """Assume that there is no file and no seal."""
        self.known = self._absent = True

    def release(self) -> None:
        """Give back memory and descriptors until the next use."""
        if self.file.count:
            self.file.release()
            self.known = False

    def find(self, start: int, end: int, most: int) -> tuple[list[tuple[int, int]], int, bool]:
        """Return (producer id, first offset) of every transaction here that touches the offsets in [start, end).

        Where there are more than `most` of them the search may end early: the second value is the end of the offsets
        that it has covered, always after the start. The last value is whether later segments cannot have more.
        """
        file = self._entries()
        found: list[tuple[int, int]] = []
        for index in range(file.count_up_to(start - 1, _LAST_OFFSET), file.count):
            _, producer_id, first_offset, _, stable_offset = file.at(index)
            if first_offset < end:
                found.append((producer_id, first_offset))
            if stable_offset >= end:
                return found, end, True
            if len(found) > most and stable_offset > start:
                return [each for each in found if each[1] < stable_offset], stable_offset, True
        return found, end, False
