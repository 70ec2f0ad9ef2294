"""The area of appends: storage sees the batches that a gateway lays there, each frame's in a slot by itself."""

from __future__ import annotations

import os

import pytest
from broker_contract.append_area import SLOT_BYTES, SLOTS, see_area

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory files are Linux's")


def test_batches_are_seen_back_to_back_from_their_position(area):
    seen = see_area(area.name)
    area.take_slot()
    place = area.take_slot() + 5
    area.lay(place, [b"abc", memoryview(b"defg")])
    assert (len(seen), bytes(seen[place - 1 : place + 8])) == (SLOTS * SLOT_BYTES, b"\0abcdefg\0")


def test_every_slot_is_reserved_once_and_the_one_freed_last_is_the_next(area):
    slots = [area.take_slot() for _ in range(SLOTS)]
    assert slots == [slot * SLOT_BYTES for slot in range(SLOTS)]
    assert area.take_slot() == -1
    area.give_back(slots[5])
    area.give_back(slots[2])
    assert [area.take_slot(), area.take_slot(), area.take_slot()] == [slots[2], slots[5], -1]


def test_the_last_slot_takes_as_much_as_any(area):
    *_, last = [area.take_slot() for _ in range(SLOTS)]
    area.lay(last, [b"x" * SLOT_BYTES])
    assert see_area(area.name)[-1] == ord("x")
