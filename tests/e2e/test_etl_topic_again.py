"""A topic that was created again: its records have the offsets of others, of which the table still has the rows."""

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl.commands import backfill  # noqa: E402
from spark_etl.errors import ConfigError, OutputError  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

RESTART = ", on_topic_change: restart"


def test_a_range_of_its_offsets_is_not_exchanged(etl: Etl) -> None:
    etl.produce(1, 2, 3, 4)
    etl.run(source=RESTART)
    etl.delete()
    etl.create()
    etl.produce(10, 11)
    etl.run(source=RESTART)
    assert etl.metadata()["created_again"] == [etl.topic]
    with pytest.raises(OutputError, match=f"the table has rows of an earlier topic {etl.topic}, with the same offsets"):
        backfill.backfill(etl.spark, etl.servers, etl.pipeline, 0, 1)
    assert etl.ids() == [1, 2, 3, 4, 10, 11]


def test_its_changes_are_newer_than_those_of_the_topic_before(etl: Etl) -> None:
    given = {"table": False, "sink": f"- {{type: delta, path: {etl.folder}/table, mode: upsert, keys: [kind]}}"}
    etl.produce(2, 4, 6)
    etl.run(source=RESTART, **given)
    assert etl.ids() == [6]  # the last one of its partition
    etl.delete()
    etl.create()
    etl.produce(20)
    etl.run(source=RESTART, **given)
    assert etl.ids() == [20]


def test_a_range_is_not_enough_to_find_duplicates(etl: Etl) -> None:
    given = {
        "decode": ", timestamp: {field: _timestamp, watermark: 1 minute}",
        "sections": "dedupe: {keys: [id], within: 1 hour}",
    }
    etl.produce(1, 1)
    etl.run(**given)
    with pytest.raises(ConfigError, match="dedupe compares records with those outside the range"):
        backfill.backfill(etl.spark, etl.servers, etl.pipeline, 0, 1)
    assert etl.ids() == [1]
