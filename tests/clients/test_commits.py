"""Automatic commits cover finished records only: those of earlier polls, and none after an exception."""

from __future__ import annotations

import asyncio

import pytest
from clients.proxy import Action, KafkaProxy
from clients.test_consumer import WAIT_MS, fill, values
from protocol_lib.api import ApiKey
from protocol_lib.client import Admin, ClientSettings, Consumer, TopicPartition

QUICK = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "fetch_max_wait_ms": 50}


async def until_committed(broker, group: str, partition: TopicPartition, expected: int) -> None:
    """Wait until the group has a committed offset, and assert that it is this one."""
    async with Admin(broker.bootstrap) as admin, asyncio.timeout(60):
        while not (found := await admin.groups.offsets(group)):  # noqa: ASYNC110 (nothing else signals it)
            await asyncio.sleep(0.02)
    assert {each: at.offset for each, at in found.items()} == {partition: expected}


@pytest.mark.parametrize("iterate", [False, True])
async def test_an_automatic_commit_covers_the_records_of_earlier_polls(broker, iterate):
    topic, group = await broker.topic(), broker.name("group")
    await fill(broker, topic, 6)
    async with Consumer(broker.bootstrap, group_id=group, auto_commit_interval_ms=200, **QUICK) as consumer:
        await consumer.subscribe([topic])

        async def one() -> int:
            if iterate:
                return (await anext(aiter(consumer))).offset
            (record,) = await consumer.poll(WAIT_MS, records_max=1)
            return record.offset

        assert await one() == 0
        await asyncio.sleep(0.25)
        assert await one() == 1  # commits, and the application works on record 1 from now on
        await until_committed(broker, group, TopicPartition(topic, 0), 1)


async def test_an_automatic_commit_that_is_tried_again_does_not_undo_a_later_one(broker):
    topic, group = await broker.topic(), broker.name("group")
    await fill(broker, topic, 6)
    async with KafkaProxy(broker.bootstrap) as proxy:
        settings = ClientSettings(bootstrap_servers=proxy.bootstrap, retry_backoff_ms=300)
        async with Consumer(settings, group_id=group, auto_commit_interval_ms=100, **QUICK) as consumer:
            await consumer.subscribe([topic])
            assert values(await consumer.poll(WAIT_MS, records_max=1)) == [0]
            dropped = asyncio.Event()

            def drop_the_first(key: ApiKey) -> Action:
                if key is not ApiKey.OFFSET_COMMIT or dropped.is_set():
                    return Action.PASS
                dropped.set()
                return Action.DROP

            proxy.on_request = drop_the_first
            await asyncio.sleep(0.12)
            assert values(await consumer.poll(WAIT_MS, records_max=3)) == [1, 2, 3]  # begins to commit 1
            await asyncio.wait_for(dropped.wait(), 60)
            await asyncio.sleep(0.05)  # the consumer has noticed, and has not tried again
            await consumer.commit()
            await asyncio.sleep(0.8)  # longer than the delay before the next try
            await until_committed(broker, group, TopicPartition(topic, 0), 4)


@pytest.mark.parametrize("subscribed", [False, True])
async def test_an_exception_commits_nothing(broker, subscribed):
    topic, group = await broker.topic(), broker.name("group")
    await fill(broker, topic, 6)

    async def read(bad: int | None) -> list[int]:
        seen: list[int] = []
        async with Consumer(broker.bootstrap, group_id=group, **QUICK) as consumer:
            if subscribed:
                await consumer.subscribe([topic])
            else:
                await consumer.assign([(topic, 0)])
            async for record in consumer:
                if record.offset == bad:
                    raise ValueError(f"offset {bad}")
                seen.append(record.offset)
                if record.offset == 4:
                    break
        return seen

    with pytest.raises(ValueError, match="offset 2"):
        await read(2)
    assert await read(None) == [0, 1, 2, 3, 4]
    async with Admin(broker.bootstrap) as admin:
        assert (await admin.groups.offsets(group))[TopicPartition(topic, 0)].offset == 5


async def test_a_cancelled_block_commits_nothing(broker):
    topic, group = await broker.topic(), broker.name("group")
    await fill(broker, topic, 6)

    async def work() -> None:
        async with Consumer(broker.bootstrap, group_id=group, **QUICK) as consumer:
            await consumer.subscribe([topic])
            assert values(await consumer.poll(WAIT_MS, records_max=3)) == [0, 1, 2]
            working.set()
            await asyncio.sleep(60)

    working = asyncio.Event()
    task = asyncio.create_task(work())
    await asyncio.wait_for(working.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with Admin(broker.bootstrap) as admin:
        assert await admin.groups.offsets(group) == {}


async def test_a_commit_before_the_first_poll_does_nothing(broker):
    topic, group = await broker.topic(), broker.name("group")
    async with Consumer(broker.bootstrap, group_id=group, **QUICK) as consumer:
        await consumer.subscribe([topic])
        await consumer.commit()
        assert await consumer.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): None}
