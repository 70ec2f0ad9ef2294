"""Keys and values that a schema registry frames: every type, evolution, and records that do not fit."""

import io
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pytest

pytestmark = pytest.mark.etl

from spark_etl.config import Pipeline  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.registry import pins  # noqa: E402
from spark_etl.registry.look_up import AwayError  # noqa: E402
from support.kafka_frames import errors, judge  # noqa: E402
from support.pipelines import pipeline  # noqa: E402

SUBJECT = "orders-value"
FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
#: A new field with a default, a wider number, and a field that is gone.
SECOND = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double", "default": 1.5},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "B"},
    ],
}


def avro(schema, value) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), value)
    return content.getvalue()


def framed(number: int, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + content


def pinned(spark, folder, **decode) -> Pipeline:
    sections = {"format": "avro", "registry": {"subject": SUBJECT}, **decode}
    return pins.pinned(pipeline(folder, decode=sections), spark)


def test_each_record_is_read_with_its_own_schema(spark, tmp_path, server):
    first = server.add(SUBJECT, json.dumps(FIRST))
    second = server.add(SUBJECT, json.dumps(SECOND))
    pipe = pinned(spark, tmp_path)
    good = avro(SECOND, {"id": 2**63 - 1, "amount": 0.1, "kind": "A"})
    old = avro(FIRST, {"id": -(2**63), "note": "gone"})
    values = [framed(second, good), framed(first, old), framed(first, old)[:-1], framed(second, good) + b"\0"]
    values += [framed(99, good), b'{"id": 1}', b"", b"\0\0", framed(second, b""), None]
    rows = judge(spark, pipe, values)
    unread = ("decode", "avro", "the value is not one whole value of the schema that it names")
    unframed = ("decode", "frame", "the value names no schema of a registry")
    unknown = ("decode", "schema", "schema 99: The schema registry does not have it")
    null = ("decode", "null_value", "the value is null")
    assert errors(rows) == [None, None, unread, unread, unknown, unframed, unframed, unframed, unread, null]
    assert tuple(rows[0][:3]) == (2**63 - 1, 0.1, "A")
    assert tuple(rows[1][:3]) == (-(2**63), 1.5, "B")
    assert [row["_raw_value"] and bytes(row["_raw_value"]) for row in rows[2:]] == values[2:]


def test_the_columns_are_those_of_the_pinned_version(spark, tmp_path, server):
    first = server.add(SUBJECT, json.dumps(FIRST))
    second = server.add(SUBJECT, json.dumps(SECOND))
    pipe = pinned(spark, tmp_path, registry={"subject": SUBJECT, "version": 1})
    newer = framed(second, avro(SECOND, {"id": 1, "amount": 1, "kind": "A"}))
    older = framed(first, avro(FIRST, {"id": 2, "note": "n"}))
    rows = judge(spark, pipe, [newer, older])
    assert pipe.names == ["id", "note"]
    assert errors(rows) == [None, None]
    assert [tuple(row[:2]) for row in rows] == [(1, None), (2, "n")]


EVERY = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "single", "type": "float"},
        {"name": "bytes_", "type": "bytes"},
        {"name": "five", "type": {"type": "fixed", "name": "Five", "size": 5}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}},
        {
            "name": "cents",
            "type": {
                "type": "fixed",
                "name": "Cents",
                "size": 8,
                "logicalType": "decimal",
                "precision": 18,
                "scale": 2,
            },
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "items", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
        {
            "name": "inner",
            "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": ["null", "long"]}]},
        },
        {"name": "again", "type": ["null", "Inner"]},
        {"name": "either", "type": ["null", "string", "int"]},
    ],
}


