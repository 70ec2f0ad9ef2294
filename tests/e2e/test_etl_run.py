"""The run loop on a real broker, in this process: failures between two steps, topics created again, limits, stops."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import NewTopic  # noqa: E402
from pyspark.sql import DataFrame  # noqa: E402
from spark_etl import server, sinks  # noqa: E402
from spark_etl.batch import writer  # noqa: E402
from spark_etl.checkpoint import batches  # noqa: E402
from spark_etl.checkpoint.offsets import Checkpoint  # noqa: E402
from spark_etl.commands import backfill, status  # noqa: E402
from spark_etl.counts import OUTCOMES  # noqa: E402
from spark_etl.errors import EtlError, IdentityError, OutputError, RuleError, RunError  # noqa: E402
from spark_etl.kafka.admin import UnknownTopicError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.lake import maintenance  # noqa: E402
from spark_etl.letters import refusals  # noqa: E402
from spark_etl.run import (  # noqa: E402
    accounts,
    stream_plans,
    summaries,
)
from spark_etl.run.accounts import Totals  # noqa: E402
from support.etl_runs import Continuous, Etl, broker, etl, until  # noqa: E402

__all__ = ["broker", "etl"]

DIES = "the driver dies here"


PLACES: list[tuple[Any, str]] = [
    (batches.Batches, "begun"),  # nothing is done
    (writer.BatchWriter, "_metadata"),  # the files are in place, and do not count
    (sinks.DeadLetters, "write"),  # the batch counts, no dead letter is out
    (batches.Batches, "finished"),  # the dead letters are out, and not marked so
    (accounts.Accounts, "batch"),  # every output has the batch, Spark does not know
    (sinks.SummaryTopic, "publish"),  # all batches are done, no summary is out
    (summaries.Summaries, "_shown"),  # the summary is out, and not marked so
]


def test_a_failure_between_any_two_steps(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_arguments: object) -> None:
        raise RuntimeError(DIES)

    etl.produce(1, 2, "broken", 3)
    for owner, name in PLACES:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dies)
            with pytest.raises((EtlError, RuntimeError), match=DIES):
                etl.run(summary=True)
    etl.run(summary=True)
    assert etl.ids() == [1, 2, 3]
    assert [key for key, _ in etl.read(etl.letters)] == ["broken"]
    sums = etl.read(etl.totals)
    assert sorted(sums) == [("k0", '{"kind":"k0","n":1}'), ("k1", '{"kind":"k1","n":2}')]
    assert etl.run(summary=True) == Totals()
    assert len(etl.read(etl.totals)) == 2


def test_counts_offsets_and_ids_are_in_the_commit_and_in_the_group(etl: Etl) -> None:
    etl.produce(1, "broken", 2, 3)
    assert etl.run() == Totals(batches=1, rows_in=4, rows_out=3, rows_dlq=1)
    found = etl.metadata()
    assert {name: found[name] for name in ("pipeline", "batch", "rows_in", "rows_out", "refused")} == {
        "pipeline": etl.name,
        "batch": 0,
        "rows_in": 4,
        "rows_out": 3,
        "refused": {"decode.json": 1},
    }
    assert found["start"] == {etl.topic: {"0": 0, "1": 0}}
    assert found["end"] == {etl.topic: {"0": 2, "1": 2}}
    assert found["query"] == Checkpoint(f"{etl.folder}/checkpoint", etl.spark).query_id()
    assert list(found["topic_ids"]) == [etl.topic]
    group = f"etl.{etl.name}"
    listed = etl.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    assert {(each.partition, each.offset) for each in listed.topic_partitions} == {(0, 2), (1, 2)}


def test_the_status_of_a_pipeline_without_a_jvm(etl: Etl) -> None:
    def command() -> tuple[int, str, str]:
        """Run the command where no JVM can start."""
        environment = {**os.environ, "JAVA_HOME": "/none", "MILLRACE_BOOTSTRAP_SERVERS": etl.servers}
        given = [sys.executable, "-m", "spark_etl", "status", str(etl.folder / "pipeline.yaml")]
        done = subprocess.run(given, env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    etl.produce(1, 2, 3)
    etl.run()
    etl.produce(4, 5, 6)
    place = {"topic": etl.topic}
    exit_status, output, errors = command()
    assert (exit_status, errors) == (0, "")
    assert json.loads(output) == {
        "pipeline": etl.name,
        "query": etl.metadata()["query"],
        "batch": 0,
        "rows": {f"delta:{etl.folder}/table": dict(zip(OUTCOMES, (3, 3, 0, 0, 0, 0), strict=True))},
        "lag": 3,
        "partitions": [
            {**place, "partition": 0, "position": 2, "end": 4, "lag": 2},
            {**place, "partition": 1, "position": 1, "end": 2, "lag": 1},
        ],
    }
    with Cluster(etl.servers).admin(etl.spark) as admin:
        checkpoint = Checkpoint(f"{etl.folder}/checkpoint", etl.spark)
        assert json.loads(output) == status.state(checkpoint, admin.end_offsets, etl.pipeline)
        etl.delete()
        with pytest.raises(UnknownTopicError) as gone:
            admin.end_offsets([etl.topic])
    exit_status, output, errors = command()
    assert (exit_status, output, json.loads(errors)["reason"]) == (1, "", str(gone.value))


def test_windows_are_a_second_query_over_the_same_records(etl: Etl) -> None:
    topic = f"{etl.name}.win"
    given = {
        "decode": ", timestamp: {field: _timestamp, watermark: 1 minute}",
        "sink": f"- {{type: kafka, topic: {topic}, aggregate: {{window: 10000 days, select: {{n: count(*)}}}}}}",
    }
    etl.produce(1, 2, "broken", 3)
    assert etl.run(**given) == Totals(batches=1, rows_in=4, rows_out=3, rows_dlq=1)
    assert [json.loads(value or "")["n"] for _, value in etl.read(topic)] == [3]
    assert etl.run(**given).rows_in == 0
    etl.produce(4)
    assert etl.run(**given).rows_in == 1
    assert json.loads(etl.read(topic)[-1][1] or "")["n"] == 4
    assert etl.ids() == [1, 2, 3, 4]


def test_a_window_sink_keeps_its_checkpoint_when_another_one_comes_before_it(etl: Etl) -> None:
    def window(topic: str, length: str) -> str:
        aggregate = f"{{window: {length}, select: {{n: count(*)}}}}"
        return f"- {{type: kafka, topic: {etl.name}.{topic}, aggregate: {aggregate}}}"

    decode = ", timestamp: {field: _timestamp, watermark: 1 minute}"
    etl.produce(1, 2, 3)
    etl.run(decode=decode, sink=window("old", "10000 days"))
    etl.produce(4)
    etl.run(decode=decode, sink=f"{window('new', '20000 days')}\n  {window('old', '10000 days')}")
    assert [json.loads(value or "")["n"] for _, value in etl.read(f"{etl.name}.old")] == [3, 4]
    assert [json.loads(value or "")["n"] for _, value in etl.read(f"{etl.name}.new")] == [4]
    kept = (etl.folder / "checkpoint" / "_etl" / "windows").iterdir()
    assert {folder.name for folder in kept} == {f"{etl.name}.old", f"{etl.name}.new"}


def test_a_pipeline_without_a_table(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules are applied before any output has a row, and a replayed batch writes none again."""
    topic = f"{etl.name}.rows"
    given = {"table": False, "sink": f"- {{type: kafka, topic: {topic}}}"}
    etl.produce(1, 2, "broken")
    with pytest.raises(RuleError, match="more than max_refused"):
        etl.run(**given, sections="max_refused: 10%")
    assert etl.read(topic) == []

    def dies(*_arguments: object) -> None:
        raise RuntimeError(DIES)

    with monkeypatch.context() as patch:
        patch.setattr(batches.Batches, "finished", dies)
        with pytest.raises(RunError, match=DIES):
            etl.run(**given)
    assert etl.run(**given) == Totals(batches=1, rows_in=3, rows_out=2, rows_dlq=1)
    assert sorted(json.loads(value or "")["id"] for _, value in etl.read(topic)) == [1, 2]
    assert [key for key, _ in etl.read(etl.letters)] == ["broken"]


