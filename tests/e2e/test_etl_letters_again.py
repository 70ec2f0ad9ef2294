"""Letters that are written a second time: after an interruption, a replay, a backfill, and for a topic made again."""

import argparse
import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from confluent_kafka import TopicPartition  # noqa: E402
from confluent_kafka.admin import (  # noqa: E402
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from millrace_demo.topics import read_all  # noqa: E402
from spark_etl import logs, sinks  # noqa: E402
from spark_etl.commands import backfill, recover, replay_dlq  # noqa: E402
from spark_etl.errors import OutputError, RunError  # noqa: E402
from spark_etl.judgement import Judged  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.lake import LakeTable  # noqa: E402
from spark_etl.letters import replays  # noqa: E402
from spark_etl.sinks.kafka_rows import KafkaRows  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

SMALL = 'rules: [{name: small, expr: "id < 1000"}]'
LARGE = json.dumps({"id": 1, "kind": "x" * 9000})


def replay(etl: Etl, to: str = "sinks") -> dict[str, Any]:
    choice = argparse.Namespace(to=to, stage=None, rule=None, from_=None, until_=None)
    return replay_dlq.Command(etl.spark, Cluster(etl.servers), etl.pipeline, logs.get()).replay(choice)


def rules(etl: Etl) -> list[str]:
    found = (dict(letter.headers()) for letter in read_all(etl.servers, etl.letters))
    return sorted(b" ".join(head[f"__etl.errors.{name}"] for name in ("stage", "rule")).decode() for head in found)


def dying(real: Callable[..., Any], *, after: int) -> Callable[..., Any]:
    """Return a function that calls the real one `after` times, and then fails."""
    calls = []

    def called(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) > after:
            raise RuntimeError("the driver dies here")
        return real(*arguments, **named)

    return called


def test_each_sink_that_refuses_a_row_has_its_letter(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"{etl.name}.{name}" for name in ("x", "y")]
    config = {"max.message.bytes": "8192"}
    for future in etl.admin.create_topics([NewTopic(topic, 1, 1, config=config) for topic in topics]).values():
        future.result(30)
    sink = "\n  ".join(f"- {{type: kafka, topic: {topic}}}" for topic in topics)
    etl.produce(LARGE)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaRows, "write", dying(KafkaRows.write, after=1))
        with pytest.raises(RunError, match="dies here"):
            etl.run(sink=sink)
    etl.run(sink=sink)
    assert rules(etl) == ["sink too_large"] * 2
    etl.produce(LARGE)
    assert etl.run(sink=sink).rows_dlq == 2
    assert rules(etl) == ["sink too_large"] * 4