def test_every_type(spark, tmp_path, server):
    number = server.add(SUBJECT, json.dumps(EVERY))
    value = {
        "flag": True,
        "small": -(2**31),
        "single": 0.5,
        "bytes_": b"\0\xff",
        "five": b"12345",
        "price": Decimal("-1234567890123456789012345678.0123456789"),
        "cents": Decimal("9999999999999999.99"),
        "day": date(1, 1, 1),
        "millis": datetime(9999, 12, 31, 23, 59, 59, 999000, UTC),
        "micros": datetime(2, 1, 2, 0, 0, 0, 1, UTC),
        "uuid": uuid.UUID(int=7),
        "items": [{"a": 2**63 - 1}, {}],
        "inner": {"x": 5},
        "again": {"x": None},
        "either": "text",
    }
    (row,) = judge(spark, pinned(spark, tmp_path), [framed(number, avro(EVERY, value))])
    assert row["_error"] is None
    found = row.asDict(recursive=True)
    expected = {**value, "uuid": str(value["uuid"]), "either": {"member0": "text", "member1": None}}
    expected["millis"] = value["millis"].replace(tzinfo=None)
    expected["micros"] = value["micros"].replace(tzinfo=None)
    assert {
        name: bytes(got) if isinstance(got, bytearray) else got for name, got in found.items()
    } | expected == found | {
        "bytes_": b"\0\xff",
        "five": b"12345",
    }


def test_keys(spark, tmp_path, server):
    value = server.add(SUBJECT, json.dumps(FIRST))
    key = {"type": "record", "name": "Key", "fields": [{"name": "part", "type": "string"}]}
    number = server.add("orders-key", json.dumps(key))
    pipe = pinned(spark, tmp_path, key="avro", key_registry={"subject": "orders-key", "version": 1})
    good = framed(value, avro(FIRST, {"id": 1, "note": None}))
    keys = [framed(number, avro(key, {"part": "p"})), None, b"plain", framed(value, b""), framed(number, b"\x02\xff")]
    rows = judge(spark, pipe, [good] * 5, keys)
    assert errors(rows) == [
        None,
        None,
        ("decode", "key_frame", "the key names no schema of a registry"),
        ("decode", "key_schema", rows[3]["_error"]["message"]),
        ("decode", "key_text", "a string of the key is not UTF-8"),
    ]
    assert rows[3]["_error"]["message"].startswith("schema 1: it does not fit the columns: ")
    assert rows[0]["_key"].asDict() == {"part": "p"}
    assert rows[1]["_key"] is None


def test_a_key_and_a_value_that_are_no_records(spark, tmp_path, server):
    value, key = server.add(SUBJECT, '"long"'), server.add("orders-key", '{"type": "string"}')
    pipe = pinned(spark, tmp_path, key="avro", key_registry={"subject": "orders-key"})
    (row,) = judge(spark, pipe, [framed(value, b"\x0e")], [framed(key, b"\x04ok")])
    assert (row["value"], row["_key"], row["_error"]) == (7, "ok", None)


def test_ids_and_guids_in_headers(spark, tmp_path, server):
    number = server.add(SUBJECT, json.dumps(FIRST))
    pipe = pinned(spark, tmp_path)
    content = avro(FIRST, {"id": 5, "note": "n"})
    name = "__value_schema_id"
    guid = b"\x01" + server.guid(number).bytes
    headers = [
        [("x", b"y"), (name, framed(number, b""))],
        [(name, guid)],
        [(name, b"\x01" + bytes(16))],
        [(name, None), (name, b"?")],
        [("__key_schema_id", guid)],
    ]
    rows = judge(spark, pipe, [content] * 5, headers=headers)
    unframed = ("decode", "frame", "the value names no schema of a registry")
    unknown = ("decode", "schema", f"schema {'0' * 32}: The schema registry does not have it")
    assert errors(rows) == [None, None, unknown, unframed, unframed]
    assert [tuple(row[:2]) for row in rows[:2]] == [(5, "n")] * 2


def test_references(spark, tmp_path, server):
    place = {"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "city", "type": "string"}]}
    server.add("place", json.dumps(place))
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "to", "type": "geo.Place"}, {"name": "from", "type": ["null", "geo.Place"]}],
    }
    reference = {"name": "geo.Place", "subject": "place", "version": 1}
    number = server.add(SUBJECT, json.dumps(order), references=[reference])
    (row,) = judge(spark, pinned(spark, tmp_path), [framed(number, b"\x02a\x02\x02b")])
    assert (row["to"]["city"], row["from"]["city"], row["_error"]) == ("a", "b", None)


def with_type(kind) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "at", "type": kind}]})


