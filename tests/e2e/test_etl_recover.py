"""A run after `recover`: each output has each record once, and newer windows replace older ones."""

import argparse
import json
import shutil

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl import logs, sinks  # noqa: E402
from spark_etl.commands import recover, replay_dlq  # noqa: E402
from spark_etl.errors import RunError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402
from support.postgres import PASSWORD, USER, PostgresServer, postgres  # noqa: E402

__all__ = ["broker", "etl", "postgres"]

DIES = "the driver dies here"


def lose_the_checkpoint(etl: Etl) -> None:
    shutil.rmtree(etl.folder / "checkpoint")
    recover.recover(etl.spark, etl.pipeline)


def values(etl: Etl, topic: str) -> list[dict]:
    return [json.loads(value or "") for _, value in etl.read(topic)]


@pytest.mark.parametrize("dedupe", [False, True], ids=["rows", "dedupe"])
def test_every_output_gets_the_batch_that_was_interrupted(
    etl: Etl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, dedupe: bool
) -> None:
    def dies(*_arguments: object) -> None:
        raise RuntimeError(DIES)

    rows = f"{etl.name}.rows"
    address = f'url: "{postgres.url}", user: {USER}, password: "{PASSWORD}"'
    options = {
        "sink": f"- {{type: kafka, topic: {rows}}}\n  - {{type: postgres, table: {etl.name}, {address}}}",
        "decode": ", timestamp: {field: _timestamp, watermark: 1 minute}",
        "sections": "dedupe: {keys: [id], within: 1 day}" if dedupe else "",
    }
    etl.produce(1, 2, "broken", 3)
    etl.run(**options)
    etl.produce(4, 5, 4, "wrong", 4, 4)
    with monkeypatch.context() as patch:
        patch.setattr(sinks.DeadLetters, "write", dies)
        with pytest.raises(RunError, match=DIES):
            etl.run(**options)
    lose_the_checkpoint(etl)
    etl.produce(6)
    etl.run(**options)
    expected = [1, 2, 3, 4, *([] if dedupe else [4, 4, 4]), 5, 6]
    assert etl.ids() == expected
    assert sorted(value["id"] for value in values(etl, rows)) == expected
    assert sorted(int(number) for (number,) in postgres.rows(f"SELECT id FROM {etl.name}")) == expected
    assert sorted(key or "" for key, _ in etl.read(etl.letters)) == ["broken", "wrong"]
    assert etl.run(**options).rows_in == 0
    assert len(etl.read(rows)) == len(expected)


def test_windows_after_a_recovery_have_higher_versions(etl: Etl) -> None:
    topic = f"{etl.name}.win"
    options = {
        "decode": ", timestamp: {field: _timestamp, watermark: 1 minute}",
        "sink": f"- {{type: kafka, topic: {topic}, aggregate: {{window: 10000 days, select: {{n: count(*)}}}}}}",
    }
    for number in range(3):
        etl.produce(number)
        etl.run(**options)
    lose_the_checkpoint(etl)
    etl.produce(3)
    etl.run(**options)
    versions = {version: value["n"] for version, value in zip(etl.versions(topic), values(etl, topic), strict=True)}
    assert versions[max(versions)] == 4
    assert len(versions) == 4


def test_letters_that_came_back_before_a_recovery_stay_there_once(etl: Etl) -> None:
    """The marks of replays are lost with the checkpoint; the rows in the table show the letters that came back."""

    def replay() -> None:
        options = argparse.Namespace(to="sinks", stage=None, rule=None, from_=None, until_=None)
        replay_dlq.Command(etl.spark, Cluster(etl.servers), etl.pipeline, logs.get()).replay(options)

    rule = "rules: [{name: odd, expr: id % 2 = 1}]"
    rows = f"{etl.name}.rows"
    sink = f"- {{type: kafka, topic: {rows}}}"
    etl.produce(1, 2, 3)
    etl.run(sections=rule, sink=sink)
    assert etl.ids() == [1, 3]
    etl.run(sink=sink)
    replay()
    assert etl.ids() == [1, 2, 3]
    lose_the_checkpoint(etl)
    etl.run(sink=sink)
    etl.produce(4, 5)
    etl.run(sections=rule, sink=sink)
    etl.run(sink=sink)
    replay()
    assert etl.ids() == [1, 2, 3, 4, 5]
    assert sorted(value["id"] for value in values(etl, rows)) == [1, 2, 3, 4, 5]
