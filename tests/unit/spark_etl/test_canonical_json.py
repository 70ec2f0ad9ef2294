"""Canonical texts of JSON take a shorter way, and come to the same rows and reasons as on the long one."""

import json
import random

import pytest

pytestmark = pytest.mark.etl

from pyspark.sql import functions as F  # noqa: E402, N812
from spark_etl.config import Pipeline  # noqa: E402
from spark_etl.decode import canonical_json  # noqa: E402
from spark_etl.decode.json_text import JsonText  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
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
RECORDS = [
    GOOD,
    {**GOOD, "price": None},
    {**GOOD, "price": -100.25, "name": ""},
    {**GOOD, "name": 'a "b" \\ \n \u20ac {}[], : '},
    {**GOOD, "at": "noon"},
    {**GOOD, "at": None},
    {**GOOD, "name": None},
    {**GOOD, "id": None, "name": None, "at": "2026-13-01T00:00:00Z"},
]
WITHOUT_NULLS = [{name: value for name, value in record.items() if value is not None} for record in RECORDS]
LACKING_PRICE = [record for record in WITHOUT_NULLS if "price" not in record]  # it must be there, and may be null
#: One whole object each, by which a text is no longer canonical.
OTHERS = [
    b'{"name":"Ann","id":1,"price":1.5}',
    b'{"id":1,"name":"Ann"}',
    b'{"id":1,"id":1,"name":"Ann","price":1.5}',
    b'{"id":1,"name":"Ann","price":1.5,"more":1}',
    b'{"id":1,"name":5,"price":1.5}',
    b'{"id":1,"name":{"a":"b"},"price":1.5}',
    b'{"id":"1","name":"Ann","price":1.5}',
    b'{"id":1.5,"name":"Ann","price":1.5}',
    b'{"id":1.0,"name":"Ann","price":1.5}',
    b'{"id":9223372036854775808,"name":"Ann","price":1.5}',
    b'{"id":1,"name":"Ann","price":NaN}',
    b'{"id":1,"name":"Ann","price":"NaN"}',
    b'{"id":1,"name":"Ann","price":"Infinity"}',
    b'{"id":1,"name":"Ann","price":"-Infinity"}',
    b'{"id":1,"name":"Ann","price":1.5,"paid":yes}',
    b'{"id":1,"name":"Ann","price":1.5,"paid":"true"}',
    b'{"\\u0069d":1,"name":"Ann","price":1.5}',
    b'{"id":1,"name":"\\u0041nn","price":1.5}',
    b'{"id":1,"name":"Ann","price":1}',
    b'{"id":1,"name":"Ann","price":1.5e0}',
    b'{ "id":1,"name":"Ann","price":1.5}',
    b'{"id":1,"name":"Ann", "price":1.5 }',
    b'{"id":1,"name":"a\\": b","price":1}',
]
SPOILED = [
    b'{"id":1,"name":"Ann","price":1.5}{}',
    b'{"id":1,"name":"Ann","price":1.5} x',
    b'{"id":1,"name":"Ann","price":1.5}\n',
    b'{"id":1,"name":"Ann","price":1.5,}',
    b'{"id":1 "name":"Ann","price":1.5}',
    b'{"id":,"name":"Ann","price":1.5}',
    b'{"id":1,"name":"A\nnn","price":1.5}',
    b'{"id":1,"name":"A\\xnn","price":1.5}',
    b"{'id':1,'name':'Ann','price':1.5}",
    b'{"id":1,"name":"Ann","price":1.5/* one */}',
    b'{"id":01,"name":"Ann","price":1.5}',
    b'{"id":1,"name":"\\ud800","price":1.5}',
    b'\xef\xbb\xbf{"id":1,"name":"Ann","price":1.5}',
    b"{}",
    b"",
    b"null",
    b"[]",
]
NESTED_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        "address": {
            "type": "object",
            "required": ["zip"],
            "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}},
        },
        "items": {
            "type": "array",
            "items": {"type": "object", "required": ["price"], "properties": {"price": {"type": "number"}}},
        },
    },
}
NESTED = {"id": 1, "tags": ["a", ""], "address": {"zip": "1000", "floor": 3}, "items": [{"price": 1.5}, {"price": 2.0}]}
NESTED_OTHERS = [
    {**NESTED, "tags": ["a", None]},
    {**NESTED, "address": {"zip": None, "floor": 3}},
    {**NESTED, "address": {"floor": 3}},
    {**NESTED, "address": None},
    {**NESTED, "address": []},
    {**NESTED, "items": [{"price": "1.5"}]},
    {**NESTED, "items": [{"price": 1.5, "more": 1}]},
    {**NESTED, "items": [{}]},
    {**NESTED, "tags": "a"},
    {**NESTED, "tags": [1]},
    {**NESTED, "items": [{"price": -0.0}]},  # 0.0 by the long way
    {"id": 1},
]


def dense(record: dict) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def spaced(record: dict) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()


