"""Rows and windows in topics of a real broker: identified by headers, none twice, none too large; letters come back."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(300)]

from confluent_kafka import Consumer, Message, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic  # noqa: E402
from millrace import Broker  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl import logs  # noqa: E402
from spark_etl.batch.late_records import LateRecords  # noqa: E402
from spark_etl.checkpoint.batches import Batches, BatchPlace  # noqa: E402
from spark_etl.checkpoint.notes import LocalNotes  # noqa: E402
from spark_etl.checkpoint.offsets import Checkpoint  # noqa: E402
from spark_etl.commands.replay_dlq import Command  # noqa: E402
from spark_etl.config import Pipeline  # noqa: E402
from spark_etl.errors import ConfigError, OutputError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.kafka import sources  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.lake import LakeTable  # noqa: E402
from spark_etl.sinks import Outputs, opened  # noqa: E402
from spark_etl.sinks.topics import TopicWriter  # noqa: E402
from support.etl_accounts import balanced  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402
from support.postgres import PASSWORD, USER, postgres  # noqa: E402

__all__ = ["postgres"]

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class Etl:
    """A pipeline with new topics on the broker."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, **sections: Any) -> None:
        self._servers = broker.bootstrap_servers
        self.source, self.letters = ("orders-" + uuid4().hex for _ in range(2))
        admin = AdminClient({"bootstrap.servers": self._servers})
        admin.create_topics([NewTopic(self.source, 1, 1)])[self.source].result(20)
        self.spark, self.folder = spark, folder
        self.cluster = Cluster(self._servers)
        self.reload(**sections)

    def reload(self, **sections: Any) -> None:
        self.pipeline: Pipeline = pipeline(
            self.folder,
            checkpoint=str(self.folder / "checkpoint"),
            **{"source": {"topics": [self.source]}, "dead_letter": {"topic": self.letters}, **sections},
        )

    def produce(
        self, *values: Any, key: str | None = "k", headers: Sequence[tuple[str, bytes]] = (("trace", b"t"),)
    ) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "message.max.bytes": 2 << 20})
        for value in values:
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.source, content, key, headers=list(headers))
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Message]:
        own = {"group.id": "read", "fetch.message.max.bytes": 2 << 20}
        consumer = Consumer({"bootstrap.servers": self._servers, **own})
        found: list[Message] = []
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) < end:
            found += consumer.consume(end - len(found), 30) or pytest.fail(f"{len(found)} of {end} records")
        consumer.close()
        return found

    def batch(self) -> tuple[Outputs, DataFrame, DataFrame]:
        """Return the checked outputs, and the good and refused rows of all records so far."""
        options = sources.options(self._servers, self.pipeline.config.source, self.pipeline.config.kafka)
        judged = plan(self.spark, self.spark.read.format("kafka").options(**options).load(), self.pipeline)
        good = judged.good(judged.rows, raw=self.pipeline.config.keeps_raw)
        outputs = opened(self.spark, self.pipeline.config, self.cluster, good.schema)
        outputs.check()
        return outputs, good, judged.refused(judged.rows)

    def replay(self, **options: Any) -> dict[str, Any]:
        given = {"to": "sinks", "stage": None, "rule": None, "from_": None, "until_": None, **options}
        return Command(self.spark, self.cluster, self.pipeline, logs.get()).replay(argparse.Namespace(**given))


def headers(message: Message) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers()}


def iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def place(batch: int) -> BatchPlace:
    return BatchPlace.of("orders", "query", batch)


