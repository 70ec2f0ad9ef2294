"""Joins, derived columns, rules, dedupe and SQL statements: exact rows, and refused rows survive every step."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.etl

from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import Observation  # noqa: E402
from spark_etl.config import Pipeline  # noqa: E402
from spark_etl.errors import ConfigError, TableError  # noqa: E402
from spark_etl.judgement import Judged, plan  # noqa: E402
from spark_etl.transform import statements  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402

TIMED = json_decode(timestamp={"field": "at", "watermark": "10 minutes"})


def record(identity: int, name: str | None = "Ann", price: float | None = 1.5, minute: int = 0) -> bytes:
    at = f"2026-01-31T10:{minute:02}:00Z"
    return json.dumps({"id": identity, "name": name, "price": price, "at": at}).encode()


BAD = b"bad"


def planned(spark, folder: Path, values, **sections) -> Judged:
    return plan(spark, frame(spark, values), pipeline(folder, **sections))


def good(judged: Judged, *names: str) -> list[tuple]:
    rows = sorted(judged.good(judged.rows).collect(), key=lambda row: row["_offset"])
    return [tuple(row[name] for name in names) for row in rows]


def refused(judged: Judged) -> list[tuple]:
    rows = sorted(judged.refused(judged.rows).collect(), key=lambda row: row["_offset"])
    return [(row["_offset"], row["_error"]["stage"], row["_error"]["rule"], bytes(row["_raw_value"])) for row in rows]


def counted(judged: Judged):
    seen = Observation()
    judged.rows.observe(seen, *judged.counters).collect()
    return judged.counts(seen.get)


def refusal(spark, folder: Path, **sections) -> str:
    with pytest.raises(ConfigError) as error:
        planned(spark, folder, [], **sections)
    return str(error.value).removeprefix(f"{folder}/pipeline.yaml:")


def test_every_outcome_of_a_rule(spark, tmp_path):
    rules = [
        {"name": "noted", "expr": "price < 5", "on_violation": "keep"},
        {"name": "named", "expr": "name IS NOT NULL", "on_violation": "drop"},
        {"name": "short", "expr": "length(name) < 4", "on_violation": "keep"},
        {"name": "positive", "expr": "id > 0"},
        {"name": "small", "expr": "id < 100", "on_violation": "fail"},
    ]
    values = [record(1), record(2, price=9), record(3, None), record(-4), record(500), BAD, record(6, "Anna", None)]
    judged = planned(spark, tmp_path, values, rules=rules)
    assert good(judged, "_offset", "id") == [(0, 1), (1, 2), (6, 6)]
    assert refused(judged) == [
        (3, "rules", "positive", values[3]),
        (4, "rules", "small", values[4]),
        (5, "decode", "json", BAD),
    ]
    found = counted(judged)
    assert (found.rows, found.good, found.balanced) == (7, 3, True)
    assert found.refused == {("rules", "positive"): 1, ("rules", "small"): 1, ("decode", "json"): 1}
    assert found.dropped == {("rules", "named"): 1}
    assert found.kept == {("rules", "noted"): 2, ("rules", "short"): 1}
    assert "_noted" not in judged.columns


def test_an_expression_that_is_wrong_is_named_with_its_line(spark, tmp_path):
    derive = {"half": "price / 2", "other": "prise / 2"}
    assert refusal(spark, tmp_path, derive=derive).startswith(
        "16: derive.other: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name "
    )
    rules = [{"name": "one", "expr": "id >"}]
    assert refusal(spark, tmp_path, rules=rules).startswith("16: rules.0.expr: [PARSE_SYNTAX_ERROR]")


def airlines(folder: Path, **more) -> dict:
    (folder / "airlines.csv").write_text("code,full,seats\nAnn,Ann Air,10\nBob,Bob's,20\n")
    return {
        "name": "airlines",
        "path": str(folder / "airlines.csv"),
        "format": "csv",
        "schema": "code STRING, full STRING, seats INT",
        "on": {"name": "code"},
        "select": {"airline": "full", "double_seats": "seats * 2"},
        **more,
    }


JOINED = [record(1), record(2, "Cid"), record(3, None), record(4, "Bob"), BAD]


def test_a_join_keeps_what_has_no_match(spark, tmp_path):
    judged = planned(spark, tmp_path, JOINED, join=[airlines(tmp_path)], derive={"shout": "upper(airline)"})
    assert good(judged, "id", "airline", "double_seats", "shout") == [
        (1, "Ann Air", 20, "ANN AIR"),
        (2, None, None, None),
        (3, None, None, None),
        (4, "Bob's", 40, "BOB'S"),
    ]
    assert refused(judged) == [(4, "decode", "json", BAD)]
    assert judged.columns[:7] == ("id", "name", "price", "at", "airline", "double_seats", "shout")


def streamed(spark, folder: Path, values, **sections) -> tuple[Judged, Callable[[], list[tuple]]]:
    """Return the plan of a stream, and what runs it: (id, airline) of each good row."""
    stored = frame(spark, values)
    stored.write.parquet(str(folder / "input"))
    judged = plan(
        spark, spark.readStream.schema(stored.schema).parquet(str(folder / "input")), pipeline(folder, **sections)
    )
    rows: list[tuple] = []

    def collect(batch, _number) -> None:
        judged.check_tables()
        rows.extend(tuple(row[name] for name in ("id", "airline")) for row in judged.good(batch).collect())

    def run() -> list[tuple]:
        query = judged.rows.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query.option("checkpointLocation", str(folder / "c")).start().awaitTermination()
        return sorted(rows)

    return judged, run


def test_a_table_that_gets_a_second_row_for_a_key_multiplies_no_record(spark, tmp_path):
    """The newest version of a Delta table is read by each batch."""
    path = str(tmp_path / "table")
    spark.createDataFrame([("Ann", "Ann Air")], "code STRING, full STRING").write.format("delta").save(path)
    join = {"name": "airlines", "path": path, "format": "delta", "on": {"name": "code"}, "select": {"airline": "full"}}
    _, run = streamed(spark, tmp_path, [record(1)], join=[join])
    more = spark.createDataFrame([("Ann", "Second Ann")], "code STRING, full STRING")
    more.write.format("delta").mode("append").save(path)
    with pytest.raises(PySparkException, match="join airlines: the table has several rows for one key"):
        run()


def exchange(table: Path, content: str) -> None:
    table.with_suffix(".new").write_text(content)
    table.with_suffix(".new").rename(table)


def test_a_table_that_is_exchanged_is_read_whole_or_not_at_all(spark, tmp_path, monkeypatch):
    """Spark would read as many bytes as the old file had. The path is relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    join = airlines(tmp_path, path="airlines.csv")
    judged, run = streamed(spark, tmp_path, [record(1), record(2, "Bob")], join=[join])
    exchange(tmp_path / "airlines.csv", "code,full,seats\nAnn,The Air Line of Ann and others,10\nBob,Bob's,20\n")
    with pytest.raises(PySparkException, match=r"TableError: join airlines: .*airlines.csv was exchanged since"):
        run()
    static = plan(spark, frame(spark, [record(1), record(2, "Bob")]), pipeline(tmp_path, join=[join]))
    exchange(tmp_path / "airlines.csv", "code,full,seats\nBob,B,10\n")
    assert good(static, "id", "airline") == [(1, "The Air Line of Ann and others"), (2, "Bob's")]
    static.check_tables()
    (tmp_path / "airlines.csv").unlink()
    with pytest.raises(TableError):
        judged.check_tables()


