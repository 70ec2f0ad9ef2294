"""What a table takes of the good rows: conditions that are refused, and demands of a table on its own records only."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.etl

from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.lake import choice  # noqa: E402
from spark_etl.sinks.plans import check_plans  # noqa: E402
from spark_etl.transform import statements  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402

TABLE = {"type": "delta", "path": "none"}
UPSERT = {**TABLE, "mode": "upsert", "keys": ["id"]}
ITEMS = {"derive": {"parts": "array(1, 2)"}, "explode": {"column": "parts", "select": {"part": "item"}}}


@pytest.mark.parametrize(
    ("sink", "sections", "reason"),
    [
        ({**TABLE, "where": "prize > 1"}, {}, "where: [UNRESOLVED_COLUMN"),
        ({**TABLE, "where": "rand() > 0.5"}, {}, f"where: {statements.NOT_REPEATABLE}"),
        ({**TABLE, "where": "part > 1"}, ITEMS, "where: [UNRESOLVED_COLUMN"),
        ({**TABLE, "columns": ["parts"]}, ITEMS, "no column parts in the rows"),
        ({**TABLE, "where": "prize > 1", "partition_by": ["name"]}, {}, "where: [UNRESOLVED_COLUMN"),
        ({**UPSERT, "where": "price > 1"}, {}, "where (mode: upsert: of the keys, _key and _topic only): [UNRES"),
        ({**UPSERT, "where": "id > 1 AND _topic = 'orders'"}, {}, None),
        ({**TABLE, "where": "id > 1 AND price > 1", "columns": ["price", "part"]}, ITEMS, None),
    ],
)
def test_a_choice_that_is_wrong_has_its_line(
    spark: Any, tmp_path: Path, sink: dict[str, Any], sections: dict[str, Any], reason: str | None
) -> None:
    wanted = pipeline(tmp_path, sinks=[{**TABLE, "path": "all"}, sink], **sections)
    if reason is None:
        check_plans(wanted, plan(spark, frame(spark, []), wanted))
        return
    with pytest.raises(ConfigError) as error:
        check_plans(wanted, plan(spark, frame(spark, []), wanted))
    assert str(error.value).removeprefix(f"{tmp_path}/pipeline.yaml:").startswith(f"13: sinks.1: {reason}")


@pytest.mark.parametrize("transform", [[], [{"sql": "SELECT *, substring(name, 1, 1) AS letter FROM input"}]])
def test_a_table_needs_a_folder_for_its_own_records_only(spark: Any, tmp_path: Path, transform: list[Any]) -> None:
    column = "letter" if transform else "name"
    sinks = [{**TABLE, "where": "price > 1", "partition_by": [column]}, {**TABLE, "path": "all"}]
    records = [{"id": 1, "price": 2}, {"id": 2, "price": 2, "name": "a"}, {"id": 3, "price": 1}, {"id": 4}]
    wanted = pipeline(tmp_path, sinks=sinks, transform=transform)
    judged = plan(spark, frame(spark, [json.dumps(record).encode() for record in records]), wanted)
    good = judged.good(judged.rows)
    assert sorted(row["id"] for row in good.collect()) == [2, 3, 4]
    assert [row["_error"]["rule"] for row in judged.refused(judged.rows).collect()] == [column]
    part = choice.chosen(wanted.config.sinks[0], good)  # type: ignore[arg-type]
    assert [row["id"] for row in part.collect()] == [2]


def test_a_deletion_is_in_every_table(spark: Any, tmp_path: Path) -> None:
    sink = {**UPSERT, "where": "id > 1", "columns": ["id"]}
    wanted = pipeline(tmp_path, sinks=[sink], decode=json_decode(null_value="delete", unknown_fields="rescue"))
    judged = plan(spark, frame(spark, [b'{"id": 1}', b'{"id": 2}', None], keys=[b"1", b"2", b"1"]), wanted)
    part = choice.chosen(wanted.config.sinks[0], judged.good(judged.rows))  # type: ignore[arg-type]
    assert part.columns[:2] == ["id", "_deleted"]
    assert "_rescued" not in part.columns
    assert sorted((row["_offset"], row["id"]) for row in part.collect()) == [(1, 2), (2, None)]