@pytest.mark.parametrize("records", [2, 8])
def test_a_topic_that_was_created_again_is_refused(etl: Etl, records: int) -> None:
    etl.produce(1, 2, 3, 4)
    etl.run()
    etl.delete()
    with pytest.raises(UnknownTopicError, match=rf"^source: no topic {etl.topic} in the cluster$"):
        etl.run()
    etl.create()
    etl.produce(*range(10, 10 + records))
    with pytest.raises(IdentityError, match=rf"the topic {etl.topic} was deleted and created again \(id "):
        etl.run()
    assert etl.ids() == [1, 2, 3, 4]


def test_a_topic_that_was_created_again_is_read_from_its_start(etl: Etl) -> None:
    restart = ", on_topic_change: restart"
    etl.produce(1, 2, 3, 4)
    etl.run(source=restart)
    etl.delete()
    etl.create()
    etl.produce(*range(10, 18))
    assert etl.run(source=restart).rows_out == 8
    assert etl.ids() == [1, 2, 3, 4, *range(10, 18)]
    etl.produce(20)
    assert etl.run(source=restart).rows_out == 1
    assert etl.run(source=restart) == Totals()


def test_a_topic_that_is_created_again_in_the_middle_of_a_batch(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is not committed: some of its records may be those of the new topic."""
    original = writer.BatchWriter._counted

    def counted(*arguments: Any) -> Any:
        etl.delete()
        etl.create()
        return original(*arguments)

    etl.produce(1, 2)
    monkeypatch.setattr(writer.BatchWriter, "_counted", counted)
    with pytest.raises(IdentityError, match="was deleted and created again"):
        etl.run()
    assert etl.ids() == []


def test_a_checkpoint_that_is_gone_is_refused(etl: Etl) -> None:
    etl.produce(1, 2)
    etl.run()
    (etl.folder / "checkpoint").rename(etl.folder / "elsewhere")
    with pytest.raises(OutputError, match=r"/table was written with another checkpoint \(query [0-9a-f-]+, now None\)"):
        etl.run()
    assert etl.ids() == [1, 2]


def test_a_table_that_is_gone_is_refused(etl: Etl) -> None:
    etl.produce(1, 2)
    etl.run()
    (etl.folder / "table").rename(etl.folder / "elsewhere")
    etl.produce(3)
    with pytest.raises(OutputError, match="the checkpoint is at batch 1, but batch 0 is not in this table"):
        etl.run()


def test_a_broken_rule_that_fails_and_a_share_of_refused_records(etl: Etl, caplog: pytest.LogCaptureFixture) -> None:
    etl.produce(1, 2, 3, "broken")
    fail = "rules: [{name: small, expr: id < 3, on_violation: fail}]"
    with pytest.raises(RuleError, match=r"^1 records break the rule small: id < 3$"):
        etl.run(sections=fail)
    with pytest.raises(RuleError, match=r"^batch 0: 1 of 4 records are refused, more than max_refused \(0.2 of all\)"):
        etl.run(sections="max_refused: 20%")
    assert etl.ids() == []
    assert etl.read(etl.letters) == []
    shares = "max_refused: 25%\nwarn_refused: 24%"
    assert etl.run(sections=shares) == Totals(batches=1, rows_in=4, rows_out=3, rows_dlq=1)
    assert etl.ids() == [1, 2, 3]
    etl.produce(4, 5, 6, 7)
    etl.run(sections=shares)
    warnings = [each.fields for each in caplog.records if each.getMessage() == "many records refused"]
    assert warnings == [{"batch": 0, "share": 0.25, "refused": {"decode.json": 1}}]


def test_a_record_becomes_several_rows(etl: Etl) -> None:
    """Records are counted once. Another number counts the rows of each sink, with those that one of them refuses."""
    topic = f"{etl.name}.rows"
    etl.admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "8192"})])[topic].result(30)
    select = "{part: \"repeat('x', if(item > 2, 9000, 1))\"}"
    sections = f'derive: {{parts: "sequence(1, id)"}}\nexplode: {{column: parts, select: {select}}}'
    etl.produce(1, 2, 3, "broken")
    totals = etl.run(sections=sections, sink=f"- {{type: kafka, topic: {topic}}}")
    assert totals == Totals(batches=1, rows_in=4, rows_out=3, rows_dlq=2)
    assert etl.ids() == [1, 2, 2, 3, 3, 3]
    assert etl.metadata()["exploded"] == 6
    part = {etl.topic: {0: 0}}, {etl.topic: {0: 2}}  # the records 1 and 3
    assert backfill.backfill(etl.spark, etl.servers, etl.pipeline, *part)["rows_out"] == 2
    assert etl.ids() == [1, 2, 2, 3, 3, 3]
    assert (etl.metadata()["operation"], etl.metadata()["exploded"]) == ("backfill", 4)
    records = dict(zip(OUTCOMES, (4, 3, 1, 0, 0, 0), strict=True))
    assert etl.accounted() == {
        f"delta:{etl.folder}/table": {**records, "exploded": 6},
        f"kafka:{topic}": {**records, "exploded": 5, "exploded_dlq": 1},
    }


def test_a_run_compacts_its_table(etl: Etl, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second commit and the fourth, which is of another run, are each followed by a compaction."""
    given = {
        "table": False,
        "sink": f"- {{type: delta, path: {etl.place}/table, compact_every: 2}}",
        "source": ", max_offsets_per_trigger: 1",
    }
    caplog.set_level("INFO", "spark_etl")

    def lines(event: str) -> list[dict[str, Any]]:
        return [each.__dict__["fields"] for each in caplog.records if each.getMessage() == event]

    etl.produce(1, 2, 3, partitions=1)
    assert etl.run(**given).batches == 3
    etl.produce(4, partitions=1)
    etl.run(**given)
    found = lines("table compacted")
    assert [(each["files_before"], each["files_after"]) for each in found] == [(2, 1), (3, 1)]
    etl.produce(5, 6, partitions=1)
    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "_optimize", lambda *_: 1 / 0)
        assert etl.run(**given) == Totals(batches=2, rows_in=2, rows_out=2)
    assert [each["reason"] for each in lines("table not compacted")] == ["ZeroDivisionError: division by zero"]
    assert etl.ids() == [1, 2, 3, 4, 5, 6]


