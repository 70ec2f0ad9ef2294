"""docs/etl.md: its pipeline and cases work as they are, and its table has every option with a test that exists."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from spark_etl.commands.cases import load_cases
from spark_etl.config import Pipeline, load
from spark_etl.config.editor_schema import options, schema

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "etl.md").read_text(encoding="utf-8")
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
_ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.+?) \| \[`(\w+)`\]\(\.\./(tests/\S+\.py)\) \|$", re.MULTILINE)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the files of the guide."""
    for name, content in _FILE.findall(GUIDE):
        (tmp_path / name).write_text(content)
    return tmp_path


def the_pipeline(folder: Path) -> Pipeline:
    return load(folder / "orders.yaml", {})


def test_ten_lines_are_a_pipeline(written):
    assert len((written / "orders.yaml").read_text().splitlines()) == 10
    assert the_pipeline(written).config.name == "orders"


def test_the_example_has_the_files_of_the_guide():
    example = {path.name: path.read_text() for path in (ROOT / "examples" / "etl").iterdir()}
    assert example == dict(_FILE.findall(GUIDE))


@pytest.mark.etl
def test_the_cases_of_the_guide_pass(written, spark):
    from spark_etl.commands.test import differences, outcomes_of

    cases = load_cases(written / "orders.test.yaml")
    outcomes = outcomes_of(spark, the_pipeline(written), cases)
    assert [differences(case, outcome) for case, outcome in zip(cases, outcomes, strict=True)] == [[], []]


@pytest.mark.etl
@pytest.mark.timeout(600)
@pytest.mark.parametrize("with_schemas", [False, True], ids=["payload only", "with schemas"])
def test_the_example_reads_events_of_debezium(written, spark, tmp_path, with_schemas):
    """Events that Debezium 3.3.1 wrote of a PostgreSQL table, the last one with an unchanged value."""
    from spark_etl.judgement import plan
    from spark_etl.lake import LakeTable
    from support.kafka_frames import frame

    lines = (Path(__file__).parent / "debezium_events.jsonl").read_text(encoding="utf-8").splitlines()
    events = [(each["key"], each["value"]) for each in map(json.loads, lines)]
    if with_schemas:
        for name in ("customers.json", "customers.key.json"):
            inner = json.loads((written / name).read_text())
            outer = {"type": "object", "required": ["payload"], "properties": {"payload": inner}}
            (written / name).write_text(json.dumps(outer))

    def text(part: object) -> bytes | None:
        whole = {"schema": {"type": "struct", "fields": []}, "payload": part} if with_schemas else part
        return None if part is None else json.dumps(whole).encode()

    expected = {}
    for key, value in events:
        if value is None or value["op"] == "d":
            expected.pop(key["id"], None)
        else:
            row = value["after"]
            kept = expected.get(row["id"], (None, None))[1]
            data = kept if row["data"] == "__debezium_unavailable_value" else row["data"]
            expected[row["id"]] = (row["name"], data)
    assert expected[3] == ("toast", '{"a": 3}')
    pipeline = load(written / "customers.yaml", {})
    keys, values = ([text(part) for part in parts] for parts in zip(*events, strict=True))
    plans = [
        plan(spark, frame(spark, values[at], keys[at], first=at.start or 0), pipeline)
        for at in (slice(0, 12), slice(12, None))
    ]
    with LakeTable.opened(spark, pipeline.config.table, plans[0].good(plans[0].rows).schema) as table:
        for number, judged in enumerate(plans):
            assert judged.refused(judged.rows).count() == 0
            table.write(judged.good(judged.rows), "app", number, lambda _: {})
    stored = spark.read.format("delta").load(str(tmp_path / "build/etl/lake/customers")).collect()
    assert {row["id"]: (row["name"], row["data"]) for row in stored} == expected


def test_the_table_has_every_option_and_its_default():
    shown = {option: default for option, default, *_ in _ROW.findall(GUIDE)}
    assert list(shown) == list(options())
    for option, default in options().items():
        if default is ... or (isinstance(default, dict) and default):
            assert shown[option] == "", option
        elif default is None or default in ([], {}):
            assert shown[option] == "(none)", option
        else:
            assert shown[option] == f"`{default}`", option


def marks(path: Path) -> dict[str, str]:
    """Return the marks of each test of a file, with those of all its tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    of_all = [
        ast.unparse(each.value)
        for each in tree.body
        if isinstance(each, ast.Assign) and "pytestmark" in map(ast.unparse, each.targets)
    ]
    tests = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {test.name: " ".join([*of_all, *map(ast.unparse, test.decorator_list)]) for test in tests}


def test_every_option_has_a_test_that_exists():
    for option, _, _, name, file in _ROW.findall(GUIDE):
        path = ROOT / file
        assert path.exists(), f"{option}: {file}"
        assert name in marks(path), f"{option}: {name}"


def test_no_option_has_only_a_test_of_the_longer_suites():
    for option, _, _, name, file in _ROW.findall(GUIDE):
        assert not re.search(r"\b(slow|compose|conformance)\b", marks(ROOT / file)[name]), f"{option}: {name}"


def test_the_schema_is_that_of_the_file():
    document = schema()
    assert document["additionalProperties"] is False
    assert document["required"] == ["apiVersion", "name", "checkpoint", "source", "decode", "sinks", "dead_letter"]
    variable = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}$"}
    port = document["$defs"]["MetricsConfig"]["properties"]["port"]
    assert port["anyOf"] == [{"maximum": 65535, "minimum": 0, "type": "integer"}, variable]
    flights = yaml.safe_load((ROOT / "spark" / "pipelines" / "flights.yaml").read_text())
    assert set(flights) <= set(document["properties"])
    assert re.match(variable["pattern"], flights["metrics"]["port"])
    assert json.loads((ROOT / "docs" / "etl.schema.json").read_text(encoding="utf-8")) == document
