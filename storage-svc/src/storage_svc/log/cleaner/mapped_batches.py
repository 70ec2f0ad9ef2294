"""The batches that are in the key map as a whole, and the places of their keys there, for the second pass over the log.

A record is superseded if another offset than its own stands where its key is. So nothing of a batch that is here has to
be parsed, or decompressed, to tell which of its records stay. It takes four bytes a record and 17 a batch, up to a
limit. Batches with gaps between their offsets or records without keys are not here.
"""

from __future__ import annotations

from array import array

from storage_svc.log.batch.header import Header
from storage_svc.log.cleaner.key_map import KeyMap
from storage_svc.log.cleaner.records import ScannedRecords

_BATCH_BYTES = 17


class MappedBatches:
    """The batches whose keys are in the map; they are added and found in the order of the log."""

    __slots__ = ("_asked", "_bytes_max", "_ends", "_key_map", "_offsets", "_positions", "_tombstones")

    def __init__(self, key_map: KeyMap, bytes_max: int) -> None:
        self._key_map = key_map
        self._bytes_max = bytes_max
        self._positions = key_map.no_positions()
        self._offsets = array("q")
        #: The end of each batch's positions.
        self._ends = array("q")
        self._tombstones = array("b")
        self._asked = 0

    def put(self, header: Header, scanned: ScannedRecords) -> bool:
        """Put all keys of a batch into the map; False once it is full."""
        positions = self._key_map.no_positions()
        fits = self._key_map.put_all(scanned.keys, header.base_offset, scanned.offset_deltas, positions)
        size = len(self._positions) * self._positions.itemsize + len(self._offsets) * _BATCH_BYTES
        if fits and len(positions) == header.records_count == header.last_offset_delta + 1 and size < self._bytes_max:
            self._positions += positions
            self._offsets.append(header.base_offset)
            self._ends.append(len(self._positions))
            self._tombstones.append(bool(scanned.tombstones))
        return fits

    def find(self, header: Header) -> tuple[list[int], bool] | None:
        """Return (the indexes of the batch's superseded records, whether it has tombstones); None if it is
        not mapped.
        """
        offsets, number, base_offset = self._offsets, self._asked, header.base_offset
        while number < len(offsets) and offsets[number] < base_offset:
            number += 1
        self._asked = number
        if number == len(offsets) or offsets[number] != base_offset:
            return None
        start = self._ends[number - 1] if number else 0
        positions = self._positions[start : self._ends[number]]
        return self._key_map.superseded_at(positions, base_offset), bool(self._tombstones[number])