def test_rows_have_their_source_in_headers_and_come_once(spark, broker, tmp_path):
    topic = "clean-" + uuid4().hex
    sink = {"type": "kafka", "topic": topic, "key": "id", "columns": ["id", "name"]}
    etl = Etl(spark, broker, tmp_path, sinks=[sink])
    etl.produce({"id": 1, "name": "a"}, {"id": 2})
    outputs, good, _ = etl.batch()
    (sink,) = outputs.rows
    assert sink.write(good.where("id = 1"), place(0), None) == 0  # a driver that died in the middle
    assert sink.write(good, place(0), LONG_AGO) == 0
    found = etl.read(topic)
    assert [(each.key(), json.loads(each.value())) for each in found] == [
        (b"1", {"id": 1, "name": "a"}),
        (b"2", {"id": 2, "name": None}),
    ]
    assert [headers(each) for each in found] == [
        {
            "__etl.pipeline": "orders",
            "__etl.source.topic": etl.source,
            "__etl.source.partition": "0",
            "__etl.source.offset": str(offset),
            "__etl.source.timestamp": iso(record.timestamp()[1]),
        }
        for offset, record in enumerate(etl.read(etl.source))
    ]


def test_the_original_value_and_a_row_that_does_not_fit(spark, broker, tmp_path):
    topic = "copy-" + uuid4().hex
    etl = Etl(spark, broker, tmp_path, sinks=[{"type": "kafka", "topic": topic, "value": "original"}])
    small, large = b'{"id": 1, "name" : "a"}', json.dumps({"id": 2, "name": "x" * 1_048_300}).encode()
    etl.produce(small, large)
    outputs, good, _ = etl.batch()
    assert outputs.rows[0].write(good, place(0), None) == 1
    (copy,) = etl.read(topic)
    assert (copy.key(), copy.value(), headers(copy)["trace"]) == (b"k", small, "t")
    (letter,) = etl.read(etl.letters)
    assert (letter.key(), letter.value()) == (b"k", None)
    error = {name.removeprefix("__etl.errors."): text for name, text in headers(letter).items()}
    assert (error["stage"], error["rule"], error["offset"], error["left_out"], error["bytes"]) == (
        "sink",
        "too_large",
        "1",
        "value",
        str(len(large)),
    )
    assert error["message"] == f"the record is larger than topic {topic} takes"


def test_rows_that_fit_one_by_one_come_to_a_topic_of_small_batches(spark, broker, tmp_path):
    """A producer would send several of them as a batch that is larger than max.message.bytes, again and again."""
    topic = "small-" + uuid4().hex
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "8192"})])[topic].result(20)
    etl = Etl(spark, broker, tmp_path, sinks=[{"type": "kafka", "topic": topic, "client": {"batch.size": 100_000}}])
    etl.produce(*({"id": number, "name": "x" * 3000} for number in range(9)))
    outputs, good, _ = etl.batch()
    assert outputs.rows[0].write(good, place(0), None) == 0
    assert [json.loads(each.value())["id"] for each in etl.read(topic)] == list(range(9))


def test_options_of_a_sinks_client_reach_its_producers(spark, broker, tmp_path):
    """A batch of zeros is stored in a hundredth of its bytes; a record that is larger than a request does not fit."""
    topic = "clean-" + uuid4().hex
    client = {"compression.type": "zstd", "max.request.size": 200_000, "linger.ms": 5}
    etl = Etl(spark, broker, tmp_path, sinks=[{"type": "kafka", "topic": topic, "client": client}])
    etl.produce({"id": 1, "name": "0" * 190_000}, {"id": 2, "name": "0" * 200_000})
    outputs, good, _ = etl.batch()
    assert outputs.rows[0].write(good, place(0), None) == 1
    assert [json.loads(each.value())["id"] for each in etl.read(topic)] == [1]
    (letter,) = etl.read(etl.letters)
    assert dict(letter.headers())["__etl.errors.rule"] == b"too_large"
    (segment,) = (broker.data_dir / f"{topic}-0").glob("*.log")
    assert 0 < segment.stat().st_size < 2_000


