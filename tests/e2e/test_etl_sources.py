"""Spark's connector reads the same records from Apache Kafka and from Millrace, for each kind of source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(400)]

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from millrace import Broker  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl.config import KafkaOptions, Source  # noqa: E402
from spark_etl.kafka import sources  # noqa: E402
from support.kafka_broker import PASSWORD, USER, ApacheKafka  # noqa: E402

PREFIX = "same" + uuid4().hex
TOPICS = (f"{PREFIX}.a", f"{PREFIX}.b")
AT = 1_769_860_800_000  # 2026-01-31T12:00:00Z
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
Row = tuple[Any, ...]


def fill(servers: str) -> None:
    """Write the same records: with and without keys, values and headers, committed and aborted."""
    admin = AdminClient({"bootstrap.servers": servers})
    keep = {"retention.ms": "-1"}  # the records are older than a week
    for made in admin.create_topics([NewTopic(topic, 2, 1, config=keep) for topic in TOPICS]).values():
        made.result(30)
    plain = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for number in range(20):
        plain.produce(
            TOPICS[number % 2],
            None if number == 4 else b"value %d" % number * (1 + number),
            None if number == 6 else b"\x00\xff%d" % number,
            partition=number // 2 % 2,
            timestamp=AT + 1_000 * number,
            headers=[] if number % 3 else [("h", b"1"), ("h", None), ("é", b"\xff")],
        )
        assert plain.flush(30) == 0
    for number, name in enumerate(("committed", "aborted", "committed too")):
        producer = Producer({"bootstrap.servers": servers, "transactional.id": PREFIX})
        producer.init_transactions(30)
        producer.begin_transaction()
        for topic in TOPICS:
            producer.produce(topic, name.encode(), b"t", partition=1, timestamp=AT + 30_000 + number)
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if name == "aborted" else producer.commit_transaction(30)


@pytest.fixture(scope="module")
def brokers(apache_kafka: ApacheKafka) -> Iterator[tuple[str, str]]:
    """The addresses of Apache Kafka and of Millrace, with the same records."""
    with Broker() as broker:
        for servers in (apache_kafka.bootstrap, broker.bootstrap_servers):
            fill(servers)
        yield apache_kafka.bootstrap, broker.bootstrap_servers


def batch(spark: SparkSession, servers: str, source: Source, kafka: KafkaOptions) -> DataFrame:
    options = sources.options(servers, source, kafka)
    options.pop("maxOffsetsPerTrigger", None)
    return spark.read.format("kafka").options(**options).load()


def streamed(spark: SparkSession, servers: str, source: Source, kafka: KafkaOptions) -> DataFrame:
    name = "t" + uuid4().hex
    records = spark.readStream.format("kafka").options(**sources.options(servers, source, kafka)).load()
    writer = records.writeStream.format("memory").queryName(name)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    return spark.table(name)


def rows(frame: DataFrame) -> list[Row]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [(header["key"], plain(header["value"])) for header in value]
        return bytes(value) if isinstance(value, bytearray) else value

    collected = frame.select(*COLUMNS).orderBy("topic", "partition", "offset").collect()
    return [tuple(plain(value) for value in row) for row in collected]


EVERY = {"topics": list(TOPICS)}
SOURCES: dict[str, tuple[Callable[..., DataFrame], dict[str, Any], int]] = {
    "batch": (batch, {**EVERY, "min_partitions": 8}, 26),
    "stream": (streamed, {**EVERY, "max_offsets_per_trigger": 9}, 26),
    "pattern": (streamed, {"pattern": rf"{PREFIX}\.[ab]"}, 26),
    "timestamp": (batch, {**EVERY, "start": {"timestamp": "2026-01-31T12:00:10Z"}}, 16),
    "stream from a timestamp": (streamed, {**EVERY, "start": {"timestamp": "2026-01-31T12:00:30.001Z"}}, 4),
    "offsets": (batch, {**EVERY, "start": {"offsets": {topic: {0: 2, 1: "earliest"} for topic in TOPICS}}}, 22),
    "read_committed": (batch, {**EVERY, "isolation": "read_committed"}, 24),
    "read_committed stream": (streamed, {**EVERY, "isolation": "read_committed"}, 24),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_records_from_both(spark, brokers, name):
    read, section, count = SOURCES[name]
    source = Source.model_validate(section)
    apache, ours = (rows(read(spark, servers, source, KafkaOptions({}))) for servers in brokers)
    assert ours == apache
    assert len(ours) == count
    values = {row[6] for row in ours}
    assert (b"aborted" in values) == ("read_committed" not in name)
    assert b"committed too" in values
    if count == 26:
        assert [row[2] for row in ours if row[:2] == (TOPICS[0], 0)] == [0, 1, 2, 3, 4]
        first = ours[0]
        assert (*first[:3], first[3].isoformat(), *first[4:]) == (
            *(TOPICS[0], 0, 0, "2026-01-31T12:00:00", 0, b"\x00\xff0", b"value 0"),
            [("h", b"1"), ("h", None), ("é", b"\xff")],
        )


def test_a_login_and_the_certificate_of_a_cluster(spark, apache_kafka, brokers):
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": login,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(apache_kafka.certificate),
    }
    source = Source.model_validate(EVERY)
    frame = batch(spark, apache_kafka.addresses["SASL_SSL"], source, KafkaOptions.model_validate(options))
    assert frame.count() == 26
