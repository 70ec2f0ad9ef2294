"""ListOffsets: partitions that a request names twice, and records that are acknowledged with acks=1."""

from __future__ import annotations

from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from tests.wire import versions_of_records
from tests.wire.conftest import Running, Wire, batch, produce


async def listed(wire: Wire, *targets: tuple[str, int, int], version: int = 7) -> list[tuple[int, int]]:
    topics = tuple(
        ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(partition_index=index, timestamp=timestamp),))
        for topic, index, timestamp in targets
    )
    response = await wire.call(2, version, ListOffsetsRequest(replica_id=-1, topics=topics))
    return [(each.error_code, each.offset) for topic in response.topics for each in topic.partitions]


async def test_a_partition_named_twice_is_refused(broker: Running) -> None:
    wire = await broker.connect()
    asked = (("orders", 0, -1), ("single", 0, -1), ("orders", 1, -9), ("orders", 0, -2))
    assert await listed(wire, *asked) == [(42, -1), (0, 0), (35, -1), (42, -1)]
    await wire.close()


async def test_acknowledged_records_are_counted(broker: Running) -> None:
    producer, asking = await broker.connect(), await broker.connect()
    for number in range(50):
        assert await produce(producer, "single", batch(b"v"), acks=1) == (0, number)
        assert await listed(asking, ("single", 0, -1)) == [(0, number + 1)]
    await producer.close()
    await asking.close()


async def test_every_timestamp_in_every_version(broker: Running) -> None:
    wire = await broker.connect()
    await wire.call(0, 7, versions_of_records.ask_produce(7, b""))
    unsupported = (35, -1, -1)
    for version in range(12):
        expected = {
            -1: (0, -1, 2),
            -2: (0, -1, 0),
            1_700_000_000_000: (0, 1_700_000_000_000, 0),
            1_700_000_000_001: (0, -1, -1),
            -3: (0, 1_700_000_000_000, 0) if version >= 7 else unsupported,
            -4: (0, -1, 0) if version >= 8 else unsupported,
            -5: (0, -1, -1) if version >= 9 else unsupported,
            -6: (0, -1, -1) if version >= 11 else unsupported,
            -7: unsupported,
        }
        starts = {-1: (0, (2,)), -2: (0, (0,)), 1_700_000_000_000: (0, ()), 1_700_000_000_001: (0, ())}
        for timestamp, found in expected.items():
            partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topic = ListOffsetsTopic(name="single", partitions=(partition,))
            response = await wire.call(2, version, ListOffsetsRequest(replica_id=-1, topics=(topic,)))
            ((answer,),) = (topic.partitions for topic in response.topics)
            if version == 0:
                assert (answer.error_code, answer.old_style_offsets) == starts.get(timestamp, (35, ()))
            else:
                assert (answer.error_code, answer.timestamp, answer.offset) == found, (version, timestamp)
    await wire.close()
