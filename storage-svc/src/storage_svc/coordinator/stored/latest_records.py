"""The records of a coordinator's partition that count, found without decoding the others: the last one of each key.

The history of a busy partition is a million records of a hundred keys. `add` walks the batches and keeps the value
of each record. `apply_to` passes what is left to the state, which decodes it.

    offset 7   k = 1              latest k = 1
    offset 8   producer 4, k = 2  latest k = 1     held back of producer 4: k = 2
    offset 9   k = 3              latest k = 3     held back of producer 4: k = 2, older than the latest
    offset 10  k deleted          latest k: none   nothing held back

Offsets that a transaction commits are held back until its marker. Of two commits the one with the later record counts
(open_commits.py). So the offset of each key's last record is noted while a transaction is open.

Records that no coordinator writes are an UnusualRecordsError: damage, a record without a key or with headers, or two
forms of one key next to transactions. The caller then applies every record (partition_loader.py).
"""

from __future__ import annotations

from itertools import chain
from struct import Struct
from typing import Final, Protocol

from crc32c import crc32c
from protocol_lib.errors import DecodeError
from protocol_lib.records.compression import decompress
from protocol_lib.records.header import CODEC_MASK, CONTROL, CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, TRANSACTIONAL
from protocol_lib.records.record import Record
from protocol_lib.records.walker import RecordWalker

#: Base offset, batch length, magic, CRC, attributes, last offset delta, producer id, number of records.
_HEAD: Final = Struct(">qi4xbIhi16xq6xi")
#: The keys of the markers that end transactions, and whether they commit.
_MARKERS: Final = {b"\0\0\0\0": False, b"\0\0\0\1": True}
#: Bytes of a marker's value: the version, which is not negative, and the coordinator's epoch.
_MARKER_SIZE: Final = 6
#: The first bytes of a key of a committed offset: its version. Kafka wrote version 0 until 0.8.
_OFFSET_KEYS: Final = (b"\0\0", b"\0\1")
#: Records between which the interpreter may turn to another thread.
_STEPS: Final = 4096
_NO_KEY: Final = "a record without a key, or with headers"


class UnusualRecordsError(Exception):
    """The records have to be applied one by one."""


class Applied(Protocol):
    """The state that the records make (`partition_loader.Loaded`)."""

    def apply(self, key: bytes, value: bytes | None, offset: int, producer_id: int, /) -> None:
        """Apply one record."""
        ...


class LatestRecords:
    """The records of one partition, from its start to its end. One thread at a time may use it."""

    def __init__(self, *, holds_back: bool) -> None:
        """Begin; `holds_back`: offsets that a transaction commits do not count before its marker."""
        self._holds_back = holds_back
        #: Key -> the value of its last record. In the order of the records, with the tombstones.
        self._latest: dict[bytes, bytes | None] = {}
        #: Producer id -> key -> offset and value of the last record in the producer's open transaction.
        self._held: dict[int, dict[bytes, tuple[int, bytes]]] = {}
        #: The offset of each key's last record, if it was written while a transaction was open.
        self._written_at: dict[bytes, int] = {}
        self._has_transactions = False

    def add(self, data: bytes) -> int:
        """Walk a run of whole batches, and return the offset that follows.

        Raises:
            UnusualRecordsError: see above.
        """
        latest, forget = self._latest, self._latest.pop
        view, size, at, following = memoryview(data), len(data), 0, -1
        try:
            while at + HEADER_SIZE <= size:
                base, length, magic, crc, attributes, last_delta, producer_id, count = _HEAD.unpack_from(data, at)
                end = at + LOG_OVERHEAD + length
                if magic != MAGIC or end > size or crc != crc32c(view[at + CRC_START : end]):
                    break
                following = base + last_delta + 1
                records = _read(base, attributes, count, data[at + HEADER_SIZE : end])
                at = end
                if attributes & CONTROL:
                    if records:  # the cleaner leaves a producer's last batch without its marker
                        self._end(producer_id, records)
                elif self._held or attributes & TRANSACTIONAL:
                    self._add(producer_id if attributes & TRANSACTIONAL else -1, records)
                else:
                    for record in records:
                        if (key := record.key) is None or record.headers:
                            raise UnusualRecordsError(_NO_KEY)
                        forget(key, None)  # mutant: latest-in-order
                        latest[key] = record.value
        except DecodeError as fault:
            raise UnusualRecordsError(str(fault)) from fault
        if at < size or following < 0:
            raise UnusualRecordsError("a damaged batch, or one of an older format")
        return following

    def _add(self, producer_id: int, records: list[Record]) -> None:
        """Take the records of a batch while a transaction is open, perhaps of the producer of the batch."""
        is_held = producer_id >= 0 and self._holds_back
        for record in records:
            key, value = record.key, record.value
            if key is None or record.headers:
                raise UnusualRecordsError(_NO_KEY)
            if is_held and value is not None and key[:2] in _OFFSET_KEYS:
                self._has_transactions = True
                self._held.setdefault(producer_id, {})[key] = record.offset, value
                continue
            self._write(key, record.offset, value)
            if value is None:
                for waiting in self._held.values():
                    waiting.pop(key, None)  # mutant: latest-tombstone-drops-held

    def _write(self, key: bytes, offset: int, value: bytes | None) -> None:
        self._latest.pop(key, None)
        self._latest[key] = value
        if self._held:
            self._written_at[key] = offset

    def _end(self, producer_id: int, records: list[Record]) -> None:
        """End a producer's transaction."""
        marker = records[0]
        key, value = marker.key, marker.value
        if (
            len(records) > 1
            or marker.headers
            or key not in _MARKERS
            or value is None
            or len(value) != _MARKER_SIZE
            or value[0] > 0x7F
        ):
            raise UnusualRecordsError("a control record of another kind")
        ended = self._held.get(producer_id, {})
        if _MARKERS[key]:  # mutant: latest-aborted-dropped
            for committed, (offset, value) in ended.items():
                if self._written_at.get(committed, -1) < offset:  # mutant: latest-later-offset-wins
                    self._write(committed, offset, value)
        self._held.pop(producer_id, None)
        if not self._held:
            self._written_at.clear()

    def apply_to(self, state: Applied) -> None:
        """Apply the records that are left to an empty state.

        Raises:
            UnusualRecordsError: see above.
            DecodeError: one of them cannot be understood. The state is to be thrown away.
        """
        keys = chain(self._latest, *self._held.values()) if self._has_transactions else ()
        if any(key[:2] == _OFFSET_KEYS[0] for key in keys):
            raise UnusualRecordsError("keys of version 0 next to transactions")
        for key, value in self._latest.items():
            state.apply(key, value, -1, -1)
        for producer_id, waiting in self._held.items():
            for key, (offset, held) in waiting.items():
                state.apply(key, held, offset, producer_id)
                if (later := self._written_at.get(key, -1)) > offset:  # mutant: latest-outdates-held
                    state.apply(key, self._latest[key], later, -1)


def _read(base_offset: int, attributes: int, count: int, body: bytes) -> list[Record]:
    """Return the records of a batch.

    Raises:
        DecodeError: they are malformed.
    """
    codec = attributes & CODEC_MASK
    records: list[Record] = []
    walker = RecordWalker(decompress(codec, body) if codec else body, count, base_offset, 0)
    while walker.read(Record, records, _STEPS):
        pass
    return records
