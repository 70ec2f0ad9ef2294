"""The pool of producer ids: filled ahead, empty until the first one is needed, and honest when there are none."""

from __future__ import annotations

import asyncio

import pytest
from storage_svc.topics.catalog_file import CatalogError
from storage_svc.topics.producer_ids import BLOCK_SIZE, LOW, ProducerIds, first_unused


class Blocks:
    """An allocation that waits until it is let go."""

    def __init__(self) -> None:
        self.allocated = 0
        self.is_broken = False
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, count: int) -> range:
        await self.go_on.wait()
        if self.is_broken:
            raise CatalogError("a test")
        first = self.allocated * count
        self.allocated += 1
        return range(first, first + count)


async def test_the_first_block_is_allocated_when_an_id_is_needed() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks)
    assert (ids.spare, blocks.allocated) == (None, 0)
    assert await asyncio.gather(*(ids.next() for _ in range(3))) == [0, 1, 2]
    assert (ids.spare, blocks.allocated) == (3, 1)


async def test_the_next_block_is_allocated_before_the_pool_is_empty() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks)
    await ids.next()
    for _ in range(BLOCK_SIZE - LOW - 1):
        ids.take()
    await asyncio.sleep(0)
    assert blocks.allocated == 1
    ids.take()
    await asyncio.sleep(0)
    assert blocks.allocated == 2
    assert [ids.take() for _ in range(LOW)] == list(range(BLOCK_SIZE - LOW + 1, BLOCK_SIZE + 1))


async def test_more_callers_than_a_block_get_an_id_each() -> None:
    ids = ProducerIds(Blocks())
    found = await asyncio.gather(*(ids.next() for _ in range(2 * BLOCK_SIZE + 1)))
    assert sorted(each for each in found if each is not None) == list(range(2 * BLOCK_SIZE + 1))


async def test_no_block_is_no_id_for_those_who_wait() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks)
    blocks.is_broken = True
    assert await asyncio.gather(ids.next(), ids.next()) == [None, None]
    with pytest.raises(IndexError):
        ids.take()
    blocks.is_broken = False
    assert await ids.next() == 0


async def test_a_close_waits_for_the_allocation_under_way_and_allows_no_other() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks)
    blocks.go_on.clear()
    waiting = asyncio.create_task(ids.next())
    await asyncio.sleep(0)
    closing = asyncio.create_task(ids.close())
    await asyncio.sleep(0)
    blocks.go_on.set()
    await closing
    assert await waiting == 0
    for _ in range(BLOCK_SIZE - 1):
        ids.take()
    assert (await ids.next(), blocks.allocated) == (None, 1)


def test_ids_of_the_logs_are_not_allocated_but_for_invented_ones() -> None:
    assert (first_unused([]), first_unused([3, 41, 7]), first_unused([3, 2**62])) == (0, 42, 4)
