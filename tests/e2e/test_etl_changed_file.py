"""A pipeline file that changes between two runs. No record is judged twice, and no state is mixed."""

import json
import shutil

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from confluent_kafka.admin import NewPartitions  # noqa: E402
from spark_etl import sinks  # noqa: E402
from spark_etl.commands import recover  # noqa: E402
from spark_etl.errors import ConfigError, OutputError, RunError  # noqa: E402
from spark_etl.judgement import Judged  # noqa: E402
from spark_etl.lake import LakeTable  # noqa: E402
from spark_etl.run.accounts import Totals  # noqa: E402
from spark_etl.sinks.kafka_rows import KafkaRows  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

TIMED = ", timestamp: {field: _timestamp, watermark: 1 minute}"
DEDUPE = "dedupe: {keys: [id], within: 1 hour}"


def windows(topic: str, aggregate: str) -> str:
    return f"- {{type: kafka, topic: {topic}, aggregate: {{{aggregate}}}}}"


def test_a_batch_of_the_table_is_not_judged_by_another_file(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record could be in the table and among the dead letters, or in neither."""

    def fails(*_arguments: object) -> None:
        raise RuntimeError("no letters today")

    rule = 'rules: [{name: small, expr: "id < 2"}]'
    etl.produce(1, 2, "broken")
    with monkeypatch.context() as patch:
        patch.setattr(sinks.DeadLetters, "write", fails)
        with pytest.raises(RunError, match="no letters today"):
            etl.run()
    with pytest.raises(OutputError, match=r"^batch 0 is in the table as an earlier pipeline file judged it"):
        etl.run(sections=rule)
    assert etl.read(etl.letters) == []
    assert etl.run(sections="max_refused: 90%") == Totals()  # it judges no record otherwise
    assert etl.ids() == [1, 2]
    assert [key for key, _ in etl.read(etl.letters)] == ["broken"]
    etl.produce(1, 3)
    assert etl.run(sections=rule) == Totals(batches=1, rows_in=2, rows_out=1, rows_dlq=1)


def test_a_batch_that_the_table_has_from_a_mended_file(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that counts is the one that wrote the table, not the first one that began the batch."""

    def fails(*_arguments: object) -> None:
        raise RuntimeError("not today")

    rule = 'rules: [{name: small, expr: "id < 2"}]'
    etl.produce(1, 2, "broken")
    for place in ((LakeTable, "write"), (sinks.DeadLetters, "write")):
        with monkeypatch.context() as patch:
            patch.setattr(*place, fails)
            with pytest.raises(RunError, match="not today"):
                etl.run(sections=rule if place[0] is sinks.DeadLetters else "")
    with pytest.raises(OutputError, match=r"^batch 0 is in the table as an earlier pipeline file judged it"):
        etl.run()
    assert etl.run(sections=rule) == Totals()
    assert etl.ids() == [1]
    assert sorted(key or "" for key, _ in etl.read(etl.letters)) == ["2", "broken"]


def test_a_batch_without_a_table_is_not_judged_by_another_file(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> None:
        raise RuntimeError("not today")

    topic = f"{etl.name}.rows"
    given = {"table": False, "sink": f"- {{type: kafka, topic: {topic}}}"}
    rule = 'rules: [{name: small, expr: "id < 2"}]'
    etl.produce(1, 2)
    for place, mended in (((Judged, "counts"), False), ((KafkaRows, "write"), True)):
        with monkeypatch.context() as patch:
            patch.setattr(*place, fails)
            with pytest.raises(RunError, match="not today"):
                etl.run(sections=rule if mended else "", **given)
    with pytest.raises(OutputError, match=rf"^batch 0 is in kafka:{etl.letters} as an earlier pipeline file"):
        etl.run(**given)
    etl.run(sections=rule, **given)
    assert [key for key, _ in etl.read(topic)] == ["1"]
    assert [key for key, _ in etl.read(etl.letters)] == ["2"]


def test_dedupe_that_comes_is_refused_and_spoils_nothing(etl: Etl) -> None:
    etl.produce(1, 2)
    etl.run(decode=TIMED)
    etl.produce(3)
    for _ in range(2):
        with pytest.raises(ConfigError, match="dedupe: `dedupe` was added after the checkpoint began"):
            etl.run(decode=TIMED, sections=DEDUPE)
    assert etl.run(decode=TIMED) == Totals(batches=1, rows_in=1, rows_out=1)
    assert etl.ids() == [1, 2, 3]


def test_dedupe_that_goes_is_refused(etl: Etl) -> None:
    etl.produce(1, 2)
    etl.run(decode=TIMED, sections=DEDUPE)
    with pytest.raises(ConfigError, match="`dedupe` was removed after the checkpoint began"):
        etl.run(decode=TIMED)


@pytest.mark.parametrize("changed", ["window: 5 days, select: {n: sum(id)}", "window: 10 days, select: {n: max(id)}"])
def test_windows_of_another_aggregate_are_refused(etl: Etl, changed: str) -> None:
    topic = f"{etl.name}.windows"
    sink = windows(topic, "window: 10 days, select: {n: sum(id)}")
    etl.produce(1, 2)
    etl.run(decode=TIMED, sink=sink)
    etl.produce(3)
    with pytest.raises(ConfigError, match=rf"aggregate: it was changed after {topic} got its first windows"):
        etl.run(decode=TIMED, sink=windows(topic, changed))
    etl.run(decode=TIMED, sink=windows(f"{topic}.new", changed))
    etl.run(decode=TIMED, sink=sink)
    assert [json.loads(value or "")["n"] for _, value in etl.read(topic)] == [3, 6]


def test_keys_of_another_type_are_refused_and_spoil_nothing(etl: Etl) -> None:
    etl.produce(1, 2)
    etl.run(decode=TIMED, sections=DEDUPE)
    etl.produce(3)
    with pytest.raises(OutputError, match=r"^columns of `dedupe\.keys` or of an aggregate of windows have other types"):
        etl.run(decode=TIMED, sections=DEDUPE.replace("id", "kind"))
    assert etl.run(decode=TIMED, sections=DEDUPE).rows_out == 1
    assert etl.ids() == [1, 2, 3]


def test_windows_added_after_a_new_start_and_a_new_partition(etl: Etl) -> None:
    """The kept offsets lack the partition; Spark takes offsets of all partitions only."""
    restart = ", on_topic_change: restart"
    etl.produce(1)
    etl.run(decode=TIMED, source=restart)
    etl.delete()
    etl.create()
    etl.produce(2)
    assert etl.run(decode=TIMED, source=restart).rows_in == 1
    etl.admin.create_partitions([NewPartitions(etl.topic, 3)])[etl.topic].result(30)
    etl.produce(3, 4, 5, partitions=3)
    topic = f"{etl.name}.windows"
    sink = windows(topic, "window: 10000 days, select: {n: count(*)}")
    assert etl.run(decode=TIMED, source=restart, sink=sink).rows_in == 3
    assert [json.loads(value or "")["n"] for _, value in etl.read(topic)] == [4]


def test_an_event_before_1970_is_no_late_one(etl: Etl) -> None:
    given = {"decode": ", timestamp: {field: at, watermark: 1 minute}", "sections": DEDUPE}
    fields = {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}
    (etl.folder / "schema.json").write_text(json.dumps({"type": "object", "properties": fields}))
    at = ("1970-01-01T00:00:00Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00.000001Z", "2026-01-31T00:00:00Z")
    etl.produce(*(json.dumps({"id": number, "at": each}) for number, each in enumerate(at)))
    found = etl.run(**given)
    assert (found.rows_in, found.rows_out, found.rows_dlq) == (4, 2, 2)
    assert etl.ids() == [2, 3]


LOSSY = ", on_data_loss: continue"


def without_a_topic(etl: Etl) -> str:
    """Run with two topics, and then without the second one; return its name."""
    other = f"{etl.name}.other"
    etl.topics.append(other)
    etl.create(other)
    etl.produce(1)
    etl.produce(2, topic=other)
    etl.run(source=LOSSY)
    etl.topics.remove(other)
    etl.produce(3)
    etl.run(source=LOSSY)
    return other


def test_a_topic_that_comes_back_to_the_source_is_not_read_twice(etl: Etl) -> None:
    """Spark forgets the offsets of a topic that is left out for a batch."""
    other = without_a_topic(etl)
    etl.topics.append(other)
    with pytest.raises(OutputError, match=rf"^the topic {other} was left out of the source for a while"):
        etl.run(source=LOSSY)
    assert etl.ids() == [1, 2, 3]


def test_a_topic_that_comes_back_after_recover_is_not_read_twice(etl: Etl) -> None:
    other = without_a_topic(etl)
    shutil.rmtree(etl.folder / "checkpoint")
    recover.recover(etl.spark, etl.pipeline)
    etl.topics.append(other)
    with pytest.raises(OutputError, match=rf"^the topic {other} was left out of the source for a while"):
        etl.run(source=LOSSY)
    assert etl.ids() == [1, 2, 3]


def test_a_topic_that_leaves_the_source_is_named(etl: Etl) -> None:
    other = f"{etl.name}.other"
    etl.topics.append(other)
    etl.create(other)
    etl.produce(1)
    etl.produce(2, topic=other)
    etl.run()
    etl.topics.remove(other)
    etl.produce(3)
    with pytest.raises(OutputError, match=rf"^the source no longer has the topic {other}, and records after"):
        etl.run()
    assert etl.run(source=", on_data_loss: continue").rows_in == 1
    assert etl.run() == Totals()
    assert etl.ids() == [1, 2, 3]


def test_another_name_is_refused_with_the_name_of_before(etl: Etl) -> None:
    etl.produce(1)
    etl.run()
    name, etl.name = etl.name, f"{etl.name}x"
    with pytest.raises(OutputError, match=rf"/table is the table of the pipeline {name}, and `name` may not change$"):
        etl.run()


def test_a_checkpoint_is_of_one_name(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was copied with its checkpoint would leave out all records before, without a word."""
    first = {"table": False, "sink": f"- {{type: kafka, topic: {etl.name}.rows}}"}
    etl.produce(1, 2)
    etl.run(**first)
    name, etl.name = etl.name, f"{etl.name}-copy"
    etl.produce(3)
    reason = rf"name: .*/checkpoint is the checkpoint of the pipeline {name}, and `name` may not change"
    with pytest.raises(ConfigError, match=reason):
        etl.run(table=False, sink=f"- {{type: kafka, topic: {etl.name}.rows}}")
    etl.name = name
    assert etl.run(**first) == Totals(batches=1, rows_in=1, rows_out=1)
