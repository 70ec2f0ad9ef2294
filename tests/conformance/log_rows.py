"""The records of the topics of these tests, written and read by stock clients.

Partition 0 of every topic has records in every codec by idempotent producers, with timestamps out of order. They are
enough for segments to roll. Partition 1 is small and has headers, null keys and tombstones.
"""

from __future__ import annotations

import base64
import random
import time
from typing import NamedTuple

from conformance.raw_connection import until_led
from support.late import confluent

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 200
NOISE_BYTES = 2100
SEGMENT_BYTES = 1 << 20  # the least that Kafka accepts
GROUP = "readers"
COMMITTED = {0: 321, 1: 7}


class Row(NamedTuple):
    """One record; its place in a list is its offset."""

    timestamp: int
    key: str | None
    value: str | None
    header: str | None = None


def rows_of(seed: str) -> dict[int, list[Row]]:
    """Return the records of a topic's partitions, the same for every call within an hour of a test run."""
    randomness = random.Random(seed)
    rows = []
    for number in range(PER_CODEC * len(CODECS)):
        noise = base64.b64encode(randomness.randbytes(NOISE_BYTES)).decode()
        rows.append(Row(EPOCH_MS + number * 7919 % 5000, f"k{number % 31}", f"{number}-{noise}{'-' * 1200}"))
    small = [Row(EPOCH_MS + number, f"s{number}", f"v{number}", "trace") for number in range(20)]
    small[3] = small[3]._replace(key=None)
    small[5] = small[5]._replace(value=None)
    small[6] = small[6]._replace(value="")
    return {0: rows, 1: small}


EPOCH_MS = int(time.time() // 3600 * 3600 - 7200) * 1000  # wall clock: timestamps of records that Kafka must not expire


def produce(bootstrap: str, topic: str, partition: int, rows: list[Row], codec: str, *, idempotent: bool) -> None:
    """Produce all rows, in order, in batches of a few records."""
    producer = confluent.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "enable.idempotence": idempotent,
            "batch.num.messages": 7,
            "linger.ms": 50,
        }
    )
    failed: list[confluent.KafkaError] = []
    for row in rows:
        producer.produce(
            topic,
            row.value,
            row.key,
            partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            timestamp=row.timestamp,
            headers=[(row.header, b"1")] if row.header else None,
        )
    assert producer.flush(60) == 0
    assert not failed, failed


def write_topic(bootstrap: str, topic: str, rows: dict[int, list[Row]]) -> None:
    """Write the rows with one codec after the other, each by a new producer."""
    for index, codec in enumerate(CODECS):
        part = rows[0][index * PER_CODEC : (index + 1) * PER_CODEC]
        produce(bootstrap, topic, 0, part, codec, idempotent=True)
    produce(bootstrap, topic, 1, rows[1], "none", idempotent=False)


def create(bootstrap: str, topic: str, **configs: str) -> None:
    admin = confluent.admin.AdminClient({"bootstrap.servers": bootstrap})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([confluent.admin.NewTopic(topic, 2, 1, config=named)])[topic].result(60)
    until_led(bootstrap, topic, 2)


def topics(bootstrap: str) -> set[str]:
    return set(confluent.admin.AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def consumer(bootstrap: str, **configs: object) -> confluent.Consumer:
    return confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **configs,
        }
    )


def _row(message: confluent.Message) -> Row:
    key, value, headers = message.key(), message.value(), message.headers()
    return Row(
        message.timestamp()[1],
        None if key is None else key.decode(),
        None if value is None else value.decode(),
        headers[0][0] if headers else None,
    )


def _watermarks(client: confluent.Consumer, partition: confluent.TopicPartition) -> tuple[int, int]:
    """Return the first and the end offset; a Kafka that has just started may not lead the partition yet."""
    until = time.monotonic() + 30
    while True:
        try:
            return client.get_watermark_offsets(partition, timeout=30)
        except confluent.KafkaException as error:
            if error.args[0].code() != confluent.KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > until:
                raise
            time.sleep(0.1)


def read(bootstrap: str, topic: str, partition: int) -> list[Row]:
    """Return every record of a partition; their offsets must be consecutive and the log must begin at 0."""
    client = consumer(bootstrap)
    found: list[Row] = []
    try:
        start, end = _watermarks(client, confluent.TopicPartition(topic, partition))
        assert start == 0
        client.assign([confluent.TopicPartition(topic, partition, 0)])
        while len(found) < end:
            message = client.poll(30)
            assert message is not None, f"{topic}-{partition}: {len(found)} records, then nothing"
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            found.append(_row(message))
    finally:
        client.close()
    return found


def read_with_offsets(bootstrap: str, topic: str, isolation: str) -> tuple[int, dict[int, Row]]:
    """Return the end offset of partition 0 for a consumer of this isolation level, and its records by offset."""
    client = consumer(bootstrap, **{"isolation.level": isolation, "enable.partition.eof": True})
    found: dict[int, Row] = {}
    try:
        client.assign([confluent.TopicPartition(topic, 0, 0)])
        while True:
            message = client.poll(30)
            assert message is not None, f"{topic}: {len(found)} records, then nothing"
            if (error := message.error()) is None:
                found[message.offset()] = _row(message)
                continue
            assert error.code() == confluent.KafkaError._PARTITION_EOF, error
            return message.offset(), found
    finally:
        client.close()


def assert_found_by_timestamp(bootstrap: str, topic: str, rows: list[Row]) -> None:
    """Assert that a search of partition 0 by timestamp finds the first record that is not older."""
    stamps = sorted(row.timestamp for row in rows)
    wanted = [stamps[0] - 1, *stamps[:: len(stamps) // 12], stamps[-1]]
    client = consumer(bootstrap)
    try:
        for stamp in wanted:
            (found,) = client.offsets_for_times([confluent.TopicPartition(topic, 0, stamp)], timeout=30)
            assert found.offset == next(offset for offset, row in enumerate(rows) if row.timestamp >= stamp)
    finally:
        client.close()


def commit(bootstrap: str, topic: str) -> None:
    """Commit the group's offsets by a member of it."""
    client = consumer(bootstrap)
    assigned: list[bool] = []
    try:
        client.subscribe([topic], on_assign=lambda *_: assigned.append(True))
        deadline = time.monotonic() + 60
        while not assigned and time.monotonic() < deadline:
            client.poll(0.2)
        assert assigned, "the member got no assignment"
        offsets = [confluent.TopicPartition(topic, partition, offset) for partition, offset in COMMITTED.items()]
        client.commit(offsets=offsets, asynchronous=False)
    finally:
        client.close()


def committed(bootstrap: str, topic: str) -> dict[int, int]:
    client = consumer(bootstrap)
    try:
        found = client.committed([confluent.TopicPartition(topic, partition) for partition in COMMITTED], timeout=30)
        return {each.partition: each.offset for each in found}
    finally:
        client.close()
