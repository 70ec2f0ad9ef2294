"""A source that starts over after a batch that some outputs hold and others missed: each output gets it once."""

import argparse
import json
import shutil
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl import logs, sinks  # noqa: E402
from spark_etl.batch.writer import BatchWriter  # noqa: E402
from spark_etl.checkpoint import batches  # noqa: E402
from spark_etl.checkpoint.offsets import Checkpoint  # noqa: E402
from spark_etl.commands import recover, replay_dlq  # noqa: E402
from spark_etl.errors import EtlError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.run.accounts import Totals  # noqa: E402
from spark_etl.run.stream_plans import StreamPlans  # noqa: E402
from spark_etl.sinks.kafka_rows import KafkaRows  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

RESTART = ", on_topic_change: restart"


def dies(*_arguments: object) -> None:
    raise RuntimeError("the driver dies here")


def interrupted(etl: Etl, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    """Run until a step of the first batch, which fails."""

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(EtlError, match="the driver dies here"):
            etl.run(**{"source": RESTART, **given})


def sent(etl: Etl, topic: str) -> list[int]:
    return sorted(json.loads(value or "")["id"] for _, value in etl.read(topic))


def test_another_sink_gets_the_batch_of_a_deleted_topic_from_the_table(etl: Etl, monkeypatch) -> None:
    topic = f"{etl.name}.rows"
    given = {"sink": f"- {{type: kafka, topic: {topic}}}"}
    for first, before in ((1, []), (5, [1, 2, 3])):  # the second time, the table has older rows at the same offsets
        etl.produce(first, first + 1, "broken", first + 2)
        interrupted(etl, KafkaRows, "write", monkeypatch, **given)
        assert sent(etl, topic) == before
        etl.delete()
        etl.create()
        assert etl.run(source=RESTART, **given).rows_in == 0
    etl.produce(10, 11)
    assert etl.run(source=RESTART, **given) == Totals(batches=1, rows_in=2, rows_out=2)
    assert etl.ids() == sent(etl, topic) == [1, 2, 3, 5, 6, 7, 10, 11]
    assert [key for key, _ in etl.read(etl.letters)] == ["broken", "broken"]  # both were out before the sink


def test_another_sink_gets_the_batch_of_a_topic_that_left_the_source_and_was_deleted(etl: Etl, monkeypatch) -> None:
    topic, other, lossy = f"{etl.name}.rows", f"{etl.name}.other", ", on_data_loss: continue"
    sink = f"- {{type: kafka, topic: {topic}}}"
    etl.topics.append(other)
    etl.create(other)
    etl.produce(1, 2)
    etl.produce(3, topic=other)
    interrupted(etl, KafkaRows, "write", monkeypatch, source=lossy, sink=sink)
    etl.topics.remove(other)
    etl.admin.delete_topics([other])[other].result(30)
    etl.produce(4)
    etl.run(source=lossy, sink=sink)
    assert etl.ids() == sent(etl, topic) == [1, 2, 3, 4]


TIMED = ", timestamp: {field: _timestamp, watermark: 1 minute}"


def test_a_row_that_dedupe_had_left_out_stays_out(etl: Etl, monkeypatch) -> None:
    """The new query does not know the keys of before; the table has the rows that were no duplicates."""
    topic = f"{etl.name}.rows"
    sink = f"- {{type: kafka, topic: {topic}, value: original}}"
    given = {"sink": sink, "sections": "dedupe: {keys: [id], within: 1 hour}", "decode": TIMED}
    other = f"{etl.name}.other"
    etl.topics.append(other)
    etl.create(other)
    etl.produce(1, 2)
    etl.run(source=RESTART, **given)
    etl.produce(1, 3)
    etl.produce(4, topic=other)
    interrupted(etl, KafkaRows, "write", monkeypatch, **given)
    etl.admin.delete_topics([other])[other].result(30)
    etl.create(other)
    etl.run(source=RESTART, **given)
    assert etl.ids() == [1, 2, 3, 4]
    assert sent(etl, topic) == [1, 2, 3]  # the original value of 4 is gone


def test_a_recovered_batch_of_a_topic_that_was_created_again(etl: Etl, monkeypatch) -> None:
    topic = f"{etl.name}.rows"
    sink = f"- {{type: kafka, topic: {topic}}}"
    given = {"sink": sink, "sections": "dedupe: {keys: [id], within: 1 hour}", "decode": TIMED}
    etl.produce(1, 2)
    etl.run(source=RESTART, **given)
    etl.produce(1, 3)
    interrupted(etl, KafkaRows, "write", monkeypatch, **given)
    shutil.rmtree(etl.folder / "checkpoint")
    recover.recover(etl.spark, etl.pipeline)
    etl.delete()
    etl.create()
    etl.produce(5)
    etl.run(source=RESTART, **given)
    assert etl.ids() == sent(etl, topic) == [1, 2, 3, 5]


def test_letters_that_came_back_before_a_new_start_stay_there_once(etl: Etl, monkeypatch) -> None:
    """The outputs know a replay by its number, so the next one must not have the same."""
    rows, rule = f"{etl.name}.rows", "rules: [{name: odd, expr: id % 2 = 1}]"
    given = {"sink": f"- {{type: kafka, topic: {rows}}}", "source": RESTART}

    def replay() -> None:
        options = argparse.Namespace(to="sinks", stage=None, rule=None, from_=None, until_=None)
        replay_dlq.Command(etl.spark, Cluster(etl.servers), etl.pipeline, logs.get()).replay(options)

    etl.produce(1, 2)
    etl.run(sections=rule, **given)
    etl.run(**given)
    replay()
    etl.delete()
    etl.create()
    etl.produce(3, 4)
    etl.run(sections=rule, **given)
    etl.run(**given)
    replay()
    assert etl.ids() == [1, 2, 3, 4]
    assert sent(etl, rows) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("start", "others"),
    [
        ("earliest", [1, 2, 3]),
        ("latest", []),
        ("{timestamp: 2100-01-01T00:00:00Z}", []),
        ("{offsets: {TOPIC: {0: earliest, 1: earliest}, OTHER: {0: 1, 1: latest}}}", [3]),
    ],
)
def test_a_query_that_never_began_starts_over_where_the_file_says(etl: Etl, monkeypatch, start: str, others) -> None:
    """The topic that was created again is read from its first record, since all its records are new."""
    other = f"{etl.name}.other"
    etl.topics.append(other)
    etl.create(other)
    etl.produce(1, 2, 3, topic=other)
    source = f"{RESTART}, start: {start.replace('TOPIC', etl.topic).replace('OTHER', other)}"
    interrupted(etl, StreamPlans, "next", monkeypatch, source=source)
    etl.delete()
    etl.create()
    etl.produce(10)
    etl.run(source=source)
    assert etl.ids() == [*others, 10]