@pytest.mark.parametrize(
    ("columns", "record", "reason"),
    [
        (
            "long",
            "string",
            "it does not fit the columns: TYPE_MISMATCH: reader type: LONG not compatible with writer type",
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            {"type": "long", "logicalType": "timestamp-millis"},
            "it does not fit the columns: the value.at is timestamp-millis, and timestamp-micros in the version of",
        ),
        (
            ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}],
            ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            "it does not fit the columns: the value.at is decimal of scale 2, and decimal of scale 3 in the version of",
        ),
    ],
)
def test_a_schema_that_does_not_fit_the_columns(spark, tmp_path, server, columns, record, reason):
    """Milliseconds as microseconds, or cents as tenths of them, would be other values without a fault."""
    server.add(SUBJECT, with_type(columns))
    number = server.add("others", with_type(record))
    rows = judge(spark, pinned(spark, tmp_path), [framed(number, b"\2\2")])
    assert errors(rows) == [("decode", "schema", rows[0]["_error"]["message"])]
    assert rows[0]["_error"]["message"].startswith(f"schema {number}: {reason}")


def test_json(spark, tmp_path, server):
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    number = server.add(SUBJECT, json.dumps(schema), "JSON")
    other = server.add("others", json.dumps(FIRST))
    registry = {"subject": SUBJECT, "version": "latest"}
    pipe = pinned(spark, tmp_path, format="json", registry=registry, key="json", key_registry=registry)
    values = [framed(number, b'{"id": 9223372036854775807}'), framed(number, b"{}"), framed(other, b"{}"), b'{"id": 1}']
    rows = judge(spark, pipe, values, [values[0], None, values[0], values[3]])
    assert errors(rows) == [
        None,
        ("decode", "required", "missing or null: id"),
        ("decode", "schema", f"schema {other}: it is of the type AVRO, not JSON"),
        ("decode", "key_frame", "the key names no schema of a registry"),
    ]
    assert (rows[0]["id"], rows[0]["_key"]["id"]) == (2**63 - 1, 2**63 - 1)


def test_json_with_references(spark, tmp_path, server):
    city = {"type": "object", "required": ["name"], "properties": {"name": {"$ref": "#/definitions/Name"}}}
    place = {"definitions": {"City": city, "Name": {"type": "string"}}}
    server.add("place", json.dumps(place), "JSON")
    to = {"$ref": "geo/place.json#/definitions/City"}
    schema = {
        "type": "object",
        "properties": {"to": to, "size": {"$ref": "#/$defs/Size"}},
        "$defs": {"Size": {"type": "integer"}},
    }
    reference = {"name": "geo/place.json", "subject": "place", "version": 1}
    number = server.add(SUBJECT, json.dumps(schema), "JSON", [reference])
    pipe = pinned(spark, tmp_path, format="json")
    values = [framed(number, b'{"to": {"name": "a"}, "size": 1}'), framed(number, b'{"to": {}}')]
    rows = judge(spark, pipe, values)
    assert errors(rows) == [None, ("decode", "required", "missing or null: to.name")]
    assert (rows[0]["to"]["name"], rows[0]["size"]) == ("a", 1)
    server.add("other", json.dumps({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}), "JSON")
    with pytest.raises(ConfigError, match=r"\$ref: only a pointer into this file"):
        pinned(spark, tmp_path, format="json", registry={"subject": "other"})


def test_a_registry_that_is_away_refuses_no_record(spark, tmp_path, server):
    server.add(SUBJECT, json.dumps(FIRST))
    number = server.add("others", json.dumps(SECOND))
    pipe = pinned(spark, tmp_path)
    value = framed(number, avro(SECOND, {"id": 1, "amount": 1, "kind": "A"}))
    for status in (500, 503, 401, 429, 302, 400, 404, 405, 422):  # some are of a proxy before it
        server.status = status
        with pytest.raises(AwayError):
            judge(spark, pipe, [value])
    server.status = 0
    assert errors(judge(spark, pipe, [value])) == [None]
    server.status = 500  # schemas do not change: what is known is not asked for again
    assert errors(judge(spark, pipe, [value])) == [None]
    with pytest.raises(AwayError):
        pinned(spark, tmp_path)


def deep(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"long"' + "}" * levels


def wide() -> str:
    """Return a schema of a few kilobytes with more than 2^30 columns."""
    kind = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "long"}]}
    for number in range(1, 31):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{number - 1}"}]
        kind = {"type": "record", "name": f"R{number}", "fields": fields}
    return json.dumps(kind)