def test_a_replay_that_is_finished_later_refuses_again(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    etl.produce(1, 1001)
    assert etl.run(sections=SMALL).rows_dlq == 1
    with monkeypatch.context() as patch:
        patch.setattr(sinks.DeadLetters, "write", dying(sinks.DeadLetters.write, after=0))
        with pytest.raises(RuntimeError, match="dies here"):
            replay(etl)
    for number in range(2):  # finished, and once more
        assert (found := replay(etl))["letters"] == 1
        assert (found["rows_out"], found["rows_dlq"], rules(etl)) == (0, 1, ["rules small"] * (2 + number))
    etl.run()
    assert replay(etl)["rows_out"] == 1
    assert etl.ids() == [1, 1001]


def test_a_replay_is_finished_with_the_file_that_began_it(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    etl.produce(1, 1001)
    etl.run(sections='rules: [{name: none, expr: "id < 0"}]')
    etl.run(sections=SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(sinks.DeadLetters, "write", dying(sinks.DeadLetters.write, after=0))
        with pytest.raises(RuntimeError, match="dies here"):
            replay(etl)
    etl.run()
    with pytest.raises(OutputError, match=r"^an interrupted replay began with another pipeline file"):
        replay(etl)
    with pytest.raises(OutputError, match=r"^backfill: an interrupted replay-dlq must be finished first"):
        backfill.backfill(etl.spark, etl.servers, etl.pipeline, 0, 1)
    etl.run(sections=SMALL)
    assert replay(etl)["rows_dlq"] == 1
    etl.run()
    assert replay(etl)["rows_out"] == 1
    assert etl.ids() == [1, 1001]


@pytest.mark.parametrize("place", [(LakeTable, "write"), (Judged, "counts")], ids=["table", "count"])
def test_a_replay_that_has_written_nothing_can_have_another_file(
    etl: Etl, monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    """The file may be the reason why it failed."""
    etl.produce(1, 1001)
    etl.run(sections=SMALL)
    etl.run()
    with monkeypatch.context() as patch:
        patch.setattr(*place, dying(getattr(*place), after=0))
        with pytest.raises(RuntimeError, match="dies here"):
            replay(etl)
    etl.run(sections='rules: [{name: large, expr: "id > 0"}]')
    assert replay(etl)["rows_out"] == 1
    assert etl.ids() == [1, 1001]


@pytest.mark.parametrize("gone", [False, True], ids=["partitions added", "letters expired"])
def test_a_replay_is_finished_in_a_topic_that_changed(etl: Etl, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    etl.create(etl.letters)
    etl.produce(1001)
    etl.run(sections=SMALL)
    etl.run()
    with monkeypatch.context() as patch:
        patch.setattr(sinks.DeadLetters, "write", dying(sinks.DeadLetters.write, after=0))
        with pytest.raises(RuntimeError, match="dies here"):
            replay(etl)
    if gone:
        etl.produce(1002)
        etl.run(sections=SMALL)
        etl.run()
        places = [TopicPartition(etl.letters, number, -1) for number in range(2)]
        for future in etl.admin.delete_records(places).values():
            future.result(30)
    else:
        etl.admin.create_partitions([NewPartitions(etl.letters, 4)])[etl.letters].result(30)
    assert replay(etl)["letters"] == (0 if gone else 1)
    assert etl.ids() == [1001]


def test_a_letter_of_one_sink_is_kept_after_recover(etl: Etl) -> None:
    topic = f"{etl.name}.out"
    narrow = NewTopic(topic, 1, 1, config={"max.message.bytes": "8192"})
    etl.admin.create_topics([narrow])[topic].result(30)
    sink = f"- {{type: kafka, topic: {topic}, value: original}}"
    etl.produce(LARGE, 2)
    etl.run(sink=sink)
    etl.produce(3)
    etl.run(sink=sink)
    shutil.rmtree(etl.folder / "checkpoint")
    recover.recover(etl.spark, etl.pipeline)
    wide = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[wide])
    etl.admin.incremental_alter_configs([resource])[resource].result(30)
    etl.run(sink=sink)
    assert replay(etl)["letters"] == 1
    assert sorted(json.loads(value or "")["id"] for _, value in etl.read(topic)) == [1, 2, 3]
    assert etl.ids() == [1, 2, 3]


def test_backfill_finds_a_letter_that_went_to_the_source(etl: Etl) -> None:
    """The new record has another letter."""
    etl.produce(1001)
    etl.run(sections=SMALL)
    replay(etl, "source")
    etl.run(sections=SMALL)
    assert rules(etl) == ["rules small"] * 2
    backfill.backfill(etl.spark, etl.servers, etl.pipeline, {etl.topic: {0: 0}}, {etl.topic: {0: 1}})
    assert rules(etl) == ["rules small"] * 2
    etl.run()
    assert replay(etl)["rows_out"] == 1
    assert etl.ids() == [1001]


def test_backfill_refuses_a_row_that_came_back(etl: Etl) -> None:
    etl.produce(1, 1001)
    etl.run(sections=SMALL)
    etl.run()
    assert replay(etl)["rows_out"] == 1
    etl.run(sections=SMALL)
    for _ in range(2):  # the second one finds the letter
        done = backfill.backfill(etl.spark, etl.servers, etl.pipeline, 0, 1)
        assert (done["rows_out"], done["rows_dlq"], rules(etl)) == (1, 1, ["rules small"] * 2)
    etl.run()
    assert replay(etl)["rows_out"] == 1
    assert etl.ids() == [1, 1001]


@pytest.mark.parametrize("to", ["sinks", "source"])
def test_letters_of_a_topic_that_was_created_again(etl: Etl, to: str) -> None:
    """The new topic has other records at the same offsets."""
    restart = ", on_topic_change: restart"
    etl.produce(1001, 1002)
    etl.run(sections=SMALL)
    etl.delete()
    etl.create()
    etl.produce(1003, 4)
    etl.run(sections=SMALL, source=restart)
    etl.run(source=restart)
    assert replay(etl, to)["letters"] == 3
    etl.run(source=restart)
    assert etl.ids() == [4, 1001, 1002, 1003]
    assert replay(etl, to)["letters"] == 0


def test_a_dead_letter_topic_that_was_created_again(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    etl.produce(1001)
    etl.run(sections=SMALL)
    assert replay(etl, "source")["letters"] == 1
    etl.admin.delete_topics([etl.letters])[etl.letters].result(30)
    etl.create(etl.letters)
    etl.produce(1002)
    etl.run(sections='rules: [{name: other, expr: "id <> 1002"}]')
    with monkeypatch.context() as patch:
        patch.setattr(replays.Replays, "finished", dying(replays.Replays.finished, after=0))
        patch.setattr(replay_dlq.TopicWriter, "write", dying(replay_dlq.TopicWriter.write, after=0))
        with pytest.raises(RuntimeError, match="dies here"):
            replay(etl, "source")
    assert replay(etl, "source")["letters"] == 1
    etl.run()
    assert etl.ids() == [1001, 1002]


def test_a_letter_that_goes_to_the_source_replaces_no_later_row(etl: Etl) -> None:
    """It was refused before its key changed again; a second replay of it has its first place."""
    upsert = {"table": False, "sink": f"- {{type: delta, path: {etl.place}/table, mode: upsert, keys: [id]}}"}

    def names() -> dict[int, str]:
        rows = etl.spark.read.format("delta").load(f"{etl.place}/table").select("id", "kind").collect()
        return {row["id"]: row["kind"] for row in rows}

    records = [(1, "bad"), (1, "new"), (2, "bad")]
    etl.produce(*(json.dumps({"id": number, "kind": kind}) for number, kind in records), partitions=1)
    rule = "rules: [{name: kind, expr: \"kind <> 'bad'\"}]"
    for sections in (rule, rule, ""):
        etl.run(sections=sections, **upsert)
        replay(etl, "source")
    etl.run(**upsert)
    assert names() == {1: "new", 2: "bad"}
