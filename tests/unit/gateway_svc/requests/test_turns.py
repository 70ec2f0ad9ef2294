"""Turns for others during long requests, and the memory that an answer may take."""

from __future__ import annotations

import asyncio

import pytest
from gateway_svc.errors import AnswerTooLarge
from gateway_svc.requests.turns import ANSWER_MEMORY_MAX, AnswerMemory, in_turns, is_long
from protocol_lib.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from protocol_lib.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def test_others_have_a_turn_between_two_pieces() -> None:
    seen: list[object] = []

    async def other() -> None:
        for _ in range(10):
            seen.append("other")
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    async for piece in in_turns(range(7), 3):
        seen.append(list(piece))
    await running
    places = [seen.index(piece) for piece in ([0, 1, 2], [3, 4, 5], [6])]
    assert "other" in seen[places[0] : places[1]]
    assert "other" in seen[places[1] : places[2]]
    assert len(seen) == 13


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_short_request_takes_no_turns(count: int) -> None:
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    assert [list(piece) async for piece in in_turns(range(count), 3)] == ([list(range(count))] if count else [])
    assert turns == []


def test_an_answer_is_given_up_when_it_takes_too_much() -> None:
    memory = AnswerMemory(100)
    memory.take(ANSWER_MEMORY_MAX)
    memory.take(1000)
    with pytest.raises(AnswerTooLarge):
        memory.take(1)


@pytest.mark.parametrize(("rows", "expected"), [(5000, False), (5001, True)])
def test_rows_are_counted_at_both_levels(rows: int, expected: bool) -> None:
    result = DeletableGroupResult(group_id="g", error_code=0, error_message=None)
    assert is_long(DeleteGroupsResponse(throttle_time_ms=0, results=(result,) * rows)) is expected
    row = OffsetDeleteResponsePartition(partition_index=0, error_code=0)
    topics = (
        OffsetDeleteResponseTopic(name="a", partitions=(row,) * (rows - 1002)),
        OffsetDeleteResponseTopic(name="b", partitions=(row,) * 1000),
    )
    assert is_long(OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics)) is expected