def judged(spark, pipe: Pipeline, values: list[bytes]) -> list[dict]:
    """Return the judged rows as JSON: a fault may make a time of a year that Python does not know."""
    rows = plan(spark, frame(spark, values), pipe).rows.select("_offset", F.to_json(F.struct("*"))).collect()
    return [json.loads(row[1]) for row in sorted(rows)]


def is_canonical(spark, values: list[bytes], schema: dict = SCHEMA) -> list[bool]:
    reader = JsonText(RecordSchema.parse(schema), "_", "value", nonce="none")
    texts = spark.createDataFrame(
        [(number, value.decode()) for number, value in enumerate(values)], "n INT, _text STRING"
    )
    rows = reader.decoded(texts).select("n", F.col("_doubtful").isNull().alias("canonical")).collect()
    return [row["canonical"] for row in sorted(rows)]


def test_the_shortcut_is_taken_for_canonical_texts_only(spark):
    written = [form(record) for record in RECORDS for form in (dense, spaced)]
    assert is_canonical(spark, written) == [True] * len(written)
    without = [form(record) for record in WITHOUT_NULLS if "price" in record for form in (dense, spaced)]
    assert is_canonical(spark, without) == [True] * len(without)
    others = [*map(dense, LACKING_PRICE), *OTHERS]
    assert [value for value, found in zip(others, is_canonical(spark, others), strict=True) if found] == []
    assert not any(is_canonical(spark, SPOILED))


def test_nested_fields_take_it_without_null(spark):
    assert is_canonical(spark, [dense(NESTED), dense({**NESTED, "tags": []})], NESTED_SCHEMA) == [True, True]
    values = [dense(record) for record in NESTED_OTHERS]
    assert [
        value for value, found in zip(values, is_canonical(spark, values, NESTED_SCHEMA), strict=True) if found
    ] == []


def test_a_time_inside_a_nested_field_has_no_canonical_text():
    time = {"type": "string", "format": "date-time"}
    schema = {"type": "object", "properties": {"visits": {"type": "array", "items": time}}}
    assert canonical_json.types(RecordSchema.parse(schema)) is None
    assert canonical_json.types(RecordSchema.parse({"type": "object", "properties": {"at": time}})) == "`at` STRING"


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
@pytest.mark.parametrize("schema", [SCHEMA, NESTED_SCHEMA], ids=["flat", "nested"])
def test_both_ways_come_to_the_same(spark, tmp_path, monkeypatch, unknown_fields, schema):
    draw = random.Random(7)
    if schema is SCHEMA:
        whole = [form(record) for record in [*RECORDS, *WITHOUT_NULLS] for form in (dense, spaced)]
        values = [*whole, *OTHERS, *SPOILED]
    else:
        whole = [form(record) for record in (NESTED, *NESTED_OTHERS) for form in (dense, spaced)]
        values = [*whole, b'{"id":1,"id":1}', b"[]"]
    values = [*values, *(spoiled(draw, draw.choice(whole)) for _ in range(1_000))]
    pipe = pipeline(tmp_path, schema, decode=json_decode(unknown_fields=unknown_fields))
    short = judged(spark, pipe, values)
    monkeypatch.setattr(canonical_json, "types", lambda _: None)
    long = judged(spark, pipe, values)
    assert len(short) == len(values)
    differing = [(value, one, other) for value, one, other in zip(values, short, long, strict=True) if one != other]
    assert differing == []
    refused = {row["_error"]["rule"] for row in short if "_error" in row}
    assert refused >= {"json", "object", "duplicate_field", "type", "required"}
    assert sum("_error" not in row for row in short) >= 20


def test_keys_take_it_too(spark):
    reader = JsonText(RecordSchema.parse(SCHEMA), "_key_", "key", field_prefix="_key_field_", nonce="none")
    texts = spark.createDataFrame([(dense(GOOD).decode(),)], "_key_text STRING")
    (row,) = reader.decoded(texts).select("_key_doubtful", "_key_field_name").collect()
    assert tuple(row) == (None, "Ann")


def test_many_required_fields_that_may_be_null(spark):
    names = [f"field_{number}" for number in range(2_000)]
    kinds = {name: {"type": ["integer", "null"]} for name in names}
    schema = {"type": "object", "required": names, "properties": kinds}
    lacking = dict.fromkeys(names[:-1], 1)
    assert is_canonical(spark, [dense({**lacking, names[-1]: 1}), dense(lacking)], schema) == [True, False]


def test_a_text_field_with_objects_nested_as_deep_as_json_may_be(spark, tmp_path):
    values = [b'{"id":1,"price":1.5,"name":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}" for depth in (900, 998)]
    pipe = pipeline(tmp_path, SCHEMA, decode=json_decode())
    assert [row["_error"]["message"] for row in judged(spark, pipe, values)] == ["wrong type: name"] * 2


def test_long_texts(spark):
    long = [dense({**GOOD, "name": text * 500_000}) for text in ("\n", "ab", '"a')]
    assert is_canonical(spark, long) == [True] * 3
    assert is_canonical(spark, [value[:-1] for value in long]) == [False] * 3
