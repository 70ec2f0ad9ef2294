"""Marks of replayed dead letters: each letter once, and an interrupted replay keeps its choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from spark_etl.checkpoint.notes import LocalNotes
from spark_etl.errors import OutputError
from spark_etl.letters.replays import Replay, Replays

pytestmark = pytest.mark.etl

ID = "MBW0"
CHOICE = Replay(0, "2026-01-31T12:00:00+00:00", "sinks", "rules", None, None, None, {"0": 9, "1": 4})


def test_an_interrupted_replay_comes_back_with_its_choice(tmp_path: Path):
    notes = LocalNotes(tmp_path)
    Replays(notes, ID).begun(CHOICE)
    again = Replays(notes, ID)
    assert (again.interrupted, again.next_number, again.done) == (CHOICE, 1, {})
    assert CHOICE.began.isoformat() == CHOICE.at
    again.finished({0: [(2, 3)]}, "sinks")
    last = Replays(notes, ID)
    assert (last.interrupted, last.next_number, last.done) == (None, 1, {0: [(2, 3)]})


def test_ranges_of_several_replays_are_joined(tmp_path: Path):
    notes = LocalNotes(tmp_path)
    for number, ranges in enumerate(({0: [(2, 3), (6, 6)]}, {0: [(4, 5)], 1: [(0, 0)]}, {0: [(0, 0), (8, 8)]})):
        replays = Replays(notes, ID)
        replays.begun(replace(CHOICE, number=number))
        replays.finished(ranges, "sinks")
    assert Replays(notes, ID).done == {0: [(0, 0), (2, 6), (8, 8)], 1: [(0, 0)]}
    assert Replays(notes, ID).next_number == 3


def test_a_recovered_checkpoint_goes_on_with_the_numbers_of_replays(tmp_path):
    notes = LocalNotes(tmp_path)
    Replays(notes, ID).restore(3)
    found = Replays(notes, ID)
    assert (found.next_number, found.recovered, found.done) == (3, True, {})
    found.finished({0: [(1, 2)]}, "sinks")
    Replays(notes, ID).restore(9)  # the marks are there: nothing was lost
    found = Replays(notes, ID)
    assert (found.next_number, found.recovered, found.done) == (3, False, {0: [(1, 2)]})


def test_another_topic_has_other_letters_at_the_same_offsets(tmp_path: Path):
    notes = LocalNotes(tmp_path)
    Replays(notes, ID).finished({0: [(0, 4)]}, "sinks")
    other = Replays(notes, "Xb2")
    assert other.done == {}
    other.finished({0: [(2, 2)]}, "sinks")
    assert Replays(notes, "Xb2").done == {0: [(2, 2)]}
    assert Replays(notes, ID).done == {0: [(0, 4)]}


def test_an_interrupted_replay_goes_on_with_its_own_topic_only(tmp_path: Path):
    notes = LocalNotes(tmp_path)
    assert Replays(notes, ID).resumed("dlq") is None
    opened = replace(CHOICE, topic="dlq", topic_id=ID)
    Replays(notes, ID).begun(opened)
    assert Replays(notes, ID).resumed("dlq") == opened
    with pytest.raises(OutputError, match=r"^an interrupted replay took letters of dlq: finish it with that topic"):
        Replays(notes, "Xb2").resumed("other")
    assert Replays(notes, "Xb2").resumed("dlq") is None  # created again: the letters are gone


def test_letters_that_went_to_the_source_are_not_in_the_sinks(tmp_path: Path):
    notes = LocalNotes(tmp_path)
    Replays(notes, ID).finished({0: [(0, 4)]}, "source")
    Replays(notes, ID).finished({0: [(7, 7)]}, "sinks")
    found = Replays(notes, ID)
    assert (found.done, found.to_sinks) == ({0: [(0, 4), (7, 7)]}, {0: [(7, 7)]})


def test_half_a_million_scattered_letters_can_be_read_again(tmp_path: Path):
    notes = LocalNotes(tmp_path)
    scattered = {0: [(offset, offset) for offset in range(0, 1_000_000, 2)]}
    Replays(notes, ID).finished(scattered, "sinks")
    assert Replays(notes, ID).done == scattered
