"""The records of a coordinator's partition that count, found without decoding the others: the last one of each key.

The history of a busy partition is a million records of a hundred keys. `add` walks the batches and keeps the bytes
after the key of each record. `apply_to` passes what is left to the state, which decodes it.

    offset 7   k = 1              latest k = 1
    offset 8   producer 4, k = 2  latest k = 1     held back of producer 4: k = 2
    offset 9   k = 3              latest k = 3     held back of producer 4: k = 2, older than the latest
    offset 10  k deleted          latest k: none   nothing held back

Offsets that a transaction commits are held back until its marker. Of two commits the one with the later record counts
(open_commits.py). So the offset of each key's last record is noted while a transaction is open.

Records that no coordinator writes are an UnusualRecordsError: damage, a record without a key, or two forms of one key
next to transactions. The caller then applies every record (partition_loader.py).
"""

from __future__ import annotations

from itertools import chain
from struct import Struct
from typing import Final, Protocol

from crc32c import crc32c
from protocol_lib.errors import DecodeError
from protocol_lib.records.header import CODEC_MASK, CONTROL, CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, TRANSACTIONAL
from protocol_lib.records.record import write_tail
from protocol_lib.varint import read_on, read_signed

from storage_svc.log.batch.header import records_of

#: Base offset, batch length, magic, CRC, attributes, last offset delta, producer id, number of records.
_HEAD: Final = Struct(">qi4xbIhi16xq6xi")
#: The keys of the markers that end transactions, and whether they commit.
_MARKERS: Final = {b"\0\0\0\0": False, b"\0\0\0\1": True}
#: The first byte of what follows a marker's key: 6, the length of its value.
_MARKER_VALUE: Final = 12
#: The first bytes of a key of a committed offset: its version. Kafka wrote version 0 until 0.8.
_OFFSET_KEYS: Final = (b"\0\0", b"\0\1")
#: The first byte of what follows the key of a tombstone: -1, the length of its value.
_TOMBSTONE: Final = 1
_NO_HEADERS: Final = b"\0"


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
        #: Key -> the bytes that follow it in its last record. In the order of the records, with the tombstones.
        self._latest: dict[bytes, bytes] = {}
        #: Producer id -> key -> offset and following bytes of the last record in the producer's open transaction.
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
                if attributes & CODEC_MASK:
                    records = _decompressed(data[at:end], base)
                else:
                    records = _split(data, at + HEADER_SIZE, end, count)
                at = end
                if attributes & CONTROL:
                    if records:  # the cleaner leaves a producer's last batch without its marker
                        self._end(producer_id, records)
                elif self._held or attributes & TRANSACTIONAL:
                    self._add(base, producer_id if attributes & TRANSACTIONAL else -1, records)
                else:
                    for key, _, rest in records:
                        forget(key, None)  # mutant: latest-in-order
                        latest[key] = rest
        except (IndexError, DecodeError) as fault:
            raise UnusualRecordsError(str(fault)) from fault
        if at < size or following < 0:
            raise UnusualRecordsError("a damaged batch, or one of an older format")
        return following

    def _add(self, base_offset: int, producer_id: int, records: list[tuple[bytes, int, bytes]]) -> None:
        """Take the records of a batch while a transaction is open, perhaps of the producer of the batch."""
        is_held = producer_id >= 0 and self._holds_back
        for key, delta, rest in records:
            is_tombstone = rest[0] == _TOMBSTONE
            if is_held and not is_tombstone and key[:2] in _OFFSET_KEYS:
                self._has_transactions = True
                self._held.setdefault(producer_id, {})[key] = base_offset + delta, rest
                continue
            self._write(key, base_offset + delta, rest)
            if is_tombstone:
                for waiting in self._held.values():
                    waiting.pop(key, None)  # mutant: latest-tombstone-drops-held

    def _write(self, key: bytes, offset: int, rest: bytes) -> None:
        self._latest.pop(key, None)
        self._latest[key] = rest
        if self._held:
            self._written_at[key] = offset

    def _end(self, producer_id: int, records: list[tuple[bytes, int, bytes]]) -> None:
        """End a producer's transaction."""
        ((key, _, value),) = records if len(records) == 1 else ((b"", 0, b""),)
        if key not in _MARKERS or value[0] != _MARKER_VALUE or value[1] > 0x7F:
            raise UnusualRecordsError("a control record of another kind")
        ended = self._held.get(producer_id, {})
        if _MARKERS[key]:  # mutant: latest-aborted-dropped
            for committed, (offset, rest) in ended.items():
                if self._written_at.get(committed, -1) < offset:  # mutant: latest-later-offset-wins
                    self._write(committed, offset, rest)
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
        for key, rest in self._latest.items():
            state.apply(key, _value(rest), -1, -1)
        for producer_id, waiting in self._held.items():
            for key, (offset, rest) in waiting.items():
                state.apply(key, _value(rest), offset, producer_id)
                if (later := self._written_at.get(key, -1)) > offset:  # mutant: latest-outdates-held
                    state.apply(key, _value(self._latest[key]), later, -1)


def _split(data: bytes, at: int, end: int, count: int) -> list[tuple[bytes, int, bytes]]:
    """Return the key, the offset delta, and what follows the key, of each record (protocol_lib/records/record.py).

    The hot loop of a start: it is flat, and numbers of one byte and lengths of two are read in place.

    Raises:
        UnusualRecordsError, DecodeError, IndexError: they are malformed, or have no key.
    """
    found = []
    for _ in range(count):
        length = data[at]
        at += 1
        if length > 0x7F:
            if (high := data[at]) < 0x80:
                length = length & 0x7F | high << 7
                at += 1
            else:
                length, at = read_on(data, at, length)
        after = at + (length >> 1)
        at += 1  # attributes
        while data[at] > 0x7F:  # timestamp delta
            at += 1
        delta = data[at + 1]
        at += 2
        if delta > 0x7F:
            delta, at = read_on(data, at, delta)
        size = data[at]
        at += 1
        if size > 0x7F:
            size, at = read_on(data, at, size)
        key_end = at + (size >> 1)
        if (length | delta | size) & 1 or key_end >= after:
            raise UnusualRecordsError("a malformed record, or one without a key")
        found.append((data[at:key_end], delta >> 1, data[key_end:after]))
        at = after
    if at != end:
        raise UnusualRecordsError("records that do not fill their batch")
    return found


def _decompressed(batch: bytes, base_offset: int) -> list[tuple[bytes, int, bytes]]:
    """Return the records of a compressed batch, as `_split` does."""
    found = []
    for record in records_of(batch):
        if record.key is None:
            raise UnusualRecordsError("a record without a key")
        found.append((record.key, record.offset - base_offset, write_tail(None, record.value)[1:]))
    return found


def _value(rest: bytes) -> bytes | None:
    """Return the value at the start of the bytes that follow a key."""
    try:
        length, at = read_signed(rest, 0)
    except IndexError as fault:
        raise UnusualRecordsError("a record without a value") from fault
    if length < -1 or rest[at + max(length, 0) :] != _NO_HEADERS:
        raise UnusualRecordsError("a malformed record, or one with headers")
    return None if length < 0 else rest[at : at + length]