@pytest.mark.parametrize("value", ["json", "original"])
def test_the_records_of_a_topic_that_did_not_change_are_read_again(etl: Etl, monkeypatch, value: str) -> None:
    topic, other = f"{etl.name}.rows", f"{etl.name}.other"
    etl.topics.append(other)
    etl.create(other)
    given = {"sink": f"- {{type: kafka, topic: {topic}, value: {value}}}"}
    etl.produce(1, 2, "gone")
    etl.produce(3, 4, "kept", topic=other)
    interrupted(etl, sinks.DeadLetters, "write", monkeypatch, **given)
    etl.delete()
    etl.create()
    etl.produce(10)
    etl.produce(5, topic=other)
    assert etl.run(source=RESTART, **given) == Totals(batches=1, rows_in=2, rows_out=2)
    assert etl.ids() == [1, 2, 3, 4, 5, 10]
    assert sent(etl, topic) == ([1, 2, 3, 4, 5, 10] if value == "json" else [3, 4, 5, 10])  # no table has the original
    assert [key for key, _ in etl.read(etl.letters)] == ["kept"]


def test_without_a_table_a_batch_that_was_written_is_not_written_again(etl: Etl, monkeypatch) -> None:
    topic, other = f"{etl.name}.rows", f"{etl.name}.other"
    etl.topics.append(other)
    etl.create(other)
    given = {"sink": f"- {{type: kafka, topic: {topic}}}", "table": False}
    etl.produce(1, 2)
    etl.produce(3, "broken", topic=other)
    interrupted(etl, batches.Batches, "finished", monkeypatch, **given)
    etl.delete()
    etl.create()
    etl.produce(10)
    etl.produce(4, topic=other)
    assert etl.run(source=RESTART, **given) == Totals(batches=1, rows_in=2, rows_out=2)
    assert sent(etl, topic) == [1, 2, 3, 4, 10]
    assert [key for key, _ in etl.read(etl.letters)] == ["broken"]


@pytest.mark.parametrize("step", ["after the new checkpoint", "before the first batch"])
def test_a_driver_that_dies_at_each_new_start_writes_nothing_again_and_goes_on(
    etl: Etl, monkeypatch, step: str
) -> None:
    """The topic is created again three times. Each new checkpoint must remember the offsets and queries before it."""
    other = f"{etl.name}.other"
    etl.topics.append(other)
    etl.create(other)
    etl.produce(1, 2)
    etl.produce(3, 4, topic=other)
    assert etl.run(source=RESTART).rows_out == 4
    replace = Checkpoint.replace

    def replaces_and_dies(checkpoint: Checkpoint, name: str) -> None:
        replace(checkpoint, name)
        raise RuntimeError("the driver dies here")

    for number in (10, 20):
        etl.delete()
        etl.create()
        etl.produce(number)
        if step == "before the first batch":
            interrupted(etl, BatchWriter, "write", monkeypatch)
            continue
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "replace", replaces_and_dies)
            with pytest.raises(RuntimeError, match="the driver dies here"):
                etl.run(source=RESTART)
    etl.delete()
    etl.create()
    etl.produce(30)
    etl.produce(5, topic=other)
    assert etl.run(source=RESTART) == Totals(batches=1, rows_in=2, rows_out=2)
    assert etl.ids() == [1, 2, 3, 4, 5, 30]
    nested = [path.name for path in etl.folder.glob("checkpoint.replaced-*/checkpoint")]
    assert nested == []
