"""The first query of a run has the plan that was checked. Later ones, and one that begins elsewhere, have their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(200)]

from pyspark.sql import SparkSession  # noqa: E402
from spark_etl.checkpoint.offsets import Checkpoint  # noqa: E402
from spark_etl.config import load  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.query.byte_limit import ByteLimit  # noqa: E402
from spark_etl.run.stream_plans import StreamPlans  # noqa: E402

from tests.support.etl_runs import SCHEMA  # noqa: E402


class Plans:
    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session, self._folder = session, folder
        self.checkpoint = Checkpoint(str(folder / "checkpoint"), session)
        self.limit = ByteLimit(1_000_000, None, self.checkpoint.notes)

    def of(self, sections: str = "", *, limited: bool = False) -> StreamPlans:
        (self._folder / "schema.json").write_text(json.dumps(SCHEMA))
        path = self._folder / "pipeline.yaml"
        path.write_text(
            f"""
apiVersion: etl/v1
name: plans
checkpoint: {self._folder}/checkpoint
source: {{topics: [in]}}
decode: {{format: json, schema: schema.json}}
sinks:
  - {{type: delta, path: {self._folder}/table}}
dead_letter: {{topic: letters}}
{sections}
"""
        )
        limit = self.limit if limited else None
        return StreamPlans(self._session, load(path, {}), Cluster("127.0.0.1:1"), limit)


@pytest.fixture
def plans(spark: SparkSession, tmp_path: Path) -> Plans:
    return Plans(spark, tmp_path)


def test_the_first_query_has_the_checked_plan_and_the_next_one_has_its_own(plans):
    stream = plans.of()
    assert stream.check().names == ["id", "kind", "_key", "_topic", "_partition", "_offset", "_timestamp"]
    checked = stream._first[1]
    assert checked.rows.isStreaming
    assert stream.next(None) is checked
    assert stream.next(None) is not checked


def test_a_limit_that_was_learned_needs_another_plan(plans):
    stream = plans.of(limited=True)
    stream.check()
    checked = stream._first[1]
    plans.limit.records += 1
    assert stream.next(None) is not checked


def test_a_source_that_starts_over_needs_another_plan(plans):
    stream = plans.of()
    stream.check()
    checked = stream._first[1]
    planned = stream.next({"in": {0: -2}})
    assert planned is not checked
    assert 'startingOffsets -> {"in": {"0": -2}}' in planned.rows._jdf.queryExecution().analyzed().toString()


def test_the_files_of_a_join_are_looked_at_for_each_query(plans, spark, tmp_path):
    """A run may wait long between the two: for an unfinished batch of an earlier run, say."""
    kinds = tmp_path / "kinds"
    spark.createDataFrame([("k0", "even")], "kind STRING, name STRING").write.parquet(str(kinds))
    join = f"{{name: kinds, path: {kinds}, format: parquet, on: {{kind: kind}}, select: {{name: name}}}}"
    stream = plans.of(f"join: [{join}]")
    assert "name" in stream.check().names
    assert stream._first is None


def test_a_typo_is_found_without_a_broker_and_before_the_checkpoint_is_read(plans, tmp_path):
    (tmp_path / "checkpoint").write_text("a file, no folder")
    with pytest.raises(ConfigError, match=r"rules\.0\.expr: .*knd"):
        plans.of("rules: [{name: known, expr: knd IS NOT NULL}]").check()


@pytest.mark.parametrize(
    "sections",
    [
        "rules: [{name: known, expr: knd IS NOT NULL}]",
        "derive: {doubled: knd * 2}",
        'transform: [{sql: "SELECT id, knd FROM input"}]',
    ],
)
def test_a_typo_prints_no_password(plans, caplog, sections):
    """PySpark would print the whole plan of an expression that Spark refuses, with the options of the source."""
    with pytest.raises(ConfigError, match="knd") as raised:
        plans.of(
            f"kafka: {{sasl.jaas.config: 'x password=\"hunter2\";', ssl.keystore.password: hunter3}}\n{sections}"
        ).check()
    assert "hunter" not in str(raised.value)
    assert caplog.records == []
