"""Clients from before Kafka 0.11 and new clients together: message sets of formats 0 and 1, every codec.

librdkafka reads the broker's version from its settings when it may not ask for it; so does kafka-python.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from millrace.broker import Broker
from protocol_lib.records.compression import Codec
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import Record
from support.late import confluent, kafka_python

from tests.wire.conftest import SynchronousBroker

TIMEOUT_S = 60
CODECS = ("none", "gzip", "snappy", "lz4")
#: Versions of the broker in librdkafka's settings. From 0.10 on it asks the broker instead.
BROKER_VERSIONS = ("0.8.2.2", "0.9.0.1")

_topics = count()


@pytest.fixture
def topic(module_broker: SynchronousBroker) -> str:
    name = f"old-clients-{next(_topics)}"
    admin = confluent.admin.AdminClient({"bootstrap.servers": module_broker.bootstrap_servers})
    for future in admin.create_topics([confluent.admin.NewTopic(name, num_partitions=1)]).values():
        future.result(TIMEOUT_S)
    return name


def config(broker: SynchronousBroker | Broker, version: str | None) -> dict[str, object]:
    old = {"api.version.request": False, "broker.version.fallback": version} if version else {}
    return {"bootstrap.servers": broker.bootstrap_servers, **old}


def produce(broker: SynchronousBroker | Broker, topic: str, values: range, version: str | None, codec: str) -> None:
    failed: list[object] = []
    producer = confluent.Producer(config(broker, version) | {"compression.type": codec, "linger.ms": 50})
    for value in values:
        producer.produce(
            topic,
            key=b"key-%d" % value,
            value=b"%d" % value,
            timestamp=1_700_000_000_000 + value,
            on_delivery=lambda error, _record: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def consume(
    broker: SynchronousBroker | Broker, topic: str, number: int, version: str | None
) -> list[confluent.Message]:
    consumer = confluent.Consumer(config(broker, version) | {"group.id": "unused"})
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < number:
        (record,) = consumer.consume(1, TIMEOUT_S) or [None]
        assert record is not None, f"{len(found)} of {number}"
        assert record.error() is None
        found.append(record)
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", BROKER_VERSIONS)
def test_librdkafka(module_broker: SynchronousBroker, topic: str, version: str, codec: str) -> None:
    """Old and new producers take turns on one topic; old and new consumers read the same."""
    produce(module_broker, topic, range(100), version, codec)
    produce(module_broker, topic, range(100, 200), None, codec)
    produce(module_broker, topic, range(200, 300), version, codec)
    for reader in (version, None):
        found = consume(module_broker, topic, 300, reader)
        assert [record.offset() for record in found] == list(range(300))
        assert [record.value() for record in found] == [b"%d" % value for value in range(300)]
        assert [record.key() for record in found] == [b"key-%d" % value for value in range(300)]
    times = [record.timestamp()[1] for record in consume(module_broker, topic, 300, None)]
    assert times == [-1] * 100 + [1_700_000_000_000 + value for value in range(100, 200)] + [-1] * 100


@pytest.mark.parametrize("codec", ["none", "gzip"])  # its codecs without other packages
@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10)])
def test_kafka_python(module_broker: SynchronousBroker, topic: str, version: tuple[int, ...], codec: str) -> None:
    options = {"bootstrap_servers": module_broker.bootstrap_servers, "api_version": version}
    producer = kafka_python.KafkaProducer(**options, compression_type=None if codec == "none" else codec, linger_ms=50)
    sent = [producer.send(topic, key=b"key", value=b"%d" % value) for value in range(50)]
    assert [each.get(TIMEOUT_S).offset for each in sent] == list(range(50))
    producer.close()
    produce(module_broker, topic, range(50, 100), None, codec)
    consumer = kafka_python.KafkaConsumer(**options, auto_offset_reset="earliest", enable_auto_commit=False)
    partition = kafka_python.TopicPartition(topic, 0)
    consumer.assign([partition])
    found = []
    while len(found) < 100:
        records = consumer.poll(TIMEOUT_S * 1000)
        assert records
        found += records[partition]
    assert [(record.offset, record.value) for record in found] == [(value, b"%d" % value) for value in range(100)]
    consumer.close()


def old_log(folder: Path) -> None:
    """Write partition 0 of topic "old" as a Kafka 0.10 does: 30 records of each format, and an offset checkpoint."""
    records = [Record(n, 1_700_000_000_000 + n, b"key-%d" % n, b"%d" % n) for n in range(60)]
    content = [build_message_set(records[:10], magic=0), build_message_set(records[10:30], magic=0, codec=Codec.GZIP)]
    content += [build_message_set(records[30:40], magic=1), build_message_set(records[40:], magic=1, codec=Codec.LZ4)]
    (folder / "old-0").mkdir()
    (folder / "old-0" / f"{0:020d}.log").write_bytes(b"".join(content))
    (folder / "meta.properties").write_text("version=0\nbroker.id=0\n")
    for name in ("recovery-point", "replication"):
        (folder / f"{name}-offset-checkpoint").write_text("0\n1\nold 0 60\n")
    (folder / ".kafka_cleanshutdown").touch()


def test_the_data_folder_of_an_old_broker(tmp_path: Path) -> None:
    old_log(tmp_path)
    with Broker(data_dir=tmp_path) as broker:
        produce(broker, "old", range(60, 90), None, "zstd")
        produce(broker, "old", range(90, 100), "0.9.0.1", "gzip")
        found = consume(broker, "old", 100, None)
        assert [(record.offset(), record.value()) for record in found] == [(n, b"%d" % n) for n in range(100)]
        times = [record.timestamp()[1] for record in found]
        # librdkafka says 0 of a format that has no timestamps, -1 of a record without one.
        assert times == [0] * 30 + [1_700_000_000_000 + n for n in range(30, 90)] + [-1] * 10
        assert [record.offset() for record in consume(broker, "old", 100, "0.9.0.1")] == list(range(100))
        consumer = confluent.Consumer(config(broker, None) | {"group.id": "unused"})
        (asked,) = consumer.offsets_for_times([confluent.TopicPartition("old", 0, 1_700_000_000_050)])
        assert asked.offset == 50
        consumer.close()
