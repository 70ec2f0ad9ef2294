"""Committed offsets: durable when answered, checked one by one, gone with their topic."""

from __future__ import annotations

import asyncio
import threading

from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.internal.record import read_key
from protocol_lib.records.batch import read_batches
from storage_svc.coordinator.limits import CoordinatorSettings
from storage_svc.coordinator.stored.records import OWN_KEYS, partition_of
from storage_svc.log.disk.files import Files

from tests.unit.storage_svc.coordinator.conftest import E, Node


async def test_committed_offsets_survive_a_restart(node: Node) -> None:
    assert await node.commit("g", ("orders", 0, 5), ("orders", 2, 9)) == [E.NONE, E.NONE]
    assert await node.commit("g", ("orders", 0, 6)) == [E.NONE]
    expected = {("orders", 0): 6, ("orders", 2): 9}
    assert node.fetched("g") == expected
    await node.restart()
    assert node.fetched("g") == expected
    orders = node.registry.get("orders")
    assert orders is not None
    committed = OffsetCommitValue(
        offset=9, leader_epoch=7, metadata="m9", commit_timestamp=1_700_000_000_000, topic_id=orders.id
    )
    assert node.coordinator.offsets.fetch("g", [("orders", 2), ("orders", 1)]) == (
        E.NONE,
        [(("orders", 2), committed), (("orders", 1), None)],
    )


async def test_one_commit_is_one_batch_and_durable_when_answered(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1), ("orders", 1, 1), ("orders", 2, 1))
    log = node.logs.logs["__consumer_offsets", partition_of("g", 4)]
    assert log.log_end_offset == log.high_watermark == 3
    ((header, _),) = read_batches(log.read_batches(0, 1 << 20))
    assert header.records_count == 3
    keys = [read_key(OWN_KEYS, key) for key, _ in node.records("g")]
    assert keys == [OffsetCommitKey(group="g", topic="orders", partition=index) for index in range(3)]


async def test_the_offsets_topic_is_made_with_all_its_partitions_when_first_needed(node: Node) -> None:
    assert "__consumer_offsets" not in node.registry
    node.coordinator.offsets.fetch("g", None)
    await node.heartbeat("g", "m", 1)
    assert "__consumer_offsets" not in node.registry
    await node.commit("g", ("orders", 0, 1))
    topic = node.registry.get("__consumer_offsets")
    assert topic is not None
    assert (topic.partition_count, topic.is_internal) == (4, True)
    assert node.logs.logs["__consumer_offsets", 3].config.compacted


async def test_a_deleted_topics_offsets_are_deleted_for_good(node: Node) -> None:
    await node.registry.create("users", 1, {})
    await node.commit("g", ("orders", 0, 1), ("users", 0, 2))
    topic = node.registry.get("users")
    assert topic is not None
    await node.registry.delete([topic])
    assert node.fetched("g") == {("orders", 0): 1}
    await node.restart()
    assert node.fetched("g") == {("orders", 0): 1}
    key, value = node.records("g")[-1]
    assert (read_key(OWN_KEYS, key), value) == (OffsetCommitKey(group="g", topic="users", partition=0), None)


async def test_a_commit_under_way_when_its_topic_is_deleted_leaves_nothing(node: Node) -> None:
    await node.registry.create("users", 1, {})
    await node.commit("g", ("orders", 0, 1))
    under_way = asyncio.create_task(node.commit("g", ("orders", 1, 3), ("users", 0, 2)))
    await asyncio.sleep(0)
    topic = node.registry.get("users")
    assert topic is not None
    await node.registry.delete([topic])
    assert await under_way == [E.NONE, E.NONE]
    expected = {("orders", 0): 1, ("orders", 1): 3}
    assert node.fetched("g") == expected
    await node.restart()
    assert node.fetched("g") == expected


class DiskThatHangs(Files):
    def __init__(self) -> None:
        self.answers = threading.Event()

    def sync_queue(self) -> None:
        """Return no queue: every sync goes through `sync`."""

    def sync(self, descriptor: int) -> None:
        assert self.answers.wait(30)
        super().sync(descriptor)


async def test_a_commit_does_not_wait_for_a_disk_that_hangs(node: Node) -> None:
    assert await node.commit("g", ("orders", 0, 1)) == [E.NONE]
    disk = node.files = DiskThatHangs()
    node.settings = CoordinatorSettings(offsets_commit_timeout_ms=50)
    disk.answers.set()
    await node.restart()
    disk.answers.clear()
    late = [node.commit("g", ("orders", 0, 2)), node.commit("g", ("orders", 1, 3))]
    assert await asyncio.wait_for(asyncio.gather(*late), 60) == [[E.COORDINATOR_NOT_AVAILABLE]] * 2
    assert node.fetched("g") == {("orders", 0): 1}
    disk.answers.set()
    await node.settled("g")
    assert node.fetched("g") == {("orders", 0): 2, ("orders", 1): 3}


async def test_a_missing_partition_comes_before_the_faults_of_group_and_member(node: Node) -> None:
    offsets = ("nowhere", 0, 1), ("orders", 0, 1)
    missing = E.UNKNOWN_TOPIC_OR_PARTITION
    assert await node.commit("g" * 32_768, *offsets) == [missing, E.INVALID_GROUP_ID]
    assert await node.commit("g", *offsets, member_id="m", generation_id=3) == [missing, E.ILLEGAL_GENERATION]
    assert await node.commit("g", *offsets) == [missing, E.NONE]
