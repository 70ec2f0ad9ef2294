"""Plain texts of JSON take a shorter way, and come to the same rows and reasons as on the long one."""

import json
import random
import re

import pytest

pytestmark = pytest.mark.etl

from pyspark.sql import functions as F  # noqa: E402, N812
from spark_etl.config import Pipeline  # noqa: E402
from spark_etl.decode import plain_json  # noqa: E402
from spark_etl.decode.json_text import JsonText  # noqa: E402
from spark_etl.judged import plan  # noqa: E402
from spark_etl.schema import RecordSchema  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402

SCHEMA = {
    "type": "object",
    "required": ["id", "name", "price"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
    },
}
GOOD = {"id": 1, "name": "Ann", "price": 1.5, "paid": True, "note": None, "at": "2026-01-31T10:00:00Z"}
PLAIN = [
    GOOD,
    {**GOOD, "price": None},
    {**GOOD, "price": -1e-7, "name": ""},
    {**GOOD, "name": 'a "b" \\ \n \u20ac {}[],:'},
    {name: GOOD[name] for name in ("id", "name", "price")},
    {name: GOOD[name] for name in ("id", "name", "price", "note")},
    {**GOOD, "at": "noon"},
    {**GOOD, "at": None},
    {**GOOD, "name": None},
    {**GOOD, "id": None, "name": None, "at": "2026-13-01T00:00:00Z"},
]
#: One whole object each, by which a plain text is no longer plain.
OTHERS = [
    b'{"name": "Ann", "id": 1, "price": 1}',
    b'{"id": 1, "name": "Ann"}',
    b'{"id": 1, "id": 1, "name": "Ann", "price": 1}',
    b'{"id": 1, "name": "Ann", "price": 1, "more": 1}',
    b'{"id": 1, "name": 5, "price": 1}',
    b'{"id": 1, "name": {"a": "b"}, "price": 1}',
    b'{"id": "1", "name": "Ann", "price": 1}',
    b'{"id": 1.5, "name": "Ann", "price": 1}',
    b'{"id": 9223372036854775808, "name": "Ann", "price": 1}',
    b'{"id": 1, "name": "Ann", "price": NaN}',
    b'{"id": 1, "name": "Ann", "price": 1, "paid": yes}',
    b'{"\\u0069d": 1, "name": "Ann", "price": 1}',
]
SPOILED = [
    b'{"id": 1, "name": "Ann", "price": 1}{}',
    b'{"id": 1, "name": "Ann", "price": 1} x',
    b'{"id": 1, "name": "Ann", "price": 1,}',
    b'{"id": 1 "name": "Ann", "price": 1}',
    b'{,"id": 1, "name": "Ann", "price": 1}',
    b'{"id": , "name": "Ann", "price": 1}',
    b'{"id": 1, "name": "A\nnn", "price": 1}',
    b'{"id": 1, "name": "A\\xnn", "price": 1}',
    b"{'id': 1, 'name': 'Ann', 'price': 1}",
    b'{"id": 1, "name": "Ann", "price": 1 /* one */}',
    b'{"id": 01, "name": "Ann", "price": 1}',
    b'{"id": 1, "name": "\\ud800", "price": 1}',
    b"{}",
    b"",
    b"null",
    b"[]",
]


def forms(record: dict) -> list[bytes]:
    """Return a record with Python's white space, with none, and over several lines."""
    spread = json.dumps(record, indent=1).replace("\n", "\r\n\t")
    return [json.dumps(record).encode(), json.dumps(record, separators=(",", ":")).encode(), f" {spread}\n".encode()]


def judged(spark, pipe: Pipeline, values: list[bytes]) -> list[dict]:
    """Return the judged rows as JSON: a fault may make a time of a year that Python does not know."""
    rows = plan(spark, frame(spark, values), pipe).rows.select("_offset", F.to_json(F.struct("*"))).collect()
    return [json.loads(row[1]) for row in sorted(rows)]