@pytest.mark.parametrize(
    ("unmatched", "letters", "dropped"), [("dlq", [1, 2, 4], {}), ("drop", [4], {("join", "airlines"): 2})]
)
def test_a_join_can_refuse_or_drop_what_has_no_match(spark, tmp_path, unmatched, letters, dropped):
    judged = planned(spark, tmp_path, JOINED, join=[airlines(tmp_path, unmatched=unmatched)])
    assert good(judged, "id", "airline") == [(1, "Ann Air"), (4, "Bob's")]
    assert [letter[0] for letter in refused(judged)] == letters
    assert counted(judged).dropped == dropped
    assert counted(judged).balanced


@pytest.mark.parametrize("form", ["json", "parquet", "delta"])
def test_tables_of_other_formats(spark, tmp_path, form):
    path = str(tmp_path / "table")
    spark.createDataFrame([("Ann", 10)], "code STRING, seats INT").write.format(form).save(path)
    table = {"name": "t", "path": path, "format": form, "on": {"name": "code"}, "select": {"seats": "seats"}}
    if form == "json":
        table["schema"] = "code STRING, seats INT"
    judged = planned(spark, tmp_path, [record(1), record(2, "Bob")], join=[table])
    assert good(judged, "id", "seats") == [(1, 10), (2, None)]