def test_rows_of_one_record_come_once_each(spark, broker, tmp_path):
    """A driver died between them. The letter of a row that does not fit stays: the topic has the record's others."""
    topic = "parts-" + uuid4().hex
    sink = {"type": "kafka", "topic": topic, "columns": ["part"], "client": {"max.request.size": 9_000}}
    explode = {"column": "parts", "select": {"part": "repeat('x', item)"}}
    etl = Etl(spark, broker, tmp_path, sinks=[sink], derive={"parts": "array(1, 10000, 2)"}, explode=explode)
    etl.produce({"id": 1})
    outputs, good, _ = etl.batch()
    (sink,) = outputs.rows
    assert sink.write(good.where("_index = 0"), place(0), None) == 0
    assert sink.write(good, place(0), LONG_AGO) == 1
    assert [json.loads(each.value())["part"] for each in etl.read(topic)] == ["x", "xx"]
    assert [headers(each)["__etl.source.index"] for each in etl.read(topic)] == ["0", "2"]
    (letter,) = etl.read(etl.letters)
    assert headers(letter)["__etl.errors.index"] == "1"
    assert etl.replay()["letters"] == 0


def test_a_row_without_a_key_does_not_fit_a_compacted_topic(spark, broker, tmp_path):
    topic = "latest-" + uuid4().hex
    etl = Etl(spark, broker, tmp_path, sinks=[{"type": "kafka", "topic": topic}])
    compacted = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact,delete"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([compacted])[topic].result(20)
    etl.produce({"id": 1}, key=None)
    etl.produce({"id": 2})
    outputs, good, _ = etl.batch()
    assert outputs.rows[0].write(good, place(0), None) == 1
    assert [record.key() for record in etl.read(topic)] == [b"k"]
    (letter,) = etl.read(etl.letters)
    error = {name.removeprefix("__etl.errors."): text for name, text in headers(letter).items()}
    assert (error["stage"], error["rule"], error["offset"]) == ("sink", "no_key", "0")
    assert error["message"] == f"the compacted topic {topic} takes no record without a key"


