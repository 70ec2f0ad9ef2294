"""Turns of old clients' fetches: one at a time, in order, as far as there is room."""

from __future__ import annotations

import asyncio

import pytest
from gateway_svc.fetching import shown_answers
from gateway_svc.fetching.shown_answers import ROOM_MIN, SHOWN_BYTES_MAX, ShownAnswers


class Reader:
    """A connection that has not read this number of bytes."""

    def __init__(self, unsent_bytes: int = 0) -> None:
        self.unsent_bytes = unsent_bytes


class Fetch:
    """The key of one answer."""


async def test_one_turn_at_a_time_in_order_with_the_bytes_that_are_left() -> None:
    turns = ShownAnswers(asyncio.get_running_loop())
    begun: list[tuple[str, int]] = []
    for name in "abc":
        give_up = turns.take(lambda room, name=name: begun.append((name, room)), lambda: None)  # type: ignore[misc]
        if name == "b":
            give_up()
    assert begun == [("a", SHOWN_BYTES_MAX)]
    fetch, reader = Fetch(), Reader(1000)
    turns.keep(fetch, 5000)
    turns.end()
    assert begun[1:] == [("c", SHOWN_BYTES_MAX - 5000)]
    turns.sent(fetch, reader)
    assert turns.held == 1000
    reader.unsent_bytes = 0
    assert turns.held == 0
    turns.keep(fetch, 5000)
    del fetch
    assert turns.held == 0  # it was given up
    turns.close()


async def test_a_fetch_waits_for_room_and_goes_without_it_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_answers, "WAIT_S", 0.1)
    turns = ShownAnswers(asyncio.get_running_loop())
    reader = Reader(SHOWN_BYTES_MAX - ROOM_MIN + 1)
    turns.sent(Fetch(), reader)
    outcomes: list[int | None] = []
    turns.take(outcomes.append, lambda: outcomes.append(None))
    assert outcomes == []
    assert turns.missing == SHOWN_BYTES_MAX // 4 - ROOM_MIN + 1
    await asyncio.sleep(0.2)
    assert outcomes == [None]
    assert turns.missing == 0  # nobody waits
    turns.take(outcomes.append, lambda: outcomes.append(None))
    reader.unsent_bytes -= 1
    await asyncio.sleep(0.05)
    assert outcomes == [None, ROOM_MIN]
    turns.close()


async def test_a_fetch_that_waits_for_others_only_is_served_however_long_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shown_answers, "WAIT_S", 0.02)
    turns = ShownAnswers(asyncio.get_running_loop())
    outcomes: list[int | None] = []
    for _ in range(2):
        turns.take(outcomes.append, lambda: outcomes.append(None))
    await asyncio.sleep(0.1)
    assert outcomes == [SHOWN_BYTES_MAX]
    turns.end()
    assert outcomes == [SHOWN_BYTES_MAX] * 2
    turns.close()


async def test_a_turn_leaves_bytes_to_those_who_wait() -> None:
    """Sixty fetches of 50 MB kept one of a kilobyte waiting for as long as all of them take."""
    turns = ShownAnswers(asyncio.get_running_loop())
    rooms: list[int] = []
    for _ in range(100):
        turns.take(rooms.append, lambda: None)
    for _ in range(99):
        turns.end()
    assert rooms[0] == SHOWN_BYTES_MAX
    assert rooms[1] == shown_answers._SHARE_MIN
    assert rooms[-4:] == [SHOWN_BYTES_MAX // 4, SHOWN_BYTES_MAX // 3, SHOWN_BYTES_MAX // 2, SHOWN_BYTES_MAX]
    turns.close()
