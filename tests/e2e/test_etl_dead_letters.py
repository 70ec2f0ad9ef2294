"""Letters on a real broker: none is too large for its topic, and none is written twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(200)]

from confluent_kafka import Consumer, Message, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from millrace import Broker  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl.errors import ClusterError, OutputError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.sinks.dead_letters import DeadLetters  # noqa: E402

AT = datetime(2026, 1, 31, 12)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
HEADERS = "array<struct<key:string,value:binary>>"
SCHEMA = (
    "_topic string, _partition int, _offset bigint, _timestamp timestamp, _raw_key binary, _raw_value binary,"
    f" _raw_headers {HEADERS}, _error struct<stage:string,rule:string,message:string>"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def refused(session: SparkSession, *records: tuple[bytes | None, bytes | None, int]) -> DataFrame:
    """Return refused rows with these keys and values, and a header of the third member's bytes each."""
    rows = [
        ("orders", 3, offset, AT, key, value, [("h", b"x" * header)], ("decode", "json", "why"))
        for offset, (key, value, header) in enumerate(records)
    ]
    return session.createDataFrame(rows, SCHEMA)


def make_topic(broker: Broker, name: str, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(20)
    return name


def read(broker: Broker, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "read",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 30) or pytest.fail(f"{len(found)} of {count} letters")
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 20) == (0, count)
    consumer.close()
    return found


def of_letters(message: Message) -> dict[str, str]:
    return {name.removeprefix("__etl.errors."): value.decode() for name, value in message.headers() if name != "h"}


def letters(session: SparkSession, broker: Broker, topic: str) -> DeadLetters:
    return DeadLetters(session, Cluster(broker.bootstrap_servers), topic, "pipe")


def test_a_letter_that_does_not_fit_goes_without_its_largest_parts(spark, broker):
    topic = make_topic(broker, "dlq-" + uuid4().hex, **{"max.message.bytes": "20000"})
    rows = refused(
        spark,
        (b"k", b"v" * 19_000, 10),
        (b"k", b"v" * 20_000, 10),
        (b"k", b"v" * 20_000, 21_000),
        (b"k" * 22_000, b"v" * 20_000, 21_000),
        (None, None, 0),
    )
    sink = letters(spark, broker, topic)
    sink.check()
    sink.write(rows, None)
    found = sorted(read(broker, topic, 5), key=lambda letter: of_letters(letter)["offset"])
    sizes = [
        (len(each.key() or b""), len(each.value() or b""), len(dict(each.headers()).get("h", b""))) for each in found
    ]
    assert sizes == [(1, 19_000, 10), (1, 0, 10), (1, 0, 0), (0, 0, 0), (0, 0, 0)]
    noted = [(of_letters(each).get("left_out"), of_letters(each).get("bytes")) for each in found]
    header = 21_000 + 1 + 10
    assert noted == [
        (None, None),
        ("value", "20000"),
        ("value,headers", str(20_000 + header)),
        ("value,headers,key", str(20_000 + header + 22_000)),
        (None, None),
    ]
    assert of_letters(found[3]) == {
        "pipeline": "pipe",
        "topic": "orders",
        "partition": "3",
        "offset": "3",
        "timestamp": "2026-01-31T12:00:00.000Z",
        "stage": "decode",
        "rule": "json",
        "message": "why",
        "left_out": "value,headers,key",
        "bytes": str(20_000 + header + 22_000),
    }
    assert found[4].key() is None


def test_a_letter_near_a_megabyte_keeps_its_value_in_a_topic_that_takes_it(spark, broker):
    record = (b"k", b"v" * 1_048_301, 10)
    default = letters(spark, broker, "dlq-" + uuid4().hex)
    default.check()
    default.write(refused(spark, record), None)
    (letter,) = read(broker, default.topic, 1)
    assert (letter.value(), of_letters(letter)["bytes"]) == (None, "1048301")
    large = letters(spark, broker, make_topic(broker, "dlq-" + uuid4().hex, **{"max.message.bytes": "3000000"}))
    large.check()
    large.write(refused(spark, record), None)
    (letter,) = read(broker, large.topic, 1)
    assert (len(letter.value()), of_letters(letter).get("left_out")) == (1_048_301, None)


def test_a_batch_begun_before_writes_the_missing_letters(spark, broker):
    topic = make_topic(broker, "dlq-" + uuid4().hex, **{"max.message.bytes": "20000"})
    sink = letters(spark, broker, topic)
    sink.check()
    rows = refused(spark, (b"a", b"1", 1), (b"a", b"v" * 21_000, 1), (b"b", None, 1))
    sink.write(rows.where("_offset < 2"), None)
    sink.write(rows, LONG_AGO)
    sink.write(rows, LONG_AGO)
    assert sorted(of_letters(letter)["offset"] for letter in read(broker, topic, 3)) == ["0", "1", "2"]


def test_a_topic_that_does_not_exist_is_made_and_looked_back_at(spark, broker):
    """A batch was begun before, and its driver died before the first letter."""
    sink = letters(spark, broker, "dlq-" + uuid4().hex)
    sink.write(refused(spark), LONG_AGO)
    sink.check()
    sink.write(refused(spark, (b"a", b"1", 1)), LONG_AGO)
    assert [letter.value() for letter in read(broker, sink.topic, 1)] == [b"1"]


def test_a_topic_of_small_messages_is_refused(spark, broker):
    topic = make_topic(broker, "dlq-" + uuid4().hex, **{"max.message.bytes": "8191"})
    with pytest.raises(OutputError, match=rf"^topic {topic}: max.message.bytes is 8191, less than 8192$"):
        letters(spark, broker, topic).check()


def test_a_compacted_topic_is_refused(spark, broker):
    topic = make_topic(broker, "dlq-" + uuid4().hex, **{"cleanup.policy": "compact"})
    with pytest.raises(OutputError, match=rf"^topic {topic}: cleanup\.policy is compact, which removes all letters"):
        letters(spark, broker, topic).check()


def test_a_name_that_no_topic_can_have_is_refused_in_one_line(spark, broker):
    with pytest.raises(ClusterError, match=r"^topic bad/name: InvalidTopicException: [^\n]+$"):
        letters(spark, broker, "bad/name").check()
