"""Each way to begin and limit a source, by the stock connector on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(200)]

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from millrace import Broker  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from spark_etl.config import KafkaOptions, Source  # noqa: E402
from spark_etl.kafka.sources import options  # noqa: E402

HOUR = 3_600_000
BEGIN = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with two topics of two partitions: record n of each has the timestamp BEGIN + n hours."""
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in ("in.a", "in.b", "out", "paid")]).values():
            made.result(20)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic in ("in.a", "in.b"):
            for number in range(10):
                value = f"{topic}-{number}"
                producer.produce(topic, value, partition=number % 2, timestamp=BEGIN + number * HOUR)
        producer.flush()
        for name, commits in [("one", True), ("two", False), ("three", True)]:
            transactional = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
            transactional.init_transactions(20)
            transactional.begin_transaction()
            for number in range(3):
                transactional.produce("paid", f"{name}-{number}", partition=0)
            transactional.flush()
            transactional.commit_transaction(20) if commits else transactional.abort_transaction(20)
        yield broker


class Reading:
    def __init__(self, session: SparkSession, broker: Broker, folder: Path) -> None:
        self._session, self._broker, self._folder = session, broker, folder
        self.batches: list[list[str]] = []
        self.tasks: list[int] = []

    def read(self, **section: object) -> list[list[str]]:
        """Return the values of each batch that the source has now, sorted."""
        chosen = options(self._broker.bootstrap_servers, Source.model_validate(section), KafkaOptions({}))
        records = self._session.readStream.format("kafka").options(**chosen).load()
        query = (
            records.writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.batches

    def _collect(self, batch, _number: int) -> None:
        self.tasks.append(batch.rdd.getNumPartitions())
        self.batches.append(sorted(bytes(row["value"]).decode() for row in batch.select("value").collect()))


@pytest.fixture
def reading(spark: SparkSession, broker: Broker, tmp_path: Path) -> Reading:
    return Reading(spark, broker, tmp_path)


def values(topic: str, *numbers: int) -> list[str]:
    return [f"{topic}-{number}" for number in numbers]


def test_a_pattern_names_topics(reading):
    assert reading.read(pattern=r"in\..*") == [[*values("in.a", *range(10)), *values("in.b", *range(10))]]


def test_a_start_at_a_time(reading):
    start = {"timestamp": "2026-01-31T06:30:00Z"}
    assert reading.read(topics=["in.a"], start=start) == [values("in.a", 7, 8, 9)]


def test_a_start_at_offsets(reading):
    """Partition 0 holds 0, 2, 4, 6, 8 and partition 1 the odd numbers."""
    start = {"offsets": {"in.a": {0: 3, 1: "latest"}}}
    assert reading.read(topics=["in.a"], start=start) == [values("in.a", 6, 8)]


def test_batches_of_four_offsets(reading):
    assert [len(batch) for batch in reading.read(topics=["in.a"], max_offsets_per_trigger=4)] == [4, 4, 2]


def test_at_least_this_number_of_tasks(reading):
    assert reading.read(topics=["in.a"], min_partitions=5) == [values("in.a", *range(10))]
    assert reading.tasks[0] >= 5


@pytest.mark.parametrize(
    ("isolation", "seen"),
    [("read_committed", ["one", "three"]), ("read_uncommitted", ["one", "three", "two"])],
)
def test_aborted_transactions(reading, isolation, seen):
    found = reading.read(topics=["paid"], isolation=isolation)
    assert found == [[f"{name}-{number}" for name in seen for number in range(3)]]