def test_a_join_on_a_derived_column(spark, tmp_path):
    derive = {"short": "substring(name, 1, 3)", "label": "concat(short, ' ', airline)"}
    join = airlines(tmp_path, on={"short": "code"})
    judged = planned(spark, tmp_path, [record(1, "Annabel"), record(2, "Bo")], join=[join], derive=derive)
    assert good(judged, "id", "airline", "label") == [(1, "Ann Air", "Ann Ann Air"), (2, None, None)]


def test_a_join_on_two_columns_and_a_time(spark, tmp_path):
    (tmp_path / "w.csv").write_text("name,hour,t\nAnn,2026-01-31T10:05:00Z,7.5\nBob,2026-01-31T10:05:00Z,8.5\n")
    table = {
        "name": "weather",
        "path": str(tmp_path / "w.csv"),
        "format": "csv",
        "schema": "name STRING, hour TIMESTAMP, t DOUBLE",
        "on": {"name": "name", "at": "hour"},
        "select": {"temperature": "t"},
    }
    values = [record(1, minute=5), record(2, "Bob", minute=5), record(3, minute=6)]
    assert good(planned(spark, tmp_path, values, join=[table]), "id", "temperature") == [(1, 7.5), (2, 8.5), (3, None)]


def test_what_is_wrong_with_a_join(spark, tmp_path):
    table = airlines(tmp_path)
    place = "15: join.0: "
    assert refusal(spark, tmp_path, join=[{**table, "on": {"id": "code"}}]) == (
        place + "id is bigint, code of airlines is string"
    )
    assert refusal(spark, tmp_path, join=[{**table, "on": {"ident": "code"}}]).startswith(
        "20: join.0.on.ident: no column"
    )
    assert "[UNRESOLVED_COLUMN" in refusal(spark, tmp_path, join=[{**table, "select": {"x": "fool"}}])
    (tmp_path / "airlines.csv").write_text("code,full,seats\nAnn,a,1\nAnn,b,2\n,c,3\n,d,4\n")
    assert refusal(spark, tmp_path, join=[table]) == place + "airlines has 2 rows for code = Ann"
    (tmp_path / "airlines.csv").unlink()
    assert "Path does not exist" in refusal(spark, tmp_path, join=[table])


def test_duplicates_of_a_static_frame(spark, tmp_path):
    dedupe = {"keys": ["id"], "within": "1 hour"}
    values = [record(1), record(2), record(1, "later"), BAD, BAD, record(2)]
    judged = planned(spark, tmp_path, values, decode=TIMED, dedupe=dedupe)
    assert good(judged, "_offset", "id", "name") == [(0, 1, "Ann"), (1, 2, "Ann")]
    assert [letter[0] for letter in refused(judged)] == [3, 4]


