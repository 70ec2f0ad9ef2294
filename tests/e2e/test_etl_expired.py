"""Records that expire while a batch is written: each output has them, or they are counted where they lack."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from confluent_kafka import TopicPartition  # noqa: E402
from millrace_demo.topics import read_all  # noqa: E402
from spark_etl.errors import AccountingError, RunError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.kafka import sources  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.sinks.dead_letters import DeadLetters  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

DIES = "the driver dies here"
RECORDS = (1, "bad 1", 3, "bad 2", 5, "bad 3")


def expire(etl: Etl) -> None:
    """Remove the first three records of partition 0."""
    etl.admin.delete_records([TopicPartition(etl.topic, 0, 3)])[TopicPartition(etl.topic, 0)].result(30)


def letters(etl: Etl) -> list[bytes]:
    return sorted(each.value() for each in read_all(etl.servers, etl.letters))


def before_letters(etl: Etl, monkeypatch: pytest.MonkeyPatch, *, dies: bool = False) -> None:
    """Let records expire after the table's commit and before the letters."""
    real = DeadLetters.write

    def write(*arguments: Any) -> int:
        expire(etl)
        if dies:
            raise RunError(DIES)
        return real(*arguments)

    monkeypatch.setattr(DeadLetters, "write", write)


def test_records_that_expire_become_letters_nevertheless(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    etl.produce(*RECORDS, partitions=1)
    before_letters(etl, monkeypatch)
    totals = etl.run(source=", on_data_loss: continue")
    assert (totals.rows_in, totals.rows_out, totals.rows_dlq) == (6, 3, 3)
    assert letters(etl) == [b"bad 1", b"bad 2", b"bad 3"]
    assert etl.metadata()["skipped"] == {}


def test_a_letter_that_is_lost_with_a_driver_is_counted(
    etl: Etl, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    etl.produce(*RECORDS, partitions=1)
    topic = f"{etl.name}.rows"
    given = {"source": ", on_data_loss: continue", "sink": f"- {{type: kafka, topic: {topic}}}"}
    with monkeypatch.context() as patch:
        before_letters(etl, patch, dies=True)
        with pytest.raises(RunError, match=DIES):
            etl.run(**given)
    etl.run(**given)
    assert etl.ids() == [1, 3, 5]
    assert letters(etl) == [b"bad 2", b"bad 3"]
    numbers = {"late": 0, "dropped": 0, "duplicates": 0}
    assert etl.accounted() == {
        f"delta:{etl.folder}/table": {**numbers, "in": 5, "out": 3, "dlq": 2, "expired": 1},
        f"kafka:{topic}": {**numbers, "in": 3, "out": 1, "dlq": 2, "expired": 3},
    }
    assert [json.loads(value or "")["id"] for _, value in etl.read(topic)] == [5]
    warned = [
        each.fields for each in caplog.records if each.getMessage() == "records expired before an output read them"
    ]
    assert [(each["output"], each["expired"]) for each in warned] == [
        (f"delta:{etl.folder}/table", 1),
        (f"kafka:{topic}", 3),
    ]


def test_rows_are_counted_where_a_second_try_has_none(etl: Etl) -> None:
    """Spark would leave out the count with the comparison of no rows with those of the first try."""
    etl.produce(1, 2)
    etl.run()
    records = sources.batch(etl.spark, etl.servers, etl.pipeline.config, {}, {etl.topic: {0: 1, 1: 1}})
    judged = plan(etl.spark, records, etl.pipeline)
    letters = DeadLetters(etl.spark, Cluster(etl.servers), etl.letters, etl.name)
    letters.check()
    assert letters.write(judged.refused(judged.rows), None) == 0
    assert letters.write(judged.refused(judged.rows), datetime.now(UTC)) == 0  # wall clock: as the mark of a batch


def test_a_refused_record_that_is_gone_ends_the_run(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction may remove it, which is no loss of data for Spark."""
    real = DeadLetters.write
    monkeypatch.setattr(DeadLetters, "write", lambda self, rows, begun: real(self, rows.where("_offset > 1"), begun))
    etl.produce(*RECORDS, partitions=1)
    with pytest.raises(AccountingError, match="batch 0: 3 refused records, 2 dead letters"):
        etl.run()