def test_a_refused_record_that_is_late_is_a_letter(etl: Etl) -> None:
    """A refused record has no event time, and is late for no dedupe."""
    given = {
        "decode": ", timestamp: {field: _timestamp, watermark: 1 minute}",
        "sections": "dedupe: {keys: [id], within: 1 minute}",
    }
    etl.produce(1)
    etl.run(**given)
    producer = Producer({"bootstrap.servers": etl.servers})
    long_ago = 1_767_225_600_123
    for value in ('{"id": 2}', "broken"):
        producer.produce(etl.topic, value, value[0], partition=0, timestamp=long_ago)
    assert producer.flush(60) == 0
    totals = etl.run(**given)
    assert (totals.rows_dlq, totals.rows_late) == (1, 1)
    assert sorted(etl.read(etl.letters)) == [("b", "broken"), ("{", '{"id": 2}')]
    options = {"kafka.bootstrap.servers": etl.servers, "subscribe": etl.letters, "includeHeaders": "true"}
    letters = etl.spark.read.format("kafka").options(**options).load()
    for letter in letters.collect():
        headers = {header["key"]: bytes(header["value"]).decode() for header in letter["headers"]}
        assert headers["__etl.errors.timestamp"] == "2026-01-01T00:00:00.123Z"
    assert etl.ids() == [1]


