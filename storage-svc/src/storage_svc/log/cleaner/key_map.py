"""The offset at which each key was last written, in bounded memory: the basis of compaction's decisions.

An open hash table of 24 bytes a slot: a 64-bit hash (SipHash under a key of this process), a CRC-32C, and the offset
plus one. 96 bits distinguish keys: with four million keys the chance that any two are confused is below 10^-15. The
table is made once, at the requested size, and filled to three quarters at most. 128 MiB hold 4.2 million keys (Kafka's
log.cleaner.dedupe.buffer.size; Kafka fills it to nine tenths).

    put_all([b"a", b"b", b"a"], 100, [0, 1, 2])   latest_of(b"a") = 102   latest_of(b"b") = 101   latest_of(b"c") = -1
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from crc32c import crc32c

SLOT_BYTES: Final = 24
_SLOTS_MIN: Final = 1 << 10
_FIELDS: Final = 3


class KeyMap:
    """The map of one cleaning."""

    __slots__ = ("_entries_max", "_slots", "_table", "entries")

    def __init__(self, bytes_max: int, entries: int) -> None:
        """Make room for this number of keys, or for as many as the bytes allow."""
        self._slots = max(_SLOTS_MIN, min(bytes_max // SLOT_BYTES, entries * 4 // 3 + 1))
        self._entries_max = self._slots * 3 // 4
        self._table = array("q", bytes(SLOT_BYTES * self._slots))
        self.entries = 0

    @property
    def size_bytes(self) -> int:
        """The memory of the table."""
        return self._slots * SLOT_BYTES

    def no_positions(self) -> array[int]:
        """Return an empty array to which `put_all` can append positions."""
        return array("I" if self._slots * _FIELDS < 1 << 32 else "Q")

    def put_all(
        self, keys: Iterable[bytes | None], base_offset: int, deltas: Sequence[int], positions: array[int]
    ) -> bool:
        """Take in the keys of a batch, whose offsets rise; None is no key. False once the map is full.

        Where the offset of each key is kept is appended to `places`. Keys of the batch before the one that did not fit
        are in the map.
        """
        add_position = positions.append
        table, slots, end = self._table, self._slots, self._slots * _FIELDS
        room = self._entries_max - self.entries
        entry = base_offset + 1
        for key, delta in zip(keys, deltas, strict=True):
            if key is None:
                continue
            hashed = hash(key)
            at = hashed % slots * _FIELDS
            while table[at + 2]:
                if table[at] == hashed and table[at + 1] == crc32c(key):
                    break
                at += _FIELDS
                if at == end:
                    at = 0
            else:
                if room == 0:
                    self.entries = self._entries_max
                    return False
                room -= 1
                table[at] = hashed
                table[at + 1] = crc32c(key)
            at += 2
            table[at] = entry + delta
            add_position(at)
        self.entries = self._entries_max - room
        return True

    def superseded_at(self, positions: array[int], base_offset: int) -> list[int]:
        """Return the same as `superseded`, for a batch without gaps whose keys are kept at these positions."""
        table = self._table
        first = base_offset + 1
        return [entry - first for entry, position in enumerate(positions, first) if table[position] != entry]

    def superseded(self, keys: Iterable[bytes | None], base_offset: int, deltas: Sequence[int]) -> list[int]:
        """Return the indexes of the keys that were written again after this batch. A record without a key is among
        them.
        """
        table, slots, end = self._table, self._slots, self._slots * _FIELDS
        entry = base_offset + 1
        found = []
        for index, key in enumerate(keys):
            if key is None:
                found.append(index)
                continue
            hashed = hash(key)
            at = hashed % slots * _FIELDS
            while offset := table[at + 2]:
                if table[at] == hashed and table[at + 1] == crc32c(key):
                    if offset > entry + deltas[index]:
                        found.append(index)
                    break
                at += _FIELDS
                if at == end:
                    at = 0
        return found

    def latest_of(self, key: bytes) -> int:
        """Return the key's last offset, -1 if it is not in the map."""
        at = hash(key) % self._slots * _FIELDS
        while offset := self._table[at + 2]:
            if self._table[at] == hash(key) and self._table[at + 1] == crc32c(key):
                return offset - 1
            at = (at + _FIELDS) % (self._slots * _FIELDS)
        return -1
