"""Keys, null values, headers, event time, and values that are not JSON."""

import io
import json
import struct
from datetime import UTC, datetime
from decimal import Decimal

import pytest

pytestmark = pytest.mark.etl

from pyspark.sql import functions as F  # noqa: E402, N812
from spark_etl.config import Pipeline  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402

KEY = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "part": {"type": "string"}}}
UPSERT = [{"type": "delta", "path": "none", "mode": "upsert", "keys": ["_key"]}]
VALUE = b'{"id": 1}'


def judge(spark, pipe: Pipeline, values, keys=None, headers=None):
    rows = plan(spark, frame(spark, values, keys, headers), pipe).rows.collect()
    return sorted(rows, key=lambda row: row["_offset"])


def errors(rows):
    return [tuple(row["_error"]) if row["_error"] is not None else None for row in rows]


def test_binary_keys(spark, tmp_path):
    pipe = pipeline(tmp_path, decode=json_decode(key="binary"))
    keys = [b"\xff\x00", None, b""]
    rows = judge(spark, pipe, [VALUE] * 3, keys)
    assert errors(rows) == [None, None, None]
    assert [row["_key"] if row["_key"] is None else bytes(row["_key"]) for row in rows] == keys


def test_json_keys(spark, tmp_path):
    (tmp_path / "key.json").write_text(json.dumps(KEY))
    pipe = pipeline(tmp_path, decode=json_decode(key="json", key_schema="key.json"))
    keys = [b'{"id": 7, "part": "a"}', None, b'{"id": "7"}', b"{}", b'{"id": 1} x', b"\xff", b'{"id": 1, "b": 2}']
    rows = judge(spark, pipe, [VALUE] * 7, keys)
    assert errors(rows) == [
        None,
        None,
        ("decode", "key_type", "key: wrong type: id"),
        ("decode", "key_required", "key: missing or null: id"),
        ("decode", "key_json", "key: the key is not one whole JSON value"),
        ("decode", "utf8", "the key is not UTF-8"),
        ("decode", "key_unknown_field", "key: unknown: b"),
    ]
    assert rows[0]["_key"].asDict() == {"id": 7, "part": "a"}
    assert rows[1]["_key"] is None


def counts(spark, judged):
    from pyspark.sql import Observation

    seen = Observation()
    judged.rows.observe(seen, *judged.counters).collect()
    return judged.counts(seen.get)


def test_null_values_can_be_dropped(spark, tmp_path):
    judged = plan(spark, frame(spark, [None, VALUE]), pipeline(tmp_path, decode=json_decode(null_value="drop")))
    assert [row["_offset"] for row in judged.good(judged.rows).collect()] == [1]
    assert judged.refused(judged.rows).collect() == []
    found = counts(spark, judged)
    assert (found.rows, found.good, found.refused, found.dropped) == (2, 1, {}, {("decode", "null_value"): 1})
    assert found.balanced


def test_null_values_can_delete(spark, tmp_path):
    rules = [{"name": "big", "expr": "id > 0"}]
    pipe = pipeline(tmp_path, decode=json_decode(null_value="delete"), sinks=UPSERT, rules=rules)
    rows = judge(spark, pipe, [None, VALUE, None, b"x"], [b"a", b"b", None, b"c"])
    assert errors(rows) == [
        None,
        None,
        ("decode", "null_value", "the value and the key are null"),
        ("decode", "json", "the value is not one whole JSON value"),
    ]
    assert [(row["_deleted"], row["_key"], row["id"]) for row in rows[:2]] == [(True, "a", None), (False, "b", 1)]
    assert plan(spark, frame(spark, []), pipe).columns[:5] == ("id", "name", "price", "at", "_deleted")


def test_a_deletion_whose_key_names_no_row_is_refused(spark, tmp_path):
    """The merge would fail at each try, and one record would stop the pipeline."""
    upsert = {"type": "delta", "path": "none", "mode": "upsert", "keys": ["id"]}
    keys = [b"abc", b"7", b"1.5", b"99999999999999999999", b"abc"]
    refused = ("decode", "null_value", "the value is null, and the key names no id")
    pipe = pipeline(tmp_path, decode=json_decode(null_value="delete"), sinks=[upsert])
    assert errors(judge(spark, pipe, [None] * 4 + [VALUE], keys)) == [refused, None, refused, refused, None]
    stated = pipeline(
        tmp_path,
        decode=json_decode(null_value="delete", key="binary"),
        sinks=[{**upsert, "keys": ["id", "part"]}],
        transform=[{"sql": "SELECT id, name AS part FROM input"}],
    )
    reason = ("decode", "null_value", "the value is null, and the key names no id, part")
    assert errors(judge(spark, stated, [None, VALUE], [b"7", b"7"])) == [reason, None]


