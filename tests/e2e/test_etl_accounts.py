"""Each record has one outcome in each sink, also after a driver died, and each row and letter is there once."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(1200)]

from confluent_kafka.admin import NewTopic  # noqa: E402
from millrace_demo.topics import read_all  # noqa: E402
from spark_etl.checkpoint import batches  # noqa: E402
from spark_etl.counts import OUTCOMES  # noqa: E402
from spark_etl.errors import RunError  # noqa: E402
from spark_etl.run.accounts import Totals  # noqa: E402
from support.etl_runs import SCHEMA, Etl, broker, etl  # noqa: E402
from support.postgres import PASSWORD, USER, PostgresServer, postgres  # noqa: E402

__all__ = ["broker", "etl", "postgres"]

DIES = "the driver dies here"
NOW = datetime.now(UTC)  # wall clock: that of the broker's records
HOURS = timedelta(hours=3)
AHEAD = json.dumps({"id": 9, "at": "2099-01-01T00:00:00Z"})
DEDUPE = "dedupe: {keys: [id], within: 1 hour}"


def timed(late: str = "dlq") -> str:
    return f", timestamp: {{field: at, watermark: 10 minutes, late: {late}}}"


def event(number: int, ago: timedelta = timedelta(), kind: str = "k") -> str:
    return json.dumps({"id": number, "kind": kind, "at": (NOW - ago).isoformat()})


def table(etl: Etl, server: PostgresServer, definition: str, **options: str) -> str:
    """Create a table with a constraint, and return its sink."""
    server.run(f"CREATE TABLE {etl.name} ({definition})")
    given = {"type": "postgres", "table": etl.name, "url": f'"{server.url}"', "user": USER, **options}
    return f"- {{{', '.join(f'{name}: {text}' for name, text in given.items())}, password: {PASSWORD}}}"


@pytest.fixture
def events(etl: Etl) -> Etl:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "at": {"type": "string", "format": "date-time"}}}
    (etl.folder / "schema.json").write_text(json.dumps(schema))
    return etl


def letters(etl: Etl) -> list[tuple[str, str, int | str]]:
    """Return stage, rule and value of each letter, or the id in it, sorted."""
    found = []
    for each in read_all(etl.servers, etl.letters):
        headers = {name: value.decode() for name, value in each.headers()}
        value = (each.value() or b"").decode()
        short = f"id {json.loads(value).get('id')}" if value.startswith("{") else value
        found.append((headers["__etl.errors.stage"], headers["__etl.errors.rule"], short))
    return sorted(found)


def numbers(*values: int, **apart: int) -> dict[str, int]:
    return {**dict(zip(OUTCOMES, values, strict=True)), **apart}


def dies_with_all_outputs_written(etl: Etl, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    """Run until a batch is in every output, and not marked so: the next try counts what earlier ones wrote."""

    real = batches.Batches.finished

    def dies(*arguments: Any, **named: Any) -> None:
        if not named:  # of windows
            raise RunError(DIES)
        real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(batches.Batches, "finished", dies)
        with pytest.raises(RunError, match=DIES):
            etl.run(**given)


def test_records_have_one_outcome_in_each_sink_after_a_driver_died(
    events: Etl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock of one event is wrong: no later one is late for it."""
    rows, windows = f"{events.name}.rows", f"{events.name}.windows"
    narrow = NewTopic(rows, 1, 1, config={"max.message.bytes": "8192"})
    events.admin.create_topics([narrow])[rows].result(30)
    aggregate = "{window: 1 minute, select: {n: count(*)}}"
    outputs = [
        f"- {{type: kafka, topic: {rows}}}",
        table(events, postgres, "id bigint CHECK (id <> 7)", columns="[id]"),
        f"- {{type: kafka, topic: {windows}, aggregate: {aggregate}}}",
    ]
    where = "transform: [{sql: \"SELECT * FROM input WHERE kind <> 'none'\"}]"
    sections = f"rules: [{{name: small, expr: id < 90, on_violation: drop}}]\n{where}\n{DEDUPE}\n"
    given: dict[str, Any] = {"decode": timed(), "sink": "\n  ".join(outputs)}

    def run(more: str = "") -> Totals:
        return events.run(**given, sections=sections + more)

    events.produce(event(1), event(2), event(1), AHEAD, "broken")
    totals = run()
    assert (totals.rows_in, totals.rows_out, totals.rows_dlq, totals.rows_duplicates) == (5, 2, 2, 1)

    events.produce(event(3), event(2), event(5, HOURS), "bad", event(6, kind="none"), event(97), event(7))
    events.produce(event(8, kind="x" * 9000), event(4))
    dies_with_all_outputs_written(events, monkeypatch, **given, sections=sections)
    events.produce(event(10), event(11, HOURS))
    run("warn_refused: 40%")

    warnings = [each.fields for each in caplog.records if each.getMessage() == "many records refused"]
    assert [(each["share"], each["refused"]) for each in warnings] == [(0.5, {"dedupe.late": 1})]
    assert events.metadata()["late"] == 1
    accounted = events.accounted()
    groups = accounted[f"kafka:{windows}"]
    assert (groups.pop("groups") in (2, 3), groups.pop("groups_dlq")) == (True, 0)  # one for each batch of the windows
    assert accounted == {
        f"delta:{events.folder}/table": numbers(16, 7, 3, 2, 2, 2),
        f"kafka:{rows}": numbers(16, 6, 4, 2, 2, 2),
        f"postgres:127.0.0.1:{postgres.port}/postgres/{events.name}": numbers(16, 6, 4, 2, 2, 2),
        f"kafka:{windows}": numbers(16, 7, 3, 2, 2, 2),
    }
    assert events.ids() == [1, 2, 3, 4, 7, 8, 10]
    assert sorted(json.loads(value or "")["id"] for _, value in events.read(rows)) == [1, 2, 3, 4, 7, 10]
    assert postgres.rows(f"SELECT id FROM {events.name} ORDER BY 1") == [
        (str(number),) for number in (1, 2, 3, 4, 8, 10)
    ]
    last = {key: json.loads(value or "")["n"] for key, value in events.read(windows)}  # of one partition
    assert sum(last.values()) == 7
    assert letters(events) == [
        ("decode", "event_time", "id 9"),
        ("decode", "json", "bad"),
        ("decode", "json", "broken"),
        ("dedupe", "late", "id 11"),
        ("dedupe", "late", "id 5"),
        ("sink", "constraint", ""),
        ("sink", "late", "id 11"),
        ("sink", "late", "id 5"),
        ("sink", "too_large", ""),
    ]
    refused = {"pipeline": events.name, "check_stage": "sink", "rule": "late"}
    assert (events.metrics.registry.get_sample_value("millrace_etl_refused_total", refused) or 0) >= 1