def is_plain(spark, values: list[bytes], schema: dict = SCHEMA) -> list[bool]:
    reader = JsonText(RecordSchema.parse(schema), "_", "value", nonce="none")
    texts = spark.createDataFrame(
        [(number, value.decode()) for number, value in enumerate(values)], "n INT, _text STRING"
    )
    rows = reader.decoded(texts).select("n", F.col("_doubtful").isNull().alias("plain")).collect()
    return [row["plain"] for row in sorted(rows)]


def test_the_shortcut_is_taken_for_plain_texts_only(spark):
    plain = [form for record in PLAIN for form in forms(record)]
    assert is_plain(spark, plain) == [True] * len(plain)
    assert is_plain(spark, OTHERS) == [False] * len(OTHERS)
    assert not any(is_plain(spark, [value for value in SPOILED if b"ud800" not in value]))


def spoiled(draw: random.Random, value: bytes) -> bytes:
    """Return a text with some bytes deleted, doubled or replaced by those that JSON is made of."""
    text = bytearray(value)
    for _ in range(draw.choice([1, 1, 2, 3])):
        at = draw.randrange(len(text) + 1)
        end = min(len(text), at + draw.choice([0, 1, 1, 2, 8]))
        piece = draw.choice(
            [b"", b'"', b"{", b"}", b",", b":", b"\\", b" ", b"null", b"1", b'"id":1,', bytes(text[at:end]) * 2]
        )
        text[at:end] = piece
    return bytes(text)


@pytest.mark.parametrize("unknown_fields", ["reject", "rescue"])
def test_both_ways_come_to_the_same(spark, tmp_path, monkeypatch, unknown_fields):
    draw = random.Random(7)
    whole = [form for record in PLAIN for form in forms(record)]
    values = [*whole, *OTHERS, *SPOILED, *(spoiled(draw, draw.choice(whole)) for _ in range(1_500))]
    pipe = pipeline(tmp_path, SCHEMA, decode=json_decode(unknown_fields=unknown_fields))
    short = judged(spark, pipe, values)
    monkeypatch.setattr(plain_json, "pattern", lambda _: None)
    long = judged(spark, pipe, values)
    assert len(short) == len(values)
    differing = [(value, one, other) for value, one, other in zip(values, short, long, strict=True) if one != other]
    assert differing == []
    refused = {row["_error"]["rule"] for row in short if "_error" in row}
    assert refused >= {"json", "object", "duplicate_field", "type", "required"}
    assert sum("_error" not in row for row in short) > len(whole) / 2


def test_keys_take_it_too(spark, tmp_path):
    reader = JsonText(RecordSchema.parse(SCHEMA), "_key_", "key", field_prefix="_key_field_", nonce="none")
    texts = spark.createDataFrame([(json.dumps(GOOD),)], "_key_text STRING")
    (row,) = reader.decoded(texts).select("_key_doubtful", "_key_field_name").collect()
    assert tuple(row) == (None, "Ann")


def test_long_texts_need_no_deep_recursion(spark):
    long = [json.dumps({**GOOD, "name": text * 500_000}).encode() for text in ("\n", "ab", '"a')]
    assert is_plain(spark, long) == [True] * 3
    assert is_plain(spark, [value[:-1] for value in long]) == [False] * 3


def test_many_fields(spark):
    names = [f"field_{number}" for number in range(plain_json.FIELDS_MAX + 1)]
    for count, expected in ((plain_json.FIELDS_MAX, True), (plain_json.FIELDS_MAX + 1, False)):
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names[:count]}}
        assert is_plain(spark, [json.dumps(dict.fromkeys(names[:count], "x")).encode()], schema) == [expected]


def test_nested_fields_have_no_plain_texts():
    schema = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
    assert plain_json.pattern(RecordSchema.parse(schema)) is None


def test_the_expression_is_possessive_throughout():
    found = plain_json.pattern(RecordSchema.parse(SCHEMA))
    assert found is not None
    assert not re.search(r"(?<!\\)[*+?](?![+:])(?<![*+?]\+)", found)