class Windows:
    """A pipeline with one windowed aggregate, and runs of its query."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, **sink: Any) -> None:
        self.topic = "minutes-" + uuid4().hex
        decode = json_decode(timestamp={"field": "at", "watermark": "1 minute"})
        self.etl = Etl(spark, broker, folder, sinks=[{"type": "kafka", "topic": self.topic, **sink}], decode=decode)
        self._batches = Batches(LocalNotes(folder / "notes"))
        self.groups: list[tuple[int, int]] = []  # written and refused, of each batch with some

    def run(self, *records: tuple[int, str, int]) -> tuple[int, ...]:
        """Write records (id, name, minute) and run the query over them.

        Return the numbers of records, of folded and of late ones.
        """
        etl = self.etl
        etl.produce(
            *(
                {"id": each, "name": name, "at": f"2026-01-31T{12 + minute // 60}:{minute % 60:02}:00Z"}
                for each, name, minute in records
            )
        )
        config = etl.pipeline.config
        options = sources.options(etl.cluster.bootstrap_servers, config.source, config.kafka)
        stream = etl.spark.readStream.format("kafka").options(**options).load()
        judged = plan(etl.spark, stream, etl.pipeline)
        (window,) = opened(etl.spark, config, etl.cluster, judged.good(judged.rows).schema).windows
        window.check()
        late = LateRecords(etl.spark, etl.pipeline, etl.cluster, Checkpoint(str(etl.folder / "windows"), etl.spark))
        found: list[dict[str, int]] = []
        query = window.start(
            judged,
            late.checkpoint.location,
            {"availableNow": True},
            self._batches,
            partial(late.of_windows, config=window.config, name=window.name),
            lambda _, rows: found.append(rows),
        )
        assert query.awaitTermination(200)
        for rows in found:
            balanced(rows)
        self.groups += [(rows["groups"], rows["groups_dlq"]) for rows in found if rows["groups"] or rows["groups_dlq"]]
        return tuple(sum(rows[name] for rows in found) for name in ("in", "out", "late"))

    def shown(self) -> list[tuple[str, str, int, str]]:
        """Return name, start and end, count and version of each record."""
        found = []
        for each in self.etl.read(self.topic):
            value, head = json.loads(each.value()), headers(each)
            start, end = (time[11:16] for time in head["__etl.window"].split("/"))
            found.append((value["name"], f"{start}-{end}", value["n"], head["__etl.version"]))
        return found


def test_windows_count_late_records_and_continue_after_a_stop(spark, broker, tmp_path):
    aggregate = {"window": "1 minute", "group_by": ["name"], "select": {"n": "count(*)"}}
    minutes = Windows(spark, broker, tmp_path, aggregate=aggregate)
    assert minutes.run((1, "a", 0), (2, "a", 0), (3, "b", 5)) == (3, 3, 0)
    assert sorted(minutes.shown()) == [("a", "12:00-12:01", 2, "0"), ("b", "12:05-12:06", 1, "0")]
    assert minutes.run((4, "a", 0), (5, "b", 5), (6, "a", 0)) == (3, 1, 2)
    assert [each[:3] for each in minutes.shown()[2:]] == [("b", "12:05-12:06", 2)]
    assert int(minutes.shown()[2][3]) > 0
    (key,) = {each.key() for each in minutes.etl.read(minutes.topic) if json.loads(each.value())["name"] == "b"}
    assert json.loads(key) == {"window_start": "2026-01-31T12:05:00.000Z", "name": "b"}
    letters = minutes.etl.read(minutes.etl.letters)
    assert [json.loads(letter.value())["id"] for letter in letters] == [4, 6]
    for letter in letters:
        error = {name.removeprefix("__etl.errors."): text for name, text in headers(letter).items()}
        assert (error["stage"], error["rule"], error["sink"]) == ("sink", "late", f"kafka:{minutes.topic}")


def test_windows_that_are_written_once(spark, broker, tmp_path):
    aggregate = {"window": "2 minutes", "slide": "1 minute", "group_by": ["name"], "select": {"n": "count(*)"}}
    minutes = Windows(spark, broker, tmp_path, aggregate=aggregate, mode="append")
    minutes.run((1, "a", 0), (2, "a", 1), (3, "b", 5))
    assert sorted(each[:3] for each in minutes.shown()) == [
        ("a", "11:59-12:01", 1),
        ("a", "12:00-12:02", 2),
        ("a", "12:01-12:03", 1),
    ]


def test_days_of_a_time_zone_are_ended_by_the_watermark(spark, broker, tmp_path):
    """In Kathmandu a day begins at 18:15 UTC. The watermark of 18:19 ends the one before, and nothing else."""
    aggregate = {"window": "1 day", "timezone": "Asia/Kathmandu", "group_by": ["name"], "select": {"n": "count(*)"}}
    days = Windows(spark, broker, tmp_path, aggregate=aggregate, mode="append")
    days.run((1, "a", 374), (2, "a", 375), (3, "b", 380))
    (record,) = days.etl.read(days.topic)
    assert headers(record)["__etl.window"] == "2026-01-30T18:15:00.000Z/2026-01-31T18:15:00.000Z"
    assert json.loads(record.value())["n"] == 1
    assert days.run((4, "a", 374), (5, "a", 374), (6, "a", 375), (7, "a", 378)) == (4, 2, 2)
    assert [json.loads(letter.value())["id"] for letter in days.etl.read(days.etl.letters)] == [4, 5]


def small_topic(broker: Broker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "9000"})])[name].result(20)


def test_a_window_that_its_topic_would_not_take_is_a_letter(spark, broker, tmp_path):
    """The run goes on: the windows of later batches have the records of earlier ones."""
    select = {"n": "count(*)", "text": "repeat('x', if(max(name) > 'b', 20000, 1))"}
    minutes = Windows(spark, broker, tmp_path, aggregate={"window": "1 minute", "group_by": ["name"], "select": select})
    small_topic(broker, minutes.topic)
    assert minutes.run((1, "a", 0), (2, "c", 0), (3, "d", 0), (4, "d", 0)) == (4, 4, 0)
    assert minutes.groups == [(1, 2)]
    assert minutes.run((5, "a", 0), (6, "c", 0)) == (2, 2, 0)
    assert minutes.groups == [(1, 2), (1, 1)]
    assert [each[:3] for each in minutes.shown()] == [("a", "12:00-12:01", 1), ("a", "12:00-12:01", 2)]
    letters = minutes.etl.read(minutes.etl.letters)
    assert [json.loads(letter.key())["name"] for letter in letters] == ["c", "d", "c"]
    values = [json.loads(letter.value()) for letter in letters]  # the topic of letters takes more
    assert [value["n"] for value in values] == [1, 2, 2]
    for letter in letters:
        error = dict(letter.headers())
        assert error["__etl.errors.stage"] == b"sink"
        assert error["__etl.errors.rule"] == b"too_large"
        assert error["__etl.errors.message"].decode() == f"the record is larger than topic {minutes.topic} takes"
        assert error["__etl.errors.sink"].decode() == f"kafka:{minutes.topic}"
        assert error["__etl.errors.offset"] is None
        assert error["__etl.window"] == b"2026-01-31T12:00:00.000Z/2026-01-31T12:01:00.000Z"
    for to in ("source", "sinks"):
        assert minutes.etl.replay(to=to)["letters"] == 0


def test_groups_of_a_summary_that_a_topic_would_not_take_are_letters_once(spark, broker, tmp_path):
    """One is too large, one has no key, as a compacted topic demands. A try after an interrupted one adds none."""
    topic = "sums-" + uuid4().hex
    aggregate = {"group_by": ["name"], "select": {"text": "repeat('x', max(id))"}}
    delta = {"type": "delta", "path": str(tmp_path / "lake")}
    etl = Etl(spark, broker, tmp_path, sinks=[delta, {"type": "kafka", "topic": topic, "aggregate": aggregate}])
    compacted = NewTopic(topic, 1, 1, config={"max.message.bytes": "9000", "cleanup.policy": "compact,delete"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([compacted])[topic].result(20)
    (summary,) = etl.batch()[0].summaries
    rows = spark.createDataFrame([(1, "a"), (9000, "b"), (2, None), (9001, "c")], "id INT, name STRING")
    assert summary.publish(rows, 5, None).numbers == {"groups": 1, "groups_dlq": 3}
    assert summary.publish(rows, 5, LONG_AGO).numbers == {"groups": 1, "groups_dlq": 3}
    assert [each.key() for each in etl.read(topic)] == [b"a"]
    found = [(letter.key(), dict(letter.headers())["__etl.errors.rule"]) for letter in etl.read(etl.letters)]
    assert sorted(found, key=str) == [(None, b"no_key"), (b"b", b"too_large"), (b"c", b"too_large")]
    summary.publish(rows, 6, None)
    assert len(etl.read(etl.letters)) == 6


def test_letters_come_back_into_the_sinks_once(spark, broker, tmp_path):
    topic = "clean-" + uuid4().hex
    sinks = [{"type": "kafka", "topic": topic}]
    etl = Etl(spark, broker, tmp_path, sinks=sinks, rules=[{"name": "cheap", "expr": "price < 5"}])
    etl.produce({"id": 1, "price": 7}, {"id": 2, "price": 8}, b"no JSON", {"id": 3, "price": 20})
    outputs, _, refused = etl.batch()
    outputs.letters.write(refused, None)
    assert len(etl.read(etl.letters)) == 4
    etl.reload(sinks=sinks, rules=[{"name": "cheap", "expr": "price < 10"}])

    with pytest.MonkeyPatch.context() as patch:  # a driver that dies after the first sink
        patch.setattr("spark_etl.letters.replays.Replays.finished", lambda *_: pytest.fail("died"))
        with pytest.raises(pytest.fail.Exception):
            etl.replay(rule="cheap")
    assert [json.loads(each.value())["id"] for each in etl.read(topic)] == [1, 2]
    outcome = {"pipeline": "orders", "to": "sinks", "rows_dropped": 0, "rows_duplicates": 0}
    again = etl.replay(stage="decode")  # finishes the interrupted one, with its own choice
    assert again == {**outcome, "replay": 0, "letters": 3, "rows_out": 2, "rows_dlq": 1}
    assert len(etl.read(topic)) == 2
    assert len(etl.read(etl.letters)) == 5
    assert etl.replay(stage="decode") == {**outcome, "replay": 1, "letters": 1, "rows_out": 0, "rows_dlq": 1}
    assert etl.replay(until_=LONG_AGO) == {"pipeline": "orders", "replay": 2, "to": "sinks", "letters": 0}
    found = [headers(each) for each in etl.read(topic)]
    assert [head["__etl.source.offset"] for head in found] == ["0", "1"]


def test_a_letter_of_one_sink_goes_to_that_sink_only(spark, broker, tmp_path):
    names = [f"{name}-{uuid4().hex}" for name in ("narrow", "wide")]
    sinks = [{"type": "kafka", "topic": name, "value": "original"} for name in names]
    sinks.append({"type": "delta", "path": str(tmp_path / "table")})
    etl = Etl(spark, broker, tmp_path, sinks=sinks)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(names[0], 1, 1, config={"max.message.bytes": "8192"})])[names[0]].result(20)
    etl.produce({"id": 1, "name": "x" * 9000}, {"id": 2})
    outputs, good, _ = etl.batch()
    assert [sink.write(good, place(0), None) for sink in outputs.rows] == [1, 0]
    (letter,) = etl.read(etl.letters)
    assert headers(letter)["__etl.errors.sink"] == f"kafka:{names[0]}"
    wider = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, names[0], incremental_configs=[wider])
    admin.incremental_alter_configs([resource])[resource].result(20)
    assert etl.replay()["rows_out"] == 1
    found = [[json.loads(each.value())["id"] for each in etl.read(name)] for name in names]
    assert found == [[2, 1], [1, 2]]
    assert "__etl.errors.sink" not in headers(etl.read(names[0])[1])
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 0

    etl.reload(sinks=[{"type": "kafka", "topic": names[0]}])  # rows as JSON keep no original value
    etl.produce({"id": 3, "name": "x" * 21000})
    outputs, good, _ = etl.batch()
    assert outputs.rows[0].write(good.where("id = 3"), place(1), None) == 1
    letter = etl.read(etl.letters)[-1]
    assert (letter.value(), headers(letter)["__etl.errors.left_out"]) == (None, "value,headers,key")
    assert etl.replay()["letters"] == 0


def test_a_letter_of_one_database_goes_to_that_database_only(spark, broker, postgres, tmp_path):
    """Two databases have a table of one name. The letter of a sink that the file no longer has stays."""
    other, login = "d" + uuid4().hex, {"user": USER, "password": PASSWORD}
    postgres.run(f"CREATE DATABASE {other}", "CREATE TABLE shop (id bigint, name text NOT NULL)")
    urls = [postgres.url, postgres.url.replace("/postgres", f"/{other}")]
    tables = [{"type": "postgres", "url": url, "table": "shop", "columns": ["id", "name"], **login} for url in urls]
    sinks = [*tables, {"type": "kafka", "topic": "copy-" + uuid4().hex, "value": "original"}]
    etl = Etl(spark, broker, tmp_path, sinks=sinks)
    etl.produce({"id": 1})
    outputs, good, _ = etl.batch()
    assert [sink.write(good, place(0), None) for sink in outputs.rows] == [1, 0, 0]
    (letter,) = etl.read(etl.letters)
    assert headers(letter)["__etl.errors.sink"] == f"postgres:127.0.0.1:{postgres.port}/postgres/shop"

    etl.reload(sinks=sinks[1:])
    assert etl.replay()["letters"] == 0
    etl.reload(sinks=sinks)
    postgres.run("ALTER TABLE shop ALTER COLUMN name DROP NOT NULL")
    assert etl.replay()["rows_out"] == 1
    assert [postgres.rows("SELECT * FROM shop", database) for database in ("postgres", other)] == [[("1", "\\N")]] * 2

    shutil.rmtree(tmp_path / "checkpoint")  # all begins again: the numbers of replays, too
    postgres.run("TRUNCATE shop")
    assert etl.replay()["rows_out"] == 1
    assert postgres.rows("SELECT * FROM shop") == [("1", "\\N")]
    assert len(etl.read(sinks[2]["topic"])) == 1


def test_letters_go_to_the_source_with_their_bytes_once(spark, broker, tmp_path, monkeypatch):
    etl = Etl(spark, broker, tmp_path)
    etl.produce(b"no JSON", b"\xff\x00", key="key")
    outputs, _, refused = etl.batch()
    outputs.letters.write(refused, None)
    real, written = TopicWriter.write, []

    def twice(self: TopicWriter, rows: DataFrame, begun_before: datetime | None) -> None:
        written.append(begun_before)
        real(self, rows.limit(1) if len(written) == 1 else rows, begun_before)
        assert len(written) > 1, "the driver died in the middle"

    monkeypatch.setattr(TopicWriter, "write", twice)
    with pytest.raises(AssertionError, match="died in the middle"):
        etl.replay(to="source")
    assert len(etl.read(etl.source)) == 3
    assert etl.replay(to="source") == {"pipeline": "orders", "replay": 0, "to": "source", "letters": 2}
    found = etl.read(etl.source)
    assert sorted((each.key(), each.value()) for each in found[2:]) == [(b"key", b"no JSON"), (b"key", b"\xff\x00")]
    marks = sorted(headers(each)["__etl.replay"].rpartition("/")[0] for each in found[2:])  # the topic's id is last
    assert marks == [f"{etl.letters}/0/0", f"{etl.letters}/0/1"]
    assert [set(headers(each)) for each in found[2:]] == [{"trace", "__etl.replay", "__etl.replay.source"}] * 2
    assert etl.replay(to="source")["letters"] == 0
    assert len(etl.read(etl.source)) == 4


def test_headers_of_a_record_that_look_like_ours_keep_no_letter_back(spark, broker, tmp_path):
    etl = Etl(spark, broker, tmp_path)
    ours = [("__etl.errors.left_out", b"value"), ("__etl.errors.bytes", b"9")]
    etl.produce(b"no JSON", headers=ours)
    outputs, _, refused = etl.batch()
    outputs.letters.write(refused, None)
    assert etl.replay(to="source")["letters"] == 1
    (record,) = etl.read(etl.source)[1:]
    assert record.headers()[:-2] == ours


def test_letters_do_not_overwrite_newer_rows(spark, broker, tmp_path):
    sink = {"type": "postgres", "url": "jdbc:postgresql://h/d", "table": "t", "mode": "upsert", "keys": ["id"]}
    etl = Etl(spark, broker, tmp_path, sinks=[sink])
    with etl.cluster.admin(spark) as admin:
        admin.create_missing([etl.letters])
    with pytest.raises(ConfigError, match=r"pipeline.yaml:\d+: sinks.0: replay-dlq --to sinks would put old values"):
        etl.replay()


def test_letters_wait_while_the_pipeline_holds_its_table(spark, broker, tmp_path, monkeypatch):
    """A refused replay leaves no mark: the next one has its own choice of letters."""
    monkeypatch.setattr("spark_etl.lake.locks.DRIVER_WAIT_SECONDS", 0.0)
    sinks = [{"type": "delta", "path": str(tmp_path / "table")}]
    etl = Etl(spark, broker, tmp_path, sinks=sinks, rules=[{"name": "cheap", "expr": "price < 5"}])
    etl.produce({"id": 1, "price": 7}, b"no JSON")
    outputs, good, refused = etl.batch()
    outputs.letters.write(refused, None)
    etl.reload(sinks=sinks)
    table = etl.pipeline.config.table
    with (
        LakeTable.opened(spark, table, good.schema),
        pytest.raises(OutputError, match=r"/table: another driver writes here; stop the pipeline's other run first$"),
    ):
        etl.replay(stage="decode")
    assert etl.replay(rule="cheap")["rows_out"] == 1
    assert [row["id"] for row in spark.read.format("delta").load(str(tmp_path / "table")).collect()] == [1]