CHANGES = [
    {"op": "c", "after": {"id": 1, "kind": "a"}},
    {"op": "c", "after": {"id": 2, "kind": "b"}},
    {"op": "m"},  # a message, which changes no row
    {"op": "u", "before": {"id": 1, "kind": "a"}, "after": {"id": 1, "kind": "c"}},
    {"op": "c", "after": {"id": 3, "kind": "bad"}},
    {"op": "d", "before": {"id": 2, "kind": "b"}},
]
ROWS = [{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}, {"id": 1, "kind": "c"}, {"id": 3, "kind": "bad"}]


@pytest.mark.parametrize(
    ("records", "options", "good", "rest"),
    [(ROWS, {}, 4, {1: "c", 2: "b"}), (CHANGES, {"envelope": "debezium"}, 6, {1: "c"})],
    ids=["rows", "changes"],
)
def test_records_of_last_rows_have_one_outcome_after_a_driver_died(
    etl: Etl,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    records: list[dict[str, Any]],
    options: dict[str, str],
    good: int,
    rest: dict[int, str],
) -> None:
    """Every output has the batch: its counts are those of the commit and of the rows in PostgreSQL."""
    if options:
        row = {**SCHEMA, "type": ["object", "null"]}
        properties = {"op": {"type": "string"}, "before": row, "after": row}
        (etl.folder / "schema.json").write_text(json.dumps({"type": "object", "properties": properties}))
    last = {"mode": "upsert", "keys": "[id]", **options}
    named = ", ".join(f"{name}: {text}" for name, text in last.items())
    sink = table(etl, postgres, "id bigint PRIMARY KEY, kind text CHECK (kind <> 'bad')", **last)
    rule = "rules: [{name: small, expr: id < 90, on_violation: drop}]" if not options else ""
    delta = f"- {{type: delta, path: {etl.place}/table, {named}}}"
    given: dict[str, Any] = {"table": False, "sink": f"{delta}\n  {sink}", "sections": rule}
    etl.produce(*map(json.dumps, records), "broken", partitions=1)
    if rule:
        etl.produce(99)
    dies_with_all_outputs_written(etl, monkeypatch, **given)
    etl.run(**given)
    dropped = 1 if rule else 0
    read = good + 1 + dropped
    assert etl.accounted() == {
        f"delta:{etl.folder}/table": numbers(read, good, 1, dropped, 0, 0),
        f"postgres:127.0.0.1:{postgres.port}/postgres/{etl.name}": numbers(read, good - 1, 2, dropped, 0, 0),
    }
    rows = etl.spark.read.format("delta").load(f"{etl.place}/table").select("id", "kind").collect()
    assert {row["id"]: row["kind"] for row in rows} == {**rest, 3: "bad"}
    assert {int(number): kind for number, kind in postgres.rows(f"SELECT id, kind FROM {etl.name}")} == rest
    assert [(stage, rule) for stage, rule, _ in letters(etl)] == [("decode", "json"), ("sink", "constraint")]


def test_records_that_dedupe_leaves_make_rows(events: Etl, postgres: PostgresServer) -> None:
    """A sink that refuses one of the rows of a record has the others."""
    sink = table(events, postgres, "id bigint, part bigint CHECK (part <> 3)", columns="[id, part]")
    explode = 'derive: {parts: "sequence(1, id)"}\nexplode: {column: parts, select: {part: item}}'
    given: dict[str, Any] = {"decode": timed("drop"), "sections": f"{DEDUPE}\n{explode}", "sink": sink}
    events.produce(event(1), event(3), event(3), "broken")
    events.run(**given)
    events.produce(event(2), event(4, HOURS))
    totals = events.run(**given)
    assert (totals.rows_in, totals.rows_out, totals.rows_late) == (2, 1, 1)
    assert events.accounted() == {
        f"delta:{events.folder}/table": numbers(6, 3, 1, 0, 1, 1, exploded=6),
        f"postgres:127.0.0.1:{postgres.port}/postgres/{events.name}": numbers(
            6, 3, 1, 0, 1, 1, exploded=5, exploded_dlq=1
        ),
    }
    assert events.ids() == [1, 2, 2, 3, 3, 3]
    assert postgres.rows(f"SELECT id, part FROM {events.name} ORDER BY 1, 2") == [
        ("1", "1"),
        ("2", "1"),
        ("2", "2"),
        ("3", "1"),
        ("3", "2"),
    ]
    assert letters(events) == [("decode", "json", "broken"), ("sink", "constraint", "")]
