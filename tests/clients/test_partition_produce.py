"""Batches without a producer: repeated ones are kept once, a gap is refused, and no topic is made."""

from __future__ import annotations

import asyncio

from clients.conftest import RunningBroker
from protocol_lib.client import BrokerError, Cluster, Connection, TopicPartition, fetch, new_producer_id, produce
from protocol_lib.client.topic_admin import TopicAdmin
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record


async def _identity(connection: Connection) -> tuple[int, int]:
    """Return a new identity. Apache Kafka answers with an error until it has ids to give."""
    while True:
        try:
            return await new_producer_id(connection)
        except BrokerError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.1)


async def test_batches_under_an_identity(broker: RunningBroker, cluster: Cluster) -> None:
    topic = await broker.topic("produced", 2)
    await cluster.topic(topic)
    connection: Connection = await cluster.connection(cluster.leader(TopicPartition(topic, 0)))
    producer_id, epoch = await _identity(connection)

    def batch(sequence: int) -> bytes:
        records = [Record(offset, 1_000 + offset, None, b"v", ()) for offset in range(2)]
        return build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    async def answers(batches: dict[int, bytes], name: str = topic) -> list[tuple[int, int, int, int]]:
        found = await produce(connection, name, batches, timeout_ms=30_000)
        return sorted((each.partition, each.error_code, each.base_offset, each.timestamp) for each in found)

    assert await answers({0: batch(0), 1: batch(0)}) == [(0, 0, 0, -1), (1, 0, 0, -1)]
    assert await answers({0: batch(2)}) == [(0, 0, 2, -1)]
    assert (await answers({0: batch(0)}))[0][:3] == (0, 0, 0)  # again: the broker kept one copy
    assert await answers({0: batch(9)}) == [(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)]
    (stored,) = await fetch(connection, topic, {0: 0}, bytes_max=1 << 20)
    assert [record.offset for batch, _ in stored.batches() for record in batch.records()] == [0, 1, 2, 3]
    unknown = broker.name("never-made")
    assert await answers({0: batch(0)}, unknown) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]
    assert unknown not in await TopicAdmin(cluster).list()
