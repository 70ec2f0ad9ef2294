"""Decoding and judging on frames made here: faults that lenient parsers let pass are found, and nothing is lost."""

import json
import os
import random
import signal
from datetime import UTC
from pathlib import Path

import pytest

pytestmark = pytest.mark.etl

from pydantic import ValidationError  # noqa: E402
from pyspark.sql import Row, SparkSession  # noqa: E402
from spark_etl.config import Aggregate, EventTime, KafkaSinkConfig, Pipeline, load  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.sinks.dead_letters import letters  # noqa: E402
from spark_etl.sinks.summaries import summary  # noqa: E402
from spark_etl.sinks.windows import windowed  # noqa: E402
from support.kafka_frames import AT, frame  # noqa: E402

GOOD = {"id": 7, "name": "seven", "price": None, "day": "2026-01-31", "at": "2026-01-31T11:00:00Z"}
SCHEMA = {
    "type": "object",
    "required": ["id", "name", "price"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": ["number", "null"]},
        "day": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "paid": {"type": "boolean"},
    },
}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return spark


def pipeline(folder: Path, unknown_fields: str = "reject") -> Pipeline:
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    path = folder / "pipeline.yaml"
    path.write_text(
        f"""
apiVersion: etl/v1
name: orders
checkpoint: checkpoint
source: {{topics: [orders]}}
decode: {{format: json, schema: schema.json, unknown_fields: {unknown_fields}}}
derive: {{month: "substring(day, 1, 7)", half: id / 2}}
rules:
  - {{name: positive, expr: id > 0, on_violation: dlq}}
  - {{name: small, expr: id < 1000, on_violation: fail}}
sinks:
  - {{type: delta, path: none, partition_by: [month]}}
  - {{type: kafka, topic: orders.total, aggregate: {{group_by: [month], select: {{n: count(*), price: avg(price)}}}}}}
dead_letter: {{topic: orders.dlq}}
"""
    )
    return load(path, {})


def judge(session: SparkSession, pipe: Pipeline, values: list[bytes | None], **more) -> list[Row]:
    checked = plan(session, frame(session, values, **more), pipe)
    return sorted(checked.rows.collect(), key=lambda row: row["_offset"])