def test_a_joined_file_that_is_exchanged_is_read_whole_and_new(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is exchanged after the plan. Of the bytes that the old file had, FR and IT would match nothing."""
    names, planned = etl.folder / "names.csv", stream_plans.StreamPlans.next
    names.write_text("code,name\nDE,Germany\nFR,France\n")

    def exchanged(*arguments: Any) -> Any:
        plan = planned(*arguments)
        if "Republic" not in names.read_text():
            names.with_suffix(".new").write_text("code,name\nDE,Federal Republic of Germany\nFR,France\nIT,Italy\n")
            names.with_suffix(".new").rename(names)
        return plan

    monkeypatch.setattr(stream_plans.StreamPlans, "next", exchanged)
    etl.produce(*(json.dumps({"id": number, "kind": kind}) for number, kind in enumerate(("DE", "FR", "IT"))))
    table = "name: names, path: names.csv, format: csv, schema: 'code STRING, name STRING', on: {kind: code}"
    totals = etl.run(sections=f"join: [{{{table}, select: {{country: name}}, unmatched: dlq}}]")
    assert totals == Totals(batches=1, rows_in=3, rows_out=3, restarts=1)
    rows = etl.spark.read.format("delta").load(f"{etl.folder}/table").select("id", "country").collect()
    assert sorted(map(tuple, rows)) == [(0, "Federal Republic of Germany"), (1, "France"), (2, "Italy")]


def expire(etl: Etl) -> None:
    """Remove the records before offset 3 of partition 0, of which the pipeline has read one."""
    etl.admin.delete_records([TopicPartition(etl.topic, 0, 3)])[TopicPartition(etl.topic, 0)].result(30)


def test_offsets_that_expired_are_refused_or_skipped(etl: Etl) -> None:
    etl.produce(1, 2)
    etl.run()
    etl.produce(3, 4, 5, 6, 7, 8)
    expire(etl)
    with pytest.raises(RunError) as raised:
        etl.run()
    assert "on_data_loss: continue" in str(raised.value)
    assert etl.ids() == [1, 2]
    assert etl.run(source=", on_data_loss: continue").rows_in == 4
    assert etl.ids() == [1, 2, 4, 6, 7, 8]
    assert etl.metadata()["skipped"] == {etl.topic: {"0": [1, 3]}}
    assert etl.metrics.registry.get_sample_value("millrace_etl_skipped_offsets_total", {"pipeline": etl.name}) == 2
    etl.produce(9)
    etl.run(source=", on_data_loss: continue")
    assert etl.metadata()["skipped"] == {}


def test_a_timestamp_that_spark_cannot_read_is_named(etl: Etl) -> None:
    topic = f"{etl.name}.late"
    config = {"message.timestamp.after.max.ms": str(2**63 - 1)}  # the default is an hour
    etl.admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    etl.topics = [topic]
    producer = Producer({"bootstrap.servers": etl.servers})
    producer.produce(topic, '{"id": 1}', timestamp=2**62)
    assert producer.flush(30) == 0
    with pytest.raises(RunError, match=r"^a record's timestamp is more than 290,000 years from now"):
        etl.run()


def test_batches_follow_the_size_of_records(etl: Etl) -> None:
    """The first batch has room for ten records of 10 kB. They have some 30 bytes, so the next batch has them all."""
    limit = ", max_bytes_per_trigger: 100000"
    etl.produce(*range(10))
    assert etl.run(source=limit).batches == 1
    kept = json.loads((etl.folder / "checkpoint" / "_etl" / "record_size.json").read_text())
    assert 20 < kept["mean"] < 40
    etl.produce(*range(10, 50))
    assert etl.run(source=limit).batches == 1
    assert etl.ids() == list(range(50))


def test_a_run_without_end_goes_on_after_failures_and_finishes_its_batch(
    etl: Etl, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = writer.BatchWriter.write
    entered, may_go_on, failures = threading.Event(), threading.Event(), []

    def write(*arguments: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise RuntimeError(DIES)
        entered.set()
        may_go_on.wait(300)
        return original(*arguments)

    monkeypatch.setattr(writer.BatchWriter, "write", write)
    etl.produce(1, 2, 3)
    with Continuous(etl) as continuous:
        until(entered.is_set)
        assert etl.metrics.health()["state"] == "running"
        continuous.stop.set()  # SIGTERM, in the middle of a batch
        may_go_on.set()
    assert continuous.error is None
    assert continuous.totals == Totals(batches=1, rows_in=3, rows_out=3, restarts=2)
    assert etl.ids() == [1, 2, 3]
    checkpoint = Checkpoint(f"{etl.folder}/checkpoint", etl.spark)
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (0, 0)  # Spark knows it too


def test_a_run_without_end_reads_later_records(etl: Etl) -> None:
    etl.produce(1)
    with Continuous(etl) as continuous:
        until(lambda: etl.metrics.health()["batches"] == 1)
        etl.produce(2, 3)
        until(lambda: etl.metrics.health()["batches"] == 2)
    assert continuous.error is None
    assert Counter(etl.ids()) == Counter([1, 2, 3])


def test_restarts_end_after_the_attempts(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> None:
        raise RuntimeError(DIES)

    monkeypatch.setattr(writer.BatchWriter, "write", fails)
    etl.produce(1)
    trigger = "trigger: {processing_time: 1 second}\nrestart: {attempts: 1, backoff: 1 second}\n"
    with pytest.raises(RunError, match=f"RuntimeError: {DIES}"):
        etl.run(once=False, sections=trigger)
    assert etl.work.totals.restarts == 1


def test_a_topic_that_goes_during_a_run_is_named(etl: Etl) -> None:
    """Spark's own error says only that a server does not have a partition."""

    def delete() -> None:
        until(lambda: etl.metrics.health()["batches"] == 1)
        etl.delete()

    etl.produce(1)
    deletion = threading.Thread(target=delete)
    deletion.start()
    with pytest.raises(UnknownTopicError, match=rf"^source: no topic {etl.topic} in the cluster$"):
        etl.run(once=False, sections="trigger: {processing_time: 1 second}\nrestart: {attempts: 0}\n")
    deletion.join()
    assert etl.ids() == [1]


def test_health_and_metrics_are_served(etl: Etl) -> None:
    from socket import create_server

    from spark_etl.config import MetricsConfig

    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with server.served(etl.metrics, MetricsConfig(port=port)):
        etl.produce(1, "broken")
        etl.run()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        assert f'millrace_etl_rows_total{{pipeline="{etl.name}",stage="in"}} 2.0' in lines
        assert f'millrace_etl_restarts_total{{pipeline="{etl.name}"}} 0.0' in lines
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz")
        assert raised.value.code == 503
        assert json.loads(raised.value.read())["state"] == "stopped"


def test_few_refused_records_are_found_without_judging_the_batch_again(
    etl: Etl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "BATCH_ROWS_MIN", 1)
    monkeypatch.setattr(refusals, "BLOCK_BITS", 1)
    judged: list[str] = []
    refused = writer.Judged.refused

    def counted(self: writer.Judged, batch: DataFrame) -> DataFrame:
        judged.append("again" if self is batch_writer_of[0]._judged else "blocks")
        return refused(self, batch)

    batch_writer_of: list[writer.BatchWriter] = []
    write = writer.BatchWriter.write

    def remembered(self: writer.BatchWriter, *arguments: Any) -> writer.Written:
        batch_writer_of[:] = [self]
        return write(self, *arguments)

    monkeypatch.setattr(writer.Judged, "refused", counted)
    monkeypatch.setattr(writer.BatchWriter, "write", remembered)
    etl.produce(*range(20), "broken 1", *range(20, 40))
    assert etl.run() == Totals(batches=1, rows_in=41, rows_out=40, rows_dlq=1)
    etl.produce(*["broken 2"] * 20, *range(40, 50))
    assert etl.run() == Totals(batches=1, rows_in=30, rows_out=10, rows_dlq=20)
    assert judged == ["blocks", "again"]
    assert [key for key, _ in etl.read(etl.letters)] == ["broken 1", *["broken 2"] * 20]
    assert etl.ids() == list(range(50))
