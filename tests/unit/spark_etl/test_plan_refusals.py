"""Values that make no folder of a partition, and expressions that differ from try to try of a batch."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.etl

from py4j.protocol import Py4JJavaError  # noqa: E402
from spark_etl import judgement  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.judgement import Judged, plan  # noqa: E402
from spark_etl.sinks.plans import check_plans  # noqa: E402
from spark_etl.transform import statements  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import pipeline  # noqa: E402


def planned(spark, folder: Path, *names: str, **sections) -> Judged:
    values = [json.dumps({"id": 1, "name": name}).encode() for name in names]
    return plan(spark, frame(spark, values), pipeline(folder, **sections))


def refusal(spark, folder: Path, **sections) -> str:
    with pytest.raises(ConfigError) as error:
        planned(spark, folder, **sections)
    return str(error.value).removeprefix(f"{folder}/pipeline.yaml:")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "name is empty, which a table cannot tell from null"),
        ("a\0b", "name has the character U+0000, which no folder can have"),
        ("é" * 126, "name is too long for the name of a folder"),
        ("/" * 84, "name is too long for the name of a folder"),
        ("é" * 125, None),
        ("/" * 83, None),
    ],
)
def test_a_text_that_is_no_folder_is_a_dead_letter(spark, tmp_path, value, reason):
    sinks = [{"type": "delta", "path": "none", "partition_by": ["name"]}]
    (row,) = planned(spark, tmp_path, value, sinks=sinks).rows.collect()
    assert row["_error"] == (None if reason is None else ("partition", "name", reason))


def test_a_partition_column_of_several_values_is_refused(spark, tmp_path):
    sinks = [{"type": "delta", "path": "none", "partition_by": ["parts"]}]
    assert (
        refusal(spark, tmp_path, sinks=sinks, derive={"parts": "array(id)"})
        == "11: sinks.0: partition_by: parts is array<bigint>, no folder"
    )


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({"rules": [{"name": "sample", "expr": "rand() < 0.5"}]}, "16: rules.0.expr"),
        ({"derive": {"token": "uuid()"}}, "15: derive.token"),
        ({"transform": [{"sql": "SELECT *, rand() AS r FROM input"}]}, "15: transform.0.sql"),
        ({"transform": [{"sql": "SELECT * FROM input WHERE rand() < 0.5"}]}, "15: transform.0.sql"),
    ],
)
def test_an_expression_that_differs_from_try_to_try_is_refused(spark, tmp_path, sections, place):
    """A retried batch would refuse other records than the table holds, and lose some."""
    assert refusal(spark, tmp_path, **sections) == f"{place}: {statements.NOT_REPEATABLE}"


def test_an_exception_without_a_text_is_named(spark, tmp_path, monkeypatch):
    """Java's StackOverflowError says nothing: a schema or an expression was nested too deep."""
    thrown = spark._jvm.java.lang.StackOverflowError()

    def decode(*_: object) -> None:
        raise Py4JJavaError("nested too deep", thrown)

    monkeypatch.setattr(judgement, "decode", decode)
    assert refusal(spark, tmp_path).endswith("StackOverflowError")


@pytest.mark.parametrize(
    ("derive", "kind"),
    [("INTERVAL 1 DAY", "interval day"), ("INTERVAL 1 MONTH", "interval month"), ("NULL", "void")],
)
def test_a_type_that_postgres_cannot_take_is_refused_with_its_line(spark, tmp_path, derive, kind):
    sink = {"type": "postgres", "url": "jdbc:postgresql://h/d", "table": "t"}
    wanted = pipeline(tmp_path, sinks=[sink], derive={"made": derive})
    with pytest.raises(ConfigError) as error:
        check_plans(wanted, plan(spark, frame(spark, []), wanted))
    reason = f"sinks.0: sink t: the column made is {kind}, which PostgreSQL cannot take: cast it"
    assert str(error.value).startswith(f"{tmp_path}/pipeline.yaml:11: {reason}")
