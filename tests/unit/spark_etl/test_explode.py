"""`explode`: each good record becomes the rows of its items, and none is lost or counted twice."""

import json
import re

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.sinks.plans import check_plans  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import pipeline  # noqa: E402

LINE = {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}
SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": LINE}},
}
ORDERS = [
    {"id": 1, "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]},
    {"id": 2, "lines": []},
    {"id": 3},
    {"id": -4, "lines": [{"sku": "c", "n": 3}]},
    {"id": 5, "lines": [{"sku": "d"}]},
]
RULES = [{"name": "positive", "expr": "id > 0"}]
SELECT = {"sku": "item.sku", "total": "item.n * id"}


@pytest.mark.parametrize(
    ("empty", "more", "outcome"),
    [
        ("keep", [(2, None, None, None), (3, None, None, None)], ({("rules", "positive"): 1}, {})),
        ("drop", [], ({("rules", "positive"): 1}, {("explode", "empty"): 2})),
        ("dlq", [], ({("rules", "positive"): 1, ("explode", "empty"): 2}, {})),
    ],
)
def test_items_become_rows(spark, tmp_path, empty, more, outcome):
    wanted = pipeline(tmp_path, SCHEMA, rules=RULES, explode={"column": "lines", "select": SELECT, "empty": empty})
    judged = plan(spark, frame(spark, [json.dumps(each).encode() for each in ORDERS]), wanted)
    good = judged.good(judged.rows)
    assert good.columns == ["id", "sku", "total", "_key", "_topic", "_partition", "_offset", "_timestamp", "_index"]
    found = [(row["id"], row["_index"], row["sku"], row["total"]) for row in good.collect()]
    first, last = [(1, 0, "a", 1), (1, 1, "b", 2)], [(5, 0, "d", None)]
    assert found == [*first, *more, *last]
    counts = judged.counts(judged.rows.agg(*judged.counters).collect()[0].asDict())
    assert (counts.rows, counts.good, counts.written) == (5, len({row[0] for row in found}), len(found))
    assert (counts.refused, counts.dropped) == outcome
    assert counts.balanced


@pytest.mark.parametrize(
    ("explode", "sinks", "reason"),
    [
        ({"column": "none"}, [], "explode.column: no column 'none'"),
        ({"column": "id"}, [], "explode.column: id is bigint, not an array"),
        ({"select": {"ID": "item.n"}}, [], "explode.column: there is a column ID"),
        ({"select": {"n": "item.none"}}, [], "explode.select.n: [FIELD_NOT_FOUND]"),
        ({"select": {"n": "rand()"}}, [], "explode.select.n: "),
        ({}, [{"type": "kafka", "topic": "t", "value": "original"}], "sinks.0.value: value: original is the whole"),
        (
            {},
            [{"type": "delta", "path": "t", "mode": "upsert", "keys": ["id"]}],
            "sinks.0.mode: explode needs mode",
        ),
    ],
)
def test_what_is_wrong_is_named(spark, tmp_path, explode, sinks, reason):
    def checked() -> None:
        chosen = {"column": "lines", "select": SELECT, **explode}
        wanted = pipeline(tmp_path, SCHEMA, explode=chosen, **({"sinks": sinks} if sinks else {}))
        check_plans(wanted, plan(spark, frame(spark, []), wanted))

    with pytest.raises(ConfigError) as refused:
        checked()
    assert re.sub(r"^\S+: ", "", str(refused.value)).startswith(reason)