def test_headers_become_columns(spark, tmp_path):
    pipe = pipeline(tmp_path, decode=json_decode(headers={"trace": "trace-id", "source": "src"}))
    headers = [
        [("trace-id", b"one"), ("other", b"x"), ("trace-id", b"two")],
        [("src", None), ("trace-id", b"\xff")],
        [],
    ]
    judged = plan(spark, frame(spark, [VALUE] * 3, headers=headers), pipe)
    rows = sorted(judged.rows.collect(), key=lambda row: row["_offset"])
    assert [(row["trace"], row["source"]) for row in rows] == [("two", None), (None, None), (None, None)]
    assert judged.columns[:6] == ("id", "name", "price", "at", "trace", "source")


def test_a_record_needs_its_event_time(spark, tmp_path):
    pipe = pipeline(tmp_path, decode=json_decode(timestamp={"field": "at", "watermark": "1 minute"}))
    rows = judge(spark, pipe, [VALUE, b'{"id": 1, "at": "2026-01-31T10:00:00Z"}'])
    assert errors(rows) == [("decode", "event_time", "at is null"), None]
    assert rows[1]["at"] == datetime(2026, 1, 31, 10)


def test_an_event_time_has_a_bound(spark, tmp_path):
    """It would move the watermark of a stream for good, and all later records would be late."""
    times = [
        ("2026-01-31T17:00:00Z", "2026-02-01T17:00:00Z", False),
        ("2026-01-31T17:00:00Z", "2026-02-01T17:00:00.001Z", True),
        ("1969-12-31T23:59:59.999Z", "2026-02-01T17:00:00Z", False),  # none: it counts as of now
        ("1969-12-31T23:59:59.999Z", "2199-02-01T17:00:00Z", True),
        ("2199-01-31T17:00:00Z", "2199-01-31T17:00:00Z", True),  # both clocks are wrong
        ("2026-01-31T17:00:00Z", "9999-12-31T23:59:59.999999Z", True),
    ]
    given = frame(spark, [json.dumps({"id": 1, "at": at}).encode() for _, at, _ in times])
    own = F.element_at(F.array(*(F.lit(text) for text, _, _ in times)), (F.col("offset") + 1).cast("int"))
    records = given.withColumn("timestamp", own.cast("timestamp"))
    for field, of in (("at", "record"), ("_timestamp", "batch")):
        pipe = pipeline(tmp_path, decode=json_decode(timestamp={"field": field, "watermark": "1 minute"}))
        rows = sorted(plan(spark, records, pipe).rows.collect(), key=lambda row: row["_offset"])
        fault = ("decode", "event_time", f"{field} is more than 1 day after the time of its {of}")
        expected = [refused if field == "at" else text > "2199" for text, _, refused in times]
        assert errors(rows) == [fault if refused else None for refused in expected]


def test_a_batch_that_is_judged_again_keeps_its_time(spark, tmp_path):
    """Else a far event would be a dead letter in the first try, and a good row in the next."""
    pipe = pipeline(tmp_path, decode=json_decode(timestamp={"field": "at", "watermark": "1 minute"}))
    values = [json.dumps({"id": 1, "at": at}).encode() for at in ("2026-02-01T17:00:00Z", "2026-02-01T17:00:00.001Z")]
    records = frame(spark, values).withColumn("timestamp", F.timestamp_seconds(F.lit(-1)))
    batch_ms = int(datetime(2026, 1, 31, 17, tzinfo=UTC).timestamp() * 1000)
    rows = plan(spark, records, pipe, batch_ms=batch_ms).rows.collect()
    assert sorted(row["_offset"] for row in rows if row["_error"] is not None) == [1]
    assert all(row["_error"] is None for row in plan(spark, records, pipe).rows.collect())


def test_the_event_time_of_a_deletion_has_a_bound(spark, tmp_path):
    timed = {"field": "_timestamp", "watermark": "1 minute", "ahead_max": "2 hours"}
    pipe = pipeline(tmp_path, decode=json_decode(null_value="delete", timestamp=timed), sinks=UPSERT)
    ahead = F.when(F.col("offset") == 0, F.expr("now() + INTERVAL 3 HOURS")).otherwise(
        F.expr("now() + INTERVAL 1 HOUR")
    )
    judged = plan(spark, frame(spark, [None, None]).withColumn("timestamp", ahead), pipe)
    rows = sorted(judged.rows.collect(), key=lambda row: row["_offset"])
    assert [error and error[1] for error in errors(rows)] == ["event_time", None]


