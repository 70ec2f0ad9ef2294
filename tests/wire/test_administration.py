"""The views of administrators: producers and sizes of partitions, pages of them, and the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from protocol_lib.messages import describe_cluster, describe_log_dirs, describe_producers
from protocol_lib.messages import describe_topic_partitions as pages
from protocol_lib.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol_lib.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.unregister_broker import UnregisterBrokerRequest

from tests.wire.conftest import Running, Wire, batch, produce


async def producers(wire: Wire, topic: str) -> list[tuple[int, int, int, int, int, int]]:
    """Return (id, epoch, last sequence, last timestamp, coordinator epoch, first offset of the transaction)."""
    asked = describe_producers.TopicRequest(name=topic, partition_indexes=(0,))
    response = await wire.call(61, 0, describe_producers.DescribeProducersRequest(topics=(asked,)))
    ((partition,),) = (each.partitions for each in response.topics)
    assert partition.error_code == 0
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in partition.active_producers
    ]


async def test_producers_of_a_partition(broker: Running) -> None:
    wire = await broker.connect()
    assert await producers(wire, "single") == []
    await produce(wire, "single", batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0), acks=-1)
    await produce(wire, "single", batch(b"c", producer_id=7, producer_epoch=3, base_sequence=2), acks=-1)
    assert await producers(wire, "single") == [(7, 3, 2, 1_700_000_000_000, -1, -1)]
    await wire.close()


async def log_folder(wire: Wire) -> Any:
    response = await wire.call(35, 5, describe_log_dirs.DescribeLogDirsRequest(topics=None))
    (folder,) = response.results
    return folder


async def test_sizes_of_partitions(broker: Running) -> None:
    wire = await broker.connect()
    sizes = {
        (topic.name, each.partition_index) for topic in (await log_folder(wire)).topics for each in topic.partitions
    }
    assert sizes >= {("orders", 0), ("orders", 1), ("orders", 2), ("single", 0)}
    records = batch(b"v" * 1000)
    await produce(wire, "single", records, acks=-1)
    folder = await log_folder(wire)
    (single,) = (topic for topic in folder.topics if topic.name == "single")
    assert [each.partition_size for each in single.partitions] == [len(records)]
    await wire.close()


async def test_partitions_move_to_the_folder_they_are_in_only(broker: Running) -> None:
    wire = await broker.connect()
    path = (await log_folder(wire)).log_dir
    codes = {}
    for where, topic in ((path, "single"), (path, "nowhere"), ("/elsewhere", "single")):
        named = AlterReplicaLogDirTopic(name=topic, partitions=(0,))
        request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=where, topics=(named,)),))
        ((row,),) = (each.partitions for each in (await wire.call(34, 2, request)).results)
        codes[where == path, topic] = row.error_code
    assert codes == {(True, "single"): 0, (True, "nowhere"): 9, (False, "single"): 57}
    await wire.close()


async def grown(wire: Wire, topic: str, count: int, *assignments: tuple[int, ...]) -> tuple[int, str | None]:
    replicas = tuple(CreatePartitionsAssignment(broker_ids=each) for each in assignments) or None
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=replicas)
    request = CreatePartitionsRequest(topics=(wanted,), timeout_ms=1000, validate_only=False)
    (result,) = (await wire.call(37, 3, request)).results
    return result.error_code, result.error_message


async def test_a_topic_gets_partitions(broker: Running) -> None:
    wire = await broker.connect()
    assert (await produce(wire, "single", batch(b"v"), partition=2))[0] == 3
    assert await grown(wire, "single", 3) == (0, None)
    assert await produce(wire, "single", batch(b"v"), partition=2) == (0, 0)
    assert [len(topic.partitions) for topic in (await described(wire, ("single",), 10, None)).topics] == [3]
    assert await grown(wire, "single", 1) == (
        37,
        "The topic single currently has 3 partition(s); 1 would not be an increase.",
    )
    includes = "The manual partition assignment includes"
    assert await grown(wire, "single", 5, (1,)) == (
        39,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    )
    assert await grown(wire, "single", 4, ()) == (39, f"{includes} an empty replica list.")
    assert await grown(wire, "single", 4, (1, 1)) == (39, f"{includes} the broker 1 more than once.")
    assert await grown(wire, "single", 4, (9,)) == (39, f"{includes} broker 9, but no such broker is registered.")
    assert await grown(wire, "single", 4, (1,)) == (0, None)
    assert (await grown(wire, "single", 20_000))[0] == 44
    await wire.call(10, 2, FindCoordinatorRequest(key="g", key_type=0))
    reason = "Topic '__consumer_offsets' belongs to the broker itself: its groups would lose their offsets."
    assert await grown(wire, "__consumer_offsets", 60) == (17, reason)
    await wire.close()


async def described(wire: Wire, names: tuple[str, ...], limit: int, cursor: tuple[str, int] | None) -> Any:
    request = pages.DescribeTopicPartitionsRequest(
        topics=tuple(pages.TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else pages.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return await wire.call(75, 0, request)


@pytest.mark.parametrize("names", [("single", "orders"), ()])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_pages_hold_every_partition_once(broker: Running, names: tuple[str, ...], limit: int) -> None:
    wire = await broker.connect()
    found, cursor = [], None
    while True:
        page = await described(wire, names, limit, cursor)
        rows = [(topic.name, each.partition_index) for topic in page.topics for each in topic.partitions]
        assert len(rows) <= limit
        found += rows
        if page.next_cursor is None:
            break
        cursor = (page.next_cursor.topic_name, page.next_cursor.partition_index)
    assert found == [("orders", 0), ("orders", 1), ("orders", 2), ("single", 0)]
    await wire.close()


@pytest.mark.parametrize(
    ("names", "cursor", "codes"),
    [
        (("single",), ("orders", 0), [42]),  # below all topics named
        (("single",), ("single", -1), [42]),
        (("single",), ("zebra", 0), [42]),
        (("orders", "single"), ("single", 0), [0]),
        (("single",), ("single", 9), [0]),
    ],
)
async def test_cursors(broker: Running, names: tuple[str, ...], cursor: tuple[str, int], codes: list[int]) -> None:
    wire = await broker.connect()
    page = await described(wire, names, 10, cursor)
    assert [each.error_code for each in page.topics] == codes
    await wire.close()


@pytest.mark.parametrize(("version", "endpoint", "code"), [(1, 2, 114), (2, 2, 114), (1, 9, 115), (0, 1, 0)])
async def test_endpoints_of_a_cluster(broker: Running, version: int, endpoint: int, code: int) -> None:
    wire = await broker.connect()
    response = await wire.call(
        60,
        version,
        describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint),
    )
    assert response.error_code == code
    assert len(response.brokers) == (0 if code else 1)
    await wire.close()


async def test_a_broker_that_is_unregistered_registers_again(broker: Running) -> None:
    wire = await broker.connect()
    assert (await wire.call(64, 0, UnregisterBrokerRequest(broker_id=1))).error_code == 0
    assert (await wire.call(64, 0, UnregisterBrokerRequest(broker_id=1))).error_code == 102
    await wire.close()