SELF = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (deep(20_000), "the schema is not JSON, or nests too deep"),
        (deep(500), "it nests deeper than 64"),
        (wide(), "it has more than 2000 fields, where each mention of a type counts"),
        (json.dumps(SELF), "the type R has itself as a part, and a column cannot"),
        (json.dumps({**FIRST, "doc": "x" * 600_000}), "it has more than 524288 bytes with its references"),
        (with_type("https://example.com/Order"), "the type https://example.com/Order is neither in the schema nor"),
        (with_type({"type": "fixed", "name": "F", "size": -1}), "it is no schema of Avro"),
        (json.dumps(FIRST) + "\ud800", "its text has halves of characters"),
    ],
)
def test_schemas_that_are_refused(spark, tmp_path, server, schema, reason):
    server.add(SUBJECT, json.dumps(FIRST))
    number = server.add("others", schema)
    rows = judge(spark, pinned(spark, tmp_path), [framed(number, b"\0")])
    assert rows[0]["_error"]["message"].startswith(f"schema {number}: {reason}")
    with pytest.raises(ConfigError) as refused:
        pinned(spark, tmp_path, registry={"subject": "others"})
    assert reason in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path}/pipeline.yaml:9: decode.registry: ")


ODD = [
    {"type": "record", "name": "Whole", "namespace": "spark_etl", "fields": []},
    {"type": "fixed", "name": "Of_nonce", "namespace": "spark_etl", "size": 0},
    {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"},
    {"type": "enum", "name": "E", "symbols": "A"},
    {"type": "enum", "name": "E", "symbols": ["a-b"]},
    {"type": "fixed", "name": "E", "size": "x"},
    {"type": "record", "name": "E", "fields": [{"name": "a", "type": "long", "default": "x"}]},
    {"type": "record", "name": "E", "namespace": 5, "aliases": 5, "fields": [{"name": "a.b", "type": "long"}]},
    {"type": "bytes", "logicalType": "decimal", "precision": 0, "scale": -1},
    {"type": "long", "logicalType": 5},
    ["null", ["null", "long"]],
    ["null", "null"],
    [],
]


def test_no_schema_ends_a_run(spark, tmp_path, server):
    """Records of another schema are read, whatever the registry has been given."""
    first = server.add(SUBJECT, json.dumps(FIRST))
    texts = [json.dumps({**FIRST, "fields": [*FIRST["fields"], {"name": "gone", "type": kind}]}) for kind in ODD]
    numbers = [server.add("others", text) for text in texts]
    good = avro(FIRST, {"id": 7, "note": None})
    pipe = pinned(spark, tmp_path)
    own, *others = judge(spark, pipe, [framed(each, good) for each in (first, *numbers)])
    assert (own["_error"], own["id"]) == (None, 7)
    assert len(others) == len(ODD)
    assert {error and error[1] for error in errors(others)} <= {None, "schema", "avro"}


def test_a_pin_stays(spark, tmp_path, server):
    server.add(SUBJECT, json.dumps(FIRST))
    pipe = pinned(spark, tmp_path)
    from spark_etl.checkpoint import notes

    documents = notes.at(pipe.config.checkpoint, spark)
    pins.keep(pipe, documents)
    server.add(SUBJECT, json.dumps(SECOND))
    assert pinned(spark, tmp_path).names == ["id", "note"]
    assert pinned(spark, tmp_path, registry={"subject": SUBJECT, "version": 2}).names == ["id", "amount", "kind"]
    with pytest.raises(ConfigError, match="version 3 of orders-value: The schema registry does not have it"):
        pinned(spark, tmp_path, registry={"subject": SUBJECT, "version": 3})
    replaced = json.dumps({**FIRST, "fields": FIRST["fields"][:1]})
    server._schemas[0]["body"]["schema"] = replaced
    with pytest.raises(ConfigError, match="version 1 of orders-value is not the one that the checkpoint began with"):
        pinned(spark, tmp_path)


def test_without_a_registry(spark, tmp_path, monkeypatch):
    monkeypatch.delenv("MILLRACE_SCHEMA_REGISTRY", raising=False)
    with pytest.raises(
        ConfigError, match=r"yaml:9: decode\.registry: the variable MILLRACE_SCHEMA_REGISTRY is not set"
    ):
        pinned(spark, tmp_path)