def test_fields_may_have_the_names_of_kafka_columns(spark, tmp_path):
    names = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    pipe = pipeline(tmp_path, schema)
    (row,) = judge(spark, pipe, [json.dumps({name: name.upper() for name in names}).encode()])
    assert row["_error"] is None
    assert [row[name] for name in names] == [name.upper() for name in names]
    assert (row["_topic"], row["_partition"], row["_key"]) == ("orders", 3, "k0")


def test_raw_values(spark, tmp_path):
    pipe = pipeline(tmp_path, decode={"format": "raw"})
    judged = plan(spark, frame(spark, [b"\xff\x00", None, b""]), pipe)
    rows = sorted(judged.rows.collect(), key=lambda row: row["_offset"])
    assert errors(rows) == [None, ("decode", "null_value", "the value is null"), None]
    assert (bytes(rows[0]["value"]), bytes(rows[2]["value"])) == (b"\xff\x00", b"")
    assert judged.columns == ("value", "_key", "_topic", "_partition", "_offset", "_timestamp")


def test_made_texts_are_utf8(spark, tmp_path):
    """Bytes that are no UTF-8 in a Parquet file stop every reader but Spark."""
    derive = {"text": "CAST(value AS STRING)", "parts": "named_struct('all', array(CAST(value AS STRING), 'x'))"}
    pipe = pipeline(tmp_path, decode={"format": "raw"}, derive=derive)
    judged = plan(spark, frame(spark, [b"\xff", b"\xc3\xa9", None]), pipe)
    rows = sorted(judged.rows.collect(), key=lambda row: row["_offset"])
    refused = ("transform", "text", "text is not UTF-8")
    assert errors(rows) == [refused, None, ("decode", "null_value", "the value is null")]
    assert (bytes(rows[0]["_raw_value"]), rows[1]["text"]) == (b"\xff", "\u00e9")
    assert counts(spark, judged).refused == {("transform", "text"): 1, ("decode", "null_value"): 1}
    statement = [{"sql": "SELECT array(CAST(value AS STRING), 'x') AS texts FROM input"}]
    pipe = pipeline(tmp_path, decode={"format": "raw"}, transform=statement)
    refused = ("transform", "text", "texts is not UTF-8")
    assert errors(judge(spark, pipe, [b"\xff", b"a"])) == [refused, None]


CSV = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": "number"},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
    },
}
CSV_VALUES = [
    (b"1,Ann,1.5,true,2026-01-31T10:00:00Z", None),
    (b'2,"a, ""b""\nc",,,', None),
    (b"-3,x,1e3,false,", None),
    (b"1,Ann,1.5,true", ("csv", "the value is not one line of 5 fields")),
    (b"1,Ann,1.5,true,,more", ("csv", "the value is not one line of 5 fields")),
    (b"1,Ann,,,\n2,Bob,,,", ("csv", "the value is not one line of 5 fields")),
    (b'1,"Ann,,,', ("csv", "the value is not one line of 5 fields")),
    (b"", ("csv", "the value is not one line of 5 fields")),
    (b"one,Ann,,,", ("type", "wrong type: id")),
    (b" 1,Ann,,,", ("type", "wrong type: id")),
    (b"1.0,Ann,NaN,yes,noon", ("type", "wrong type: id, price, paid, at")),
    (b"9223372036854775808,Ann,,,", ("type", "wrong type: id")),
    (b",,,,", ("required", "missing: id, name")),
    (b"\xff,a,,,", ("utf8", "the value is not UTF-8")),
]


def test_csv(spark, tmp_path):
    pipe = pipeline(tmp_path, CSV, decode={"format": "csv", "schema": "schema.json"})
    rows = judge(spark, pipe, [value for value, _ in CSV_VALUES])
    assert errors(rows) == [("decode", *error) if error is not None else None for _, error in CSV_VALUES]
    assert [tuple(row[:5]) for row in rows[:3]] == [
        (1, "Ann", 1.5, True, datetime(2026, 1, 31, 10)),
        (2, 'a, "b"\nc', None, None, None),
        (-3, "x", 1000.0, False, None),
    ]


def test_csv_with_another_delimiter(spark, tmp_path):
    pipe = pipeline(tmp_path, CSV, decode={"format": "csv", "schema": "schema.json", "delimiter": ";"})
    (row,) = judge(spark, pipe, [b"1;a,b;;;"])
    assert (row["_error"], row["id"], row["name"]) == (None, 1, "a,b")


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*content, number])


def avro_record(identity: int, name: str | None, cents: int, tags: list[str], milliseconds: int) -> bytes:
    out = io.BytesIO()
    out.write(zigzag(identity))
    out.write(zigzag(0) if name is None else zigzag(1) + zigzag(len(name)) + name.encode())
    price = cents.to_bytes(4, "big", signed=True)
    out.write(zigzag(len(price)) + price)
    out.write(zigzag(len(tags)) + b"".join(zigzag(len(tag)) + tag.encode() for tag in tags) + zigzag(0) * bool(tags))
    out.write(zigzag(milliseconds))
    return out.getvalue()


