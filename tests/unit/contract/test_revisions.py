"""Revisions: readers see every change of a number, in another process too, and map no other file for them."""

import os
import subprocess
import sys

import pytest
from broker_contract.memory_files import MemoryFile
from broker_contract.revisions import SLOTS, Revisions

linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory files are Linux's")

READER = """
import sys
from broker_contract.revisions import Revisions

for name in sys.stdin:
    seen = Revisions.seen(name.strip())
    print([seen[place] for place in (0, 1, 4095)] if seen else None, flush=True)
"""


def test_slots_are_handed_out_in_turn_and_move_by_themselves() -> None:
    revisions = Revisions()
    slots = [revisions.new_slot() for _ in range(SLOTS + 1)]
    assert slots == [*range(SLOTS), 0]
    revisions.move(3)
    revisions.move(3)
    assert [revisions[place] for place in (2, 3, 4)] == [0, 2, 0]


@linux
def test_another_process_sees_what_moved_before_it_was_shared_and_since() -> None:
    revisions = Revisions()
    revisions.move(0)
    name = revisions.share()
    revisions.move(SLOTS - 1)
    assert revisions.share() == name
    smaller = MemoryFile.create("smaller", 8)
    assert smaller is not None
    others = ["nothing", smaller.name]
    read = subprocess.run(
        [sys.executable, "-c", READER],
        input="\n".join([name, *others]) + "\n",
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert read.stderr == ""
    assert read.stdout.splitlines() == ["[1, 0, 1]", *["None"] * len(others)]
    revisions.close()
    smaller.close()


@linux
def test_what_is_seen_follows_and_cannot_be_written() -> None:
    revisions = Revisions()
    seen = Revisions.seen(revisions.share())
    assert seen is not None
    assert seen[7] == 0
    revisions.move(7)
    assert seen[7] == 1
    with pytest.raises(TypeError):
        seen.move(7)
    revisions.close()
    assert Revisions.seen(revisions.share()) is not None
    revisions.close()