def with_(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def without(*names: str) -> bytes:
    return json.dumps({name: value for name, value in GOOD.items() if name not in names}).encode()


TEXT = with_()
REFUSED: list[tuple[str, bytes | None, str, str, str]] = [
    ("null", None, "decode", "null_value", "the value is null"),
    ("empty", b"", "decode", "json", "the value is not one whole JSON value"),
    ("cut", TEXT[:20], "decode", "json", "the value is not one whole JSON value"),
    ("twice", TEXT + TEXT, "decode", "json", "the value is not one whole JSON value"),
    ("more after", TEXT + b" x", "decode", "json", "the value is not one whole JSON value"),
    ("closes the wrapper", TEXT + b',"x":{}', "decode", "json", "the value is not one whole JSON value"),
    ("brace too many", TEXT + b"}", "decode", "json", "the value is not one whole JSON value"),
    ("single quotes", TEXT.replace(b'"', b"'"), "decode", "json", "the value is not one whole JSON value"),
    ("array", b"[" + TEXT + b"]", "decode", "object", "the value is not a JSON object"),
    ("json null", b"null", "decode", "object", "the value is not a JSON object"),
    ("number", b"7", "decode", "object", "the value is not a JSON object"),
    ("deep", b"[" * 5000 + b"]" * 5000, "decode", "json", "the value is not one whole JSON value"),
    ("not UTF-8", b'{"id": 7, "name": "\xff"}', "decode", "utf8", "the value is not UTF-8"),
    ("duplicate", TEXT[:-1] + b', "id": 8}', "decode", "duplicate_field", "a field appears twice: id"),
    ("text for integer", with_(id="7"), "decode", "type", "wrong type: id"),
    ("float for integer", with_(id=7.0), "decode", "type", "wrong type: id"),
    ("integer too big", with_(id=1 << 63), "decode", "type", "wrong type: id"),
    ("number for text", with_(name=7), "decode", "type", "wrong type: name"),
    ("object for text", with_(name={"a": 1}), "decode", "type", "wrong type: name"),
    (
        "object of the same name for text",
        b'{"id":7,"name":{"name":"x"},"price":1}',
        "decode",
        "type",
        "wrong type: name",
    ),
    ("array for text", b'{"id":7,"price":1,"name":["name","x"]}', "decode", "type", "wrong type: name"),
    (
        "text within a text",
        b'{"id":7,"price":1,"name":1,"day":"\\"name\\":\\"x"}',
        "decode",
        "type",
        "wrong type: name",
    ),
    (
        "field twice in an object for text",
        with_(day={}).replace(b"{}", b'{"a":1,"a":2}'),
        "decode",
        "duplicate_field",
        "a field appears twice: a",
    ),
    ("a name with a quote", b'{"id":7,"price":1,"name":1,"my\\"name":"x"}', "decode", "type", "wrong type: name"),
    ("not a time", with_(at="yesterday"), "decode", "type", "wrong type: at"),
    ("two wrong", with_(name=True, paid="yes"), "decode", "type", "wrong type: name, paid"),
    ("missing", without("name", "price"), "decode", "required", "missing or null: name, price"),
    ("null where not allowed", with_(id=None), "decode", "required", "missing or null: id"),
    ("unknown", with_(colour="red", size=3), "decode", "unknown_field", "unknown: colour, size"),
    ("rule", with_(id=-1), "rules", "positive", "not true: id > 0"),
    ("failing rule", with_(id=1000), "rules", "small", "not true: id < 1000"),
    ("no partition", with_(day=None), "partition", "month", "month is null, no partition to write to"),
]


def test_every_reason(session, tmp_path):
    pipe = pipeline(tmp_path)
    rows = judge(session, pipe, [value for _, value, *_ in REFUSED])
    found = [(name, *row["_error"]) for (name, *_), row in zip(REFUSED, rows, strict=True)]
    assert found == [(name, stage, rule, message) for name, _, stage, rule, message in REFUSED]
    assert [bytes(row["_raw_value"]) if row["_raw_value"] is not None else None for row in rows] == [
        v for _, v, *_ in REFUSED
    ]
    assert [bytes(row["_raw_key"]) for row in rows] == [b"k%d" % number for number in range(len(REFUSED))]


VALUES = (
    "7",
    "7.5",
    "true",
    "null",
    '"x"',
    '""',
    r'"a\\b"',
    r'"\"name\":\"x"',
    '"a: b"',
    '{"name":"x"}',
    '["name","x"]',
)
USUAL = {"id": "7", "name": '"seven"', "price": "1.5", "day": '"d"', "at": '"2026-01-31T11:00:00Z"', "paid": "true"}


def texts(seed: int, number: int) -> list[str]:
    """Return records that have most fields as they must be, in all spellings, and some faults."""
    draw = random.Random(seed)
    found = []
    for _ in range(number):
        fields = [(name, value) for name, value in USUAL.items() if draw.random() > 0.04]
        fields = [(name, draw.choice(VALUES) if draw.random() < 0.06 else value) for name, value in fields]
        if draw.random() < 0.2:
            fields.append((draw.choice((*USUAL, "x", r"my\"name", r"n\u0061me")), draw.choice(VALUES)))
        if draw.random() < 0.3:
            draw.shuffle(fields)
        colon, comma = draw.choice((":", ": ", " :", "\n:\t")), draw.choice((",", ", ", "\n,"))
        found.append(
            "{" + comma.join(f'"{name}"{colon}{value}' for name, value in fields) + "}" + draw.choice(("", "\n"))
        )
    return found


def right(text: str) -> bool:
    """Return whether a record fits the schema, as Python reads it."""
    pairs = json.loads(text, object_pairs_hook=list)
    found = dict(pairs)
    if len(found) < len(pairs) or set(found) - set(USUAL) or not {"id", "name", "price"} <= set(found):
        return False
    kinds = {"id": (int,), "name": (str,), "price": (int, float, type(None)), "day": (str, type(None))}
    kinds |= {"at": (str, type(None)), "paid": (bool, type(None))}
    if any(type(value) not in kinds[name] for name, value in pairs):
        return False
    return found.get("at") in (None, "2026-01-31T11:00:00Z")


def test_records_in_all_spellings_are_judged_as_python_reads_them(session, tmp_path):
    records = texts(5, 4000)
    rows = judge(session, pipeline(tmp_path), [text.encode() for text in records])
    errors = [row["_error"] is not None and row["_error"]["stage"] == "decode" for row in rows]
    assert [(text, error) for text, error in zip(records, errors, strict=True)] == [
        (text, not right(text)) for text in records
    ]
    assert 0.3 < sum(errors) / len(errors) < 0.7
    good = [(json.loads(text), row) for text, row, error in zip(records, rows, errors, strict=True) if not error]
    assert [(row["id"], row["name"], row["price"], row["day"], row["paid"], row["at"] is None) for _, row in good] == [
        (*(value.get(name) for name in ("id", "name", "price", "day", "paid")), value.get("at") is None)
        for value, _ in good
    ]


def test_good_records(session, tmp_path):
    pipe = pipeline(tmp_path)
    values = [
        TEXT,
        b" \n" + TEXT + b"\t ",
        with_(price=1.5, paid=True, name="a } brace"),
        with_(price=2),  # a whole number is a number
        without("at"),
        json.dumps(dict(reversed(GOOD.items()))).encode(),
    ]
    rows = judge(session, pipe, values, keys=[None, b"", b"k", b"k", b"k", b"k"])
    assert [row["_error"] for row in rows] == [None] * len(values)
    assert [(row["_raw_key"], row["_raw_value"], row["_raw_headers"]) for row in rows] == [(None, None, None)] * len(
        values
    )
    first = rows[0].asDict()
    assert {name: first[name] for name in ("id", "name", "price", "day", "paid", "month", "half")} == {
        "id": 7,
        "name": "seven",
        "price": None,
        "day": "2026-01-31",
        "paid": None,
        "month": "2026-01",
        "half": 3.5,
    }
    assert (first["_key"], first["_topic"], first["_partition"], first["_offset"]) == (None, "orders", 3, 0)
    assert (rows[2]["name"], rows[2]["price"], rows[2]["paid"]) == ("a } brace", 1.5, True)
    assert (rows[3]["price"], rows[4]["at"], rows[1]["_key"]) == (2.0, None, "")
    assert rows[5]["id"] == 7


def test_a_key_that_is_no_text(session, tmp_path):
    (row,) = judge(session, pipeline(tmp_path), [TEXT], keys=[b"\xff\x00"])
    assert tuple(row["_error"]) == ("decode", "utf8", "the key is not UTF-8")
    assert bytes(row["_raw_key"]) == b"\xff\x00"


def test_unknown_fields_can_be_kept(session, tmp_path):
    rows = judge(session, pipeline(tmp_path, "rescue"), [with_(colour="red", size=3), TEXT])
    assert [row["_error"] for row in rows] == [None, None]
    assert json.loads(rows[0]["_rescued"]) == {"colour": "red", "size": "3"}
    assert rows[1]["_rescued"] is None


def test_good_and_refused_are_all(session, tmp_path):
    pipe = pipeline(tmp_path)
    checked = plan(session, frame(session, [TEXT, b"x", TEXT]), pipe)
    assert [row["_offset"] for row in checked.good(checked.rows).collect()] == [0, 2]
    assert [row["_offset"] for row in checked.refused(checked.rows).collect()] == [1]
    assert checked.good(checked.rows).columns == [
        *("id", "name", "price", "day", "at", "paid", "month", "half"),
        *("_key", "_topic", "_partition", "_offset", "_timestamp"),
    ]


def test_a_dead_letter_is_the_record_and_the_reason(session, tmp_path):
    pipe = pipeline(tmp_path)
    checked = plan(session, frame(session, [with_(id="7")]), pipe)
    (letter,) = letters(checked.refused(checked.rows), "orders", 1 << 20).collect()
    assert (bytes(letter["key"]), bytes(letter["value"])) == (b"k0", with_(id="7"))
    assert [(header["key"], bytes(header["value"]).decode()) for header in letter["headers"]] == [
        ("trace", "t"),
        ("__etl.errors.pipeline", "orders"),
        ("__etl.errors.topic", "orders"),
        ("__etl.errors.partition", "3"),
        ("__etl.errors.offset", "0"),
        ("__etl.errors.timestamp", AT.replace(tzinfo=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")),
        ("__etl.errors.stage", "decode"),
        ("__etl.errors.rule", "type"),
        ("__etl.errors.message", "wrong type: id"),
    ]


def test_a_summary_is_keyed_by_its_group(session, tmp_path):
    pipe = pipeline(tmp_path)
    values = [with_(price=1), with_(price=2), with_(price=None), with_(day="2026-02-01", price=None)]
    checked = plan(session, frame(session, values), pipe)
    records = summary(checked.good(checked.rows), pipe.config.summaries[0], "orders", 5).collect()
    assert {bytes(record["key"]): json.loads(bytes(record["value"])) for record in records} == {
        b"2026-01": {"month": "2026-01", "n": 3, "price": 1.5},
        b"2026-02": {"month": "2026-02", "n": 1, "price": None},
    }
    assert [(h["key"], bytes(h["value"])) for h in records[0]["headers"]] == [
        ("__etl.pipeline", b"orders"),
        ("__etl.version", b"5"),
    ]


def test_signals_to_all_processes_leave_python_workers_alone(spark):
    """systemd signals every process of a unit; the batch at work needs its workers."""

    def signalled(batches):
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getppid(), number)
            os.kill(os.getpid(), number)
        yield from batches

    assert spark.range(1).mapInArrow(signalled, "id BIGINT").count() == 1
    assert spark.range(1).mapInArrow(signalled, "id BIGINT").count() == 1


@pytest.mark.parametrize(
    ("zone", "length", "at", "start", "end"),
    [
        ("Europe/Brussels", "1 day", "2026-03-28T23:00:00Z", "2026-03-28T23:00", "2026-03-29T22:00"),
        ("Europe/Brussels", "1 day", "2026-10-25T22:59:59Z", "2026-10-24T22:00", "2026-10-25T23:00"),
        ("Europe/Brussels", "1 day", "2026-10-25T23:00:00Z", "2026-10-25T23:00", "2026-10-26T23:00"),
        ("Asia/Beirut", "1 day", "2026-03-28T22:00:00Z", "2026-03-28T22:00", "2026-03-29T21:00"),
        ("America/St_Johns", "1 day", "1969-12-31T03:30:00Z", "1969-12-31T03:30", "1970-01-01T03:30"),
        ("Etc/UTC", "7 days", "2026-01-31T12:00:00Z", "2026-01-29T00:00", "2026-02-05T00:00"),
    ],
)
def test_days_of_a_time_zone(session, zone, length, at, start, end):
    """Where clocks change, a day has 23 or 25 hours. At Beirut's last one in March, there is no midnight."""
    aggregate = {"window": length, "timezone": zone, "select": {"n": "count(*)"}}
    sink = KafkaSinkConfig.model_validate({"type": "kafka", "topic": "t", "aggregate": aggregate})
    rows = session.sql(f"SELECT timestamp'{at}' AS at UNION ALL SELECT NULL")
    times = [
        "date_format(window_start, \"yyyy-MM-dd'T'HH:mm\")",
        "date_format(window_end, \"yyyy-MM-dd'T'HH:mm\")",
        "n",
    ]
    found = windowed(rows, sink, EventTime(field="at", watermark="1 minute")).selectExpr(*times).collect()
    assert list(map(tuple, found)) == [(start, end, 1)]


@pytest.mark.parametrize("more", [{"window": "1 hour"}, {"slide": "1 day", "window": "2 days"}, {"group_by": ["id"]}])
def test_a_time_zone_is_for_whole_days(more):
    with pytest.raises(ValidationError, match="timezone needs a window of whole days, without slide"):
        Aggregate.model_validate({"timezone": "Europe/Brussels", "select": {"n": "count(*)"}, **more})


def test_a_zone_that_is_none_is_refused(session):
    aggregate = {"window": "1 day", "timezone": "Europe/Bruxelles", "select": {"n": "count(*)"}}
    sink = KafkaSinkConfig.model_validate({"type": "kafka", "topic": "t", "aggregate": aggregate})
    with pytest.raises(ConfigError, match=r"^timezone: there is no zone Europe/Bruxelles$"):
        windowed(session.sql("SELECT now() AS at"), sink, EventTime(field="at", watermark="1 minute"))