def test_avro(spark, tmp_path):
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    pipe = pipeline(tmp_path, decode={"format": "avro", "schema": "order.avsc"})
    good = avro_record(7, "Ann", 150, ["a", "b"], 1_769_853_600_000)
    framed = b"\x00" + struct.pack(">I", 42) + good
    values = [good, avro_record(-1, None, -5, [], 0), good[:-1], good + b"\x00", b"", b"\x00", framed, None]
    rows = judge(spark, pipe, values)
    unread = ("decode", "avro", "the value is not one whole record of the Avro schema")
    assert errors(rows) == [
        None,
        None,
        unread,
        unread,
        unread,
        unread,
        ("decode", "framed", "the value is framed by a schema registry, with schema 42"),
        ("decode", "null_value", "the value is null"),
    ]
    assert tuple(rows[0][:5]) == (7, "Ann", Decimal("1.50"), ["a", "b"], datetime(2026, 1, 31, 10))
    assert tuple(rows[1][:5]) == (-1, None, Decimal("-0.05"), [], datetime(1970, 1, 1))
    assert [bytes(row["_raw_value"]) for row in rows[2:7]] == values[2:7]


def test_an_avro_schema_that_spark_cannot_read(spark, tmp_path):
    (tmp_path / "order.avsc").write_text(json.dumps({**AVRO, "fields": [{"name": "id", "type": "lnog"}]}))
    pipe = pipeline(tmp_path, decode={"format": "avro", "schema": "order.avsc"})
    with pytest.raises(ConfigError, match=r"pipeline\.yaml:9: decode\.schema: .*lnog"):
        plan(spark, frame(spark, []), pipe)


def test_an_event_time_that_is_no_time(spark, tmp_path):
    pipe = pipeline(tmp_path, decode=json_decode(timestamp={"field": "name", "watermark": "1 minute"}))
    with pytest.raises(ConfigError, match=r"pipeline\.yaml:\d+: decode\.timestamp\.field: name is string, not a time"):
        plan(spark, frame(spark, []), pipe)


def test_an_avro_length_takes_no_memory(spark, tmp_path):
    """Nine bytes say that a text of 1 GB follows; the record after them is read."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "text", "type": "string"}]}
    (tmp_path / "text.avsc").write_text(json.dumps(schema))
    pipe = pipeline(tmp_path, decode={"format": "avro", "schema": "text.avsc"})
    rows = judge(spark, pipe, [b"\x80\x80\x80\x80\x08abcd", b"\x04ok"])
    assert errors(rows) == [("decode", "avro", "the value is not one whole record of the Avro schema"), None]
    assert rows[1]["text"] == "ok"


def test_a_time_without_a_date_is_refused(spark, tmp_path):
    """Spark would add the date of today, another one at each try."""
    pipe = pipeline(tmp_path, decode={"format": "csv", "schema": "schema.json"})
    texts = ["12:30", "T12:30:00", "12:30-05:00", "2026", "170670"]
    rows = judge(spark, pipe, [f"1,,,{text}".encode() for text in texts])
    assert errors(rows) == [("decode", "type", "wrong type: at")] * len(texts)


def test_an_avro_string_is_text(spark, tmp_path):
    """Bytes that are no UTF-8 in a Parquet file stop every reader but Spark."""
    fields = {
        "one": "string",
        "many": {"type": "array", "items": ["null", "string"]},
        "named": {"type": "map", "values": "string"},
        "number": "int",
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": fields[name]} for name in fields]}
    (tmp_path / "text.avsc").write_text(json.dumps(schema))
    pipe = pipeline(tmp_path, decode={"format": "avro", "schema": "text.avsc"})
    whole = b"\x04%s\x04\x02\x02%s\x00\x00\x02\x02%s\x02%s\x00\x02"
    parts = [(b"ok", b"a", b"k", b"v"), (b"\xff\xfe", b"a", b"k", b"v"), (b"ok", b"\xff", b"k", b"v")]
    parts += [(b"ok", b"a", b"\xff", b"v"), (b"ok", b"a", b"k", b"\xff")]
    rows = judge(spark, pipe, [whole % each for each in parts])
    assert errors(rows) == [None] + [("decode", "text", "a string is not UTF-8")] * 4
    assert (rows[0]["one"], rows[0]["many"], rows[0]["named"], rows[0]["number"]) == ("ok", ["a", None], {"k": "v"}, 1)