def test_duplicates_of_a_stream(spark, tmp_path):
    """Duplicates over batches go, late records go, and refused records stay, however alike they are."""
    sections = {"decode": TIMED, "dedupe": {"keys": ["id"], "within": "10 minutes"}}
    rules = [{"name": "positive", "expr": "id > 0"}]
    pipe = pipeline(tmp_path, rules=rules, **sections)
    folder = tmp_path / "input"
    batches = [
        [record(1, minute=0), record(1, minute=1), BAD, record(-1, minute=59)],
        [record(1, minute=2), record(2, minute=30), BAD, BAD],
        [record(3, minute=10), record(4, minute=25), record(2, minute=31)],
    ]
    schema = frame(spark, []).schema
    rows = []

    def collect(batch, _number) -> None:
        rows.append([(row["id"], row["_error"]["rule"] if row["_error"] else None) for row in batch.collect()])

    folder.mkdir()
    for values in batches:
        frame(spark, values).coalesce(1).write.mode("append").parquet(str(folder))
        judged = plan(spark, spark.readStream.schema(schema).parquet(str(folder)), pipe)
        writer = judged.rows.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    found = [sorted(batch, key=str) for batch in rows if batch]
    assert found == [
        [(-1, "positive"), (1, None), (None, "json")],
        [(2, None), (None, "json"), (None, "json")],
        [(4, None)],  # 3 came 20 minutes after minute 30 was seen; 2 was seen
    ]


SQL_VALUES = [record(1), record(2, "Bob", 7), BAD, record(3, None, None), record(-4)]
POSITIVE = [{"name": "positive", "expr": "id > 0"}]


