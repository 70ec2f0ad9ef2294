"""Which offset each key was last written at, in bounded memory: what compaction decides by.

An open hash table of 20 bytes a slot: a 64-bit hash (SipHash under a key of this process), a CRC-32C, and the offset.
96 bits tell keys apart: with five million keys the chance that any two are taken for one is 10^-16. The table is made
once, at the size asked for, and filled to three quarters at most. 128 MiB (Kafka's log.cleaner.dedupe.buffer.size, of
which Kafka fills 0.9 at 24 bytes a slot) hold 5.0 million keys in both.

    put_all([b"a", b"b", b"a"], 100, [0, 1, 2])   latest_of(b"a") = 102   latest_of(b"b") = 101   latest_of(b"c") = -1
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from crc32c import crc32c

SLOT_BYTES: Final = 20
_SLOTS_MIN: Final = 1 << 10


class KeyMap:
    __slots__ = ("_checks", "_entries_max", "_hashes", "_offsets", "_slots", "entries")

    def __init__(self, bytes_max: int, entries: int) -> None:
        """Room for so many keys, or for as many as the bytes allow."""
        self._slots = max(_SLOTS_MIN, min(bytes_max // SLOT_BYTES, entries * 4 // 3 + 1))
        self._entries_max = self._slots * 3 // 4
        self._hashes = array("q", bytes(8 * self._slots))
        self._checks = array("I", bytes(4 * self._slots))
        self._offsets = array("q", b"\xff" * (8 * self._slots))
        self.entries = 0

    @property
    def size_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    def put_all(self, keys: Iterable[bytes | None], base_offset: int, deltas: Sequence[int]) -> bool:
        """Take in the keys of a batch, whose offsets rise; None is no key. False once the map is full.

        Keys of the batch before the one that did not fit are in the map.
        """
        hashes, checks, offsets, slots = self._hashes, self._checks, self._offsets, self._slots
        room = self._entries_max - self.entries
        for key, delta in zip(keys, deltas, strict=True):
            if key is None:
                continue
            hashed = hash(key)
            slot = hashed % slots
            while offsets[slot] >= 0:
                if hashes[slot] == hashed and checks[slot] == crc32c(key):
                    break
                slot = slot + 1 if slot + 1 < slots else 0
            else:
                if room == 0:
                    self.entries = self._entries_max
                    return False
                room -= 1
                hashes[slot] = hashed
                checks[slot] = crc32c(key)
            offsets[slot] = base_offset + delta
        self.entries = self._entries_max - room
        return True

    def superseded(self, keys: Iterable[bytes | None], base_offset: int, deltas: Sequence[int]) -> list[int]:
        """The indexes of the keys that were written again behind this place. A record without a key is among them."""
        hashes, checks, offsets, slots = self._hashes, self._checks, self._offsets, self._slots
        found = []
        for index, key in enumerate(keys):
            if key is None:
                found.append(index)
                continue
            hashed = hash(key)
            slot = hashed % slots
            while (offset := offsets[slot]) >= 0:
                if hashes[slot] == hashed and checks[slot] == crc32c(key):
                    if offset > base_offset + deltas[index]:
                        found.append(index)
                    break
                slot = slot + 1 if slot + 1 < slots else 0
        return found

    def latest_of(self, key: bytes) -> int:
        """The key's last offset, -1 if it is not here."""
        slot = hash(key) % self._slots
        while (offset := self._offsets[slot]) >= 0:
            if self._hashes[slot] == hash(key) and self._checks[slot] == crc32c(key):
                return offset
            slot = slot + 1 if slot + 1 < self._slots else 0
        return -1
