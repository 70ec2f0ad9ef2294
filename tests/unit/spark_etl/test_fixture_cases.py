"""`spark-etl test` and `validate`: outputs of fixture records, and faults with their place, without a broker."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.etl

from spark_etl import logs  # noqa: E402
from spark_etl.checkpoint.batches import BatchPlace  # noqa: E402
from spark_etl.commands import test as test_command  # noqa: E402
from spark_etl.commands import validate  # noqa: E402
from spark_etl.commands.cases import Case, load_cases  # noqa: E402
from spark_etl.commands.test import differences, outcomes_of  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.settings import EtlSettings  # noqa: E402
from spark_etl.sinks.console import Console  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402

GOOD = {"id": 1, "name": "a", "price": 2.5, "at": "2026-01-31T12:00:30Z"}
TOTAL = {"type": "kafka", "topic": "total", "aggregate": {"group_by": ["name"], "select": {"n": "count(*)"}}}
MINUTES = {
    "type": "kafka",
    "topic": "minutes",
    "aggregate": {"window": "1 minute", "group_by": ["name"], "select": {"sum": "sum(price)"}},
}
TABLE = {"type": "delta", "path": "table"}
CLEAN = {"type": "kafka", "topic": "clean", "key": "id", "columns": ["id", "name"]}
COPY = {"type": "kafka", "topic": "copy", "value": "original"}
SECTIONS: dict[str, Any] = {
    "decode": json_decode(timestamp={"field": "at", "watermark": "1 minute"}),
    "derive": {"double": "price * 2"},
    "rules": [
        {"name": "named", "expr": "name IS NOT NULL"},
        {"name": "cheap", "expr": "price < 9", "on_violation": "drop"},
    ],
    "sinks": [TABLE, CLEAN, COPY, TOTAL, MINUTES],
}


def case(name: str, *records: dict[str, Any], **expected: Any) -> Case:
    return Case.model_validate({"name": name, "records": records, **expected})


def test_every_output_of_a_case(spark, tmp_path):
    records = [
        {"key": "k", "value": GOOD, "headers": {"trace": "t"}, "timestamp": "2026-01-31T12:00:30Z"},
        {"value": {**GOOD, "id": 2, "name": None}},
        {"value": "{", "offset": 7, "partition": 2, "timestamp": "2026-01-31T12:00:00"},
        {"value": {**GOOD, "id": 3, "price": 10}},
        {"value": {**GOOD, "id": 4, "at": "2026-01-31T12:01:00.123456Z"}, "timestamp": "2026-01-31T12:00:30Z"},
    ]
    (outcome,) = outcomes_of(spark, pipeline(tmp_path, **SECTIONS), [case("all", *records)])
    place = {"_topic": "orders", "_partition": 0, "_timestamp": "2026-01-31T12:00:30.000000Z"}
    assert outcome.rows == [
        {**GOOD, "at": "2026-01-31T12:00:30.000000Z", "double": 5.0, "_key": "k", "_offset": 0, **place},
        {**GOOD, "at": "2026-01-31T12:01:00.123456Z", "id": 4, "double": 5.0, "_key": None, "_offset": 4, **place},
    ]
    assert [(each["partition"], each["offset"], each["stage"], each["rule"]) for each in outcome.dead_letters] == [
        (0, 1, "rules", "named"),
        (2, 7, "decode", "json"),
    ]
    source = {"__etl.pipeline": "orders", "__etl.source.topic": "orders", "__etl.source.partition": "0"}
    source["__etl.source.timestamp"] = "2026-01-31T12:00:30.000Z"
    assert outcome.topics["clean"] == [
        {"key": "1", "value": {"id": 1, "name": "a"}, "headers": {**source, "__etl.source.offset": "0"}},
        {"key": "4", "value": {"id": 4, "name": "a"}, "headers": {**source, "__etl.source.offset": "4"}},
    ]
    assert outcome.topics["copy"][0] == {
        "key": "k",
        "value": GOOD,
        "headers": {"trace": "t", **source, "__etl.source.offset": "0"},
    }
    version = {"__etl.pipeline": "orders", "__etl.version": "0"}
    assert outcome.topics["total"] == [{"key": "a", "value": {"name": "a", "n": 2}, "headers": version}]
    start, end, last = (f"2026-01-31T12:0{minute}:00.000" for minute in range(3))
    assert outcome.topics["minutes"] == [
        {
            "key": f'{{"window_start":"{first}Z","name":"a"}}',
            "value": {"window_start": f"{first}000Z", "window_end": f"{second}000Z", "name": "a", "sum": 2.5},
            "headers": {**version, "__etl.window": f"{first}Z/{second}Z"},
        }
        for first, second in ((start, end), (end, last))
    ]


def test_cases_do_not_mix(spark, tmp_path):
    cases = [case(f"case {number}", *[{"value": {**GOOD, "id": number}}] * (number + 1)) for number in range(3)]
    for more in ({}, {"dedupe": {"keys": ["id"], "within": "1 minute"}}, {"derive": {"double": "_partition"}}):
        outcomes = outcomes_of(spark, pipeline(tmp_path, **{**SECTIONS, **more}), cases)
        counts = [1, 1, 1] if "dedupe" in more else [1, 2, 3]
        assert [len(outcome.rows) for outcome in outcomes] == counts
        assert [outcome.topics["total"][0]["value"]["n"] for outcome in outcomes] == counts
        if "derive" in more:
            assert {row["double"] for outcome in outcomes for row in outcome.rows} == {0}


def test_ten_cases_are_one_plan(spark, tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(test_command, "plan", lambda *given, real=test_command.plan: plans.append(1) or real(*given))
    cases = [case(f"case {number}", {"value": {**GOOD, "id": number}}) for number in range(10)]
    outcomes = outcomes_of(spark, pipeline(tmp_path, **SECTIONS), cases)
    assert ([outcome.rows[0]["id"] for outcome in outcomes], plans) == (list(range(10)), [1])


def test_differences_name_the_place(spark, tmp_path):
    wrong = case(
        "wrong",
        {"value": GOOD},
        {"value": "x"},
        rows=[{"id": 2, "colour": "red", "name": "a"}, {"id": 3}],
        topics={"clean": [], "other": [], "total": [{"value": {"n": True}}]},
    )
    (outcome,) = outcomes_of(spark, pipeline(tmp_path, **SECTIONS), [wrong])
    found = differences(wrong, outcome)
    assert found[0].startswith(
        'dead letter 0: not expected: {"topic": "orders", "partition": 0, "offset": 1, "stage": "dec'
    )
    assert found[1:4] == ["row 0: id: expected 2, got 1", "row 0: colour: no such field", "row 1: missing"]
    assert found[4].startswith('clean: record 0: not expected: {"key": "1"')
    assert found[5:] == ["other: no sink writes this topic", "total: record 0: value.n: expected true, got 1"]


def test_the_command_prints_each_case_and_fails(spark, tmp_path, monkeypatch, capsys):
    given = pipeline(tmp_path, **SECTIONS)
    (tmp_path / "pipeline.test.yaml").write_text(
        "cases:\n"
        "  - {name: passes, records: [{value: {id: 1, name: a, at: 2026-01-31T12:00:30Z}}], rows: []}\n"
        "  - {name: fails, records: [{value_base64: eA==}], rows: [{id: 1}], dead_letters: [{rule: json}]}\n"
    )
    opened = contextmanager(lambda *_: iter([spark]))
    monkeypatch.setattr(test_command, "opened", opened)
    options = argparse.Namespace(pipeline=tmp_path / "pipeline.yaml", cases=None)
    assert test_command.run(given, EtlSettings(), options, logs.get()) == 1
    assert capsys.readouterr().out == ("ok   passes\nFAIL fails\n     row 0: missing\n2 cases, 1 failed\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cases: []", "cases: List should have at least 1 item after validation, not 0"),
        ("cases: [{name: a, records: [{colour: 1}]}]", "cases.0.records.0.colour: Extra inputs are not permitted"),
        ("cases: [{name: a, records: []}, {name: a, records: []}]", ": Value error, two cases have the name 'a'"),
        ("cases: [{name: a, records: [{key_base64: '?'}]}]", "cases.0.records.0.key_base64: Value error, "),
        ("cases: [", "not YAML: while parsing a flow node"),
        ("[" * 5000, "not YAML: maximum recursion depth exceeded"),
        ("a: &a [*a]", "not YAML: an alias contains itself"),
        (
            "a0: &a0 [1]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 9}]\n" for n in range(9)),
            "not YAML: aliases repeat more than 100000 values",
        ),
    ],
)
def test_a_wrong_file_of_cases_is_refused_with_its_place(tmp_path: Path, text: str, reason: str):
    path = tmp_path / "cases.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_cases(path)
    assert str(refused.value).startswith(f"{path}: {reason}")


def test_the_console_shows_the_first_rows(spark, tmp_path, capsys):
    given = pipeline(tmp_path, sinks=[{"type": "console", "rows": 1, "columns": ["name", "_offset"]}])
    (config,) = given.config.sinks
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "name string, _offset bigint").orderBy("_offset")
    place = BatchPlace.of("orders", "query", 0)
    assert Console(config).write(rows, place, None) == 0
    assert capsys.readouterr().err == '{"name":"a","_offset":1}\n'
    every = config.model_copy(update={"rows": 20, "columns": []})
    assert Console(every).write(rows, place, None) == 0
    assert capsys.readouterr().err == '{"name":"a"}\n{"name":"b"}\n'


def test_validate_names_the_columns(spark, tmp_path):
    found = validate.validate(spark, pipeline(tmp_path, **SECTIONS))
    assert found == {
        "id": "bigint",
        "name": "string",
        "price": "double",
        "at": "timestamp",
        "double": "double",
        "_key": "string",
        "_topic": "string",
        "_partition": "int",
        "_offset": "bigint",
        "_timestamp": "timestamp",
    }


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        ({**CLEAN, "key": "colour"}, "colour"),
        ({**CLEAN, "columns": ["colour"]}, "colour"),
        ({"type": "console", "columns": ["colour"]}, "no column colour in the rows"),
        ({**TOTAL, "aggregate": {"group_by": ["id"], "select": {"n": "sum(colour)"}}}, "colour"),
        ({**MINUTES, "aggregate": {"window": "1 minute", "select": {"n": "summe(price)"}}}, "summe"),
        (
            {"type": "postgres", "url": "jdbc:postgresql://h/d", "table": "t", "mode": "upsert", "keys": ["colour"]},
            "no column colour in the rows",
        ),
    ],
)
def test_validate_finds_a_wrong_sink_and_its_line(spark, tmp_path, sink, reason):
    given = pipeline(tmp_path, **{**SECTIONS, "sinks": [TABLE, sink]})
    text = (tmp_path / "pipeline.yaml").read_text().splitlines()
    line = [number for number, each in enumerate(text, 1) if each.startswith("- type:")][-1]
    with pytest.raises(ConfigError) as refused:
        validate.validate(spark, given)
    assert str(refused.value).startswith(f"{tmp_path}/pipeline.yaml:{line}: sinks.1: ")
    assert reason in str(refused.value)