@pytest.mark.parametrize(
    ("texts", "columns", "rows"),
    [
        (["SELECT * FROM input"], ["id", "name", "price", "at"], [(1,), (2,), (3,)]),
        (["SELECT id FROM input WHERE price > 1"], ["id"], [(1,), (2,)]),
        (["SELECT price * 2 AS twice, id FROM input"], ["twice", "id"], [(3.0, 1), (14.0, 2), (None, 3)]),
        (["SELECT *, id + 1 AS next FROM input", "SELECT next FROM input WHERE next < 4"], ["next"], [(2,), (3,)]),
        (["SELECT i.id, i._offset FROM input AS i WHERE i.name = 'Bob'"], ["id"], [(2,)]),
        (
            ["WITH a AS (SELECT id AS x FROM input), b AS (SELECT x FROM a WHERE x > 1) SELECT * FROM b"],
            ["x"],
            [(2,), (3,)],
        ),
        (["SELECT y FROM (SELECT id AS y, name FROM input) WHERE name IS NULL"], ["y"], [(3,)]),
        (["SELECT * EXCEPT (price, at) FROM input WHERE false"], ["id", "name"], []),
        (
            ["SELECT CASE WHEN id > 1 THEN 'many' ELSE 'one' END AS n FROM input"],
            ["n"],
            [("one",), ("many",), ("many",)],
        ),
        (
            ["SELECT key, value, _topic FROM (SELECT id AS key, name AS value FROM input)"],
            ["key", "value"],
            [(1, "Ann"), (2, "Bob"), (3, None)],
        ),
    ],
)
def test_statements(spark, tmp_path, texts, columns, rows):
    sections = {"transform": [{"sql": sql} for sql in texts], "rules": POSITIVE}
    judged = planned(spark, tmp_path, SQL_VALUES, **sections)
    assert list(judged.columns) == [*columns, "_key", "_topic", "_partition", "_offset", "_timestamp"]
    chosen = columns if len(columns) < 4 else ["id"]
    assert good(judged, *chosen) == rows
    assert refused(judged) == [(2, "decode", "json", BAD), (4, "rules", "positive", SQL_VALUES[4])]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT count(*) AS n FROM input", "[MISSING_GROUP_BY]"),
        ("SELECT name, sum(price) AS s FROM input GROUP BY name", "not Aggregate (aggregates belong to a sink)"),
        ("SELECT DISTINCT id FROM input", "not Distinct (use dedupe)"),
        ("SELECT id FROM input ORDER BY id", "not Sort (a stream has no order of all rows)"),
        ("SELECT id FROM input LIMIT 3", "not GlobalLimit (a stream has no order of all rows)"),
        ("SELECT explode(array(1, 2)) AS x FROM input", "not Generate (a record stays one row)"),
        ("SELECT row_number() OVER (ORDER BY id) AS n FROM input", "not Window (a stream has no order of all rows)"),
        ("SELECT a.id FROM input a JOIN input b ON a.id = b.id", "not Join (use join)"),
        ("SELECT id FROM input UNION ALL SELECT id FROM input", "not Union"),
        ("SELECT id FROM other", "other: a statement reads from input only; use join for a table"),
        ("SELECT 1 AS one", "not OneRowRelation"),
        ("SELECT *, 1 AS _offset FROM input", "the statement makes another _offset"),
        ("SELECT * EXCEPT (_offset) FROM input", "the statement loses _offset"),
        ("SELECT id, id AS ID FROM input", "the statement makes two columns of one name"),
        ("SELECT id AS _mine FROM input", "_mine: a column's name starts with a letter"),
        ("SELECT nothing FROM input", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("SELECT id FROM input WHERE id IN (SELECT id FROM input)", "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("SELECT id FROM input WHERE (", "[PARSE_SYNTAX_ERROR]"),
        ("DROP TABLE input", "only SELECT, WHERE and WITH are possible, not DropTable"),
    ],
)
def test_statements_that_are_refused(spark, sql, reason):
    rows = spark.sql("SELECT 1 AS id, 'Ann' AS name, 1.5 AS price, 0 AS _offset, '' AS _error")
    with pytest.raises(ConfigError) as error:
        statements.applied(spark, rows, sql, ("_offset", "_error"), "_error IS NOT NULL")
    assert reason in str(error.value)


def test_a_statement_that_is_refused_is_named_with_its_line(spark, tmp_path):
    found = refusal(spark, tmp_path, transform=[{"sql": "SELECT * FROM input"}, {"sql": "SELECT 1 AS one"}])
    assert found == "16: transform.1.sql: only SELECT, WHERE and WITH are possible, not OneRowRelation"


def test_a_deletion_passes_every_statement(spark, tmp_path):
    judged = plan(
        spark,
        frame(spark, [record(1), None, record(2)]),
        pipeline(
            tmp_path,
            decode=json_decode(null_value="delete"),
            transform=[{"sql": "SELECT id FROM input WHERE id > 1"}],
            sinks=[{"type": "delta", "path": "none", "mode": "upsert", "keys": ["_key"]}],
        ),
    )
    assert good(judged, "_offset", "id", "_deleted", "_key") == [(1, None, True, "k1"), (2, 2, False, "k2")]
    assert judged.columns[:2] == ("id", "_deleted")


def test_a_partition_column_that_a_statement_makes(spark, tmp_path):
    sections = {
        "transform": [{"sql": "SELECT id, substring(name, 1, 1) AS letter FROM input"}],
        "sinks": [{"type": "delta", "path": "none", "partition_by": ["letter"]}],
    }
    judged = planned(spark, tmp_path, SQL_VALUES, **sections)
    assert good(judged, "id", "letter") == [(1, "A"), (2, "B"), (-4, "A")]
    assert refused(judged) == [(2, "decode", "json", BAD), (3, "partition", "letter", SQL_VALUES[3])]
    sections["sinks"][0]["partition_by"] = ["later"]
    assert "partition_by: no column 'later'" in refusal(spark, tmp_path, **sections)


IMAGE = {"type": ["object", "null"], "properties": {"id": {"type": "integer"}, "day": {"type": ["string", "null"]}}}
EVENT = {
    "type": "object",
    "properties": {"op": {"type": "string"}, "before": IMAGE, "after": IMAGE},
}
WRITTEN, DELETED, NO_DAY, MOVED = (
    json.dumps({"op": op, "before": before, "after": after}).encode()
    for op, before, after in (
        ("c", None, {"id": 1, "day": "d1"}),
        ("d", {"id": 1, "day": "d1"}, None),
        ("c", None, {"id": 2, "day": None}),
        ("u", {"id": 3, "day": "d1"}, None),
    )
)


@pytest.mark.parametrize("payload", [False, True])
def test_a_partition_column_of_change_events(spark, tmp_path, payload):
    """The folders' column is a field of `after`; a deletion needs none."""
    schema = {"type": "object", "properties": {"payload": EVENT}} if payload else EVENT
    values = [WRITTEN, DELETED, NO_DAY, MOVED]
    values = [b'{"payload": ' + value + b"}" if payload else value for value in values]
    table = {"type": "delta", "path": "none", "mode": "upsert", "keys": ["id"], "envelope": "debezium"}

    def events(column: str) -> Pipeline:
        return pipeline(tmp_path, schema, sinks=[{**table, "partition_by": [column]}])

    judged = plan(spark, frame(spark, values), events("day"))
    assert good(judged, "_offset") == [(0,), (1,)]
    assert refused(judged) == [(2, "partition", "day", values[2]), (3, "partition", "day", values[3])]
    with pytest.raises(ConfigError, match="partition_by: no column 'month'"):
        plan(spark, frame(spark, values), events("month"))


@pytest.mark.parametrize(
    "sink", [{"type": "delta", "path": "none"}, {"type": "postgres", "url": "jdbc:postgresql://h/d", "table": "t"}]
)
def test_a_change_event_that_changes_no_row_is_a_letter(spark, tmp_path, sink):
    """Such as one without an op, which is no deletion, or an emptied source, of which nothing else would tell."""
    row, keyless = {"id": 1, "day": "d"}, {"id": None, "day": "d"}
    nothing = [
        ({}, "the change event has no op"),
        ({"after": row}, "the change event has no op"),
        ({"op": "t"}, "the source's table was emptied (op t): this one keeps its rows"),
        ({"op": "x", "after": row}, "the op of the change event is x"),
        ({"op": "u", "before": row}, "the change event has no row"),
        ({"op": "c", "after": keyless}, "the row of the change event has no id"),
        ({"op": "d", "before": keyless}, "the deletion has no id"),
    ]
    changes = [{"op": "r", "after": row}, {"op": "d", "before": row}, {"op": "d"}, {"op": "m"}, None]
    values = [
        None if value is None else json.dumps(value).encode() for value in [*(event for event, _ in nothing), *changes]
    ]
    keys = [*(b"k" for _ in nothing), b"1", b"1", b"1", b"m", b"1"]
    table = {**sink, "mode": "upsert", "keys": ["id"], "envelope": "debezium"}
    judged = plan(
        spark,
        frame(spark, values, keys),
        pipeline(tmp_path, EVENT, decode=json_decode(null_value="delete"), sinks=[table]),
    )
    assert good(judged, "_offset") == [(number,) for number in range(len(nothing), len(values))]
    rows = sorted(judged.refused(judged.rows).collect(), key=lambda row: row["_offset"])
    assert [tuple(row["_error"]) for row in rows] == [("decode", "change", message) for _, message in nothing]
    assert counted(judged).refused == {("decode", "change"): len(nothing)}


@pytest.mark.parametrize(("form", "word"), [("json", "MapInArrow"), ("csv", "from_csv(")])
def test_a_record_is_parsed_once(spark, tmp_path, form, word):
    """No filter is pushed below the decoding, where it would repeat the parsing for each mention of a column."""
    sections = {
        "decode": {"format": form, "schema": "schema.json"},
        "derive": {"half": "price / 2"},
        "rules": POSITIVE,
        "join": [airlines(tmp_path)],
        "transform": [{"sql": "SELECT * FROM input WHERE half > 0"}],
    }
    judged = planned(spark, tmp_path, SQL_VALUES, **sections)
    for rows in (judged.good(judged.rows).where("id > 3 AND airline <> 'x'"), judged.refused(judged.rows)):
        assert rows._jdf.queryExecution().executedPlan().toString().count(word) == 1


def test_raw_columns_stay_when_a_sink_writes_the_original(spark, tmp_path):
    sinks = [{"type": "kafka", "topic": "copy", "value": "original"}]
    judged = planned(spark, tmp_path, [record(1)], sinks=sinks)
    (row,) = judged.good(judged.rows, raw=True).collect()
    assert (bytes(row["_raw_key"]), bytes(row["_raw_value"])) == (b"k0", record(1))
    (row,) = planned(spark, tmp_path, [record(1)]).rows.collect()
    assert (row["_raw_key"], row["_raw_value"], row["_raw_headers"]) == (None, None, None)
