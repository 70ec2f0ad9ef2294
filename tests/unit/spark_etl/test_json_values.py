"""Texts of JSON are read as they are written: every digit, in strict form, each name once."""

import json
import pickle
import random
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from spark_etl.decode import json_rows, json_values
from spark_etl.decode.json_rows import Judge
from spark_etl.schemas.fields import RecordSchema

pytestmark = pytest.mark.etl

INNER = {
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "s": {"type": ["string", "null"]},
    "t": {"type": "string", "format": "date-time"},
}
SCHEMA = {"type": "object", "properties": {**INNER, "o": {"type": "object", "properties": INNER}}}
COLUMNS = ("_rescued", "_fault", "_key", "_key_fault")


def judge(values: list[bytes | None], schema: dict | None = None, unknown: str = "reject", **names: str) -> tuple:
    """Return the fields, unknown fields and rules of records."""
    found, others, faults = Judge(RecordSchema.parse(schema or SCHEMA, names).root, "value", unknown).judged(
        pa.array(values, pa.binary())
    )
    return found.to_pylist(), others.to_pylist(), [fault and fault["rule"] for fault in faults.to_pylist()]


def of(name: str, text: str) -> list:
    """Return what a field's text becomes, at the top and in a nested field: a value, or the rule that refuses it."""
    values = [f'{{"{name}": {text}}}', f'{{"o": {{"{name}": {text}}}}}']
    rows, _, rules = judge([value.encode() for value in values])
    top, nested = rows
    return [rules[0] or top[name], rules[1] or nested["o"][name]]


NUMBERS = [
    ("i", "0", 0),
    ("i", "-0", 0),
    ("i", "9223372036854775807", (1 << 63) - 1),
    ("i", "9223372036854775808", "type"),
    ("i", "-9223372036854775808", -1 << 63),
    ("i", "-9223372036854775809", "type"),
    *(("i", text, "type") for text in ("1.0", "1e0", "1E2", '"1"', "true", "[1]", "123456789012345678901234567890")),
    *(("i", text, "json") for text in ("01", "+1", "-", "1.", "0x10", "1_000", "NaN", "\u0663")),
    ("n", "1", 1.0),
    ("n", "-0.0", -0.0),
    ("n", "0.30000000000000004", 0.30000000000000004),
    ("n", "4.9e-324", 5e-324),
    ("n", "1.7976931348623157e308", 1.7976931348623157e308),
    ("n", "1e-400", 0.0),
    ("n", "1e400", float("inf")),
    ("n", "-1e400", float("-inf")),
    ("n", "1" * 400, float("inf")),
    ("n", "9007199254740993", 9007199254740992.0),
    ("n", "12345678901234567890", 1.2345678901234567e19),
    *(("n", text, "json") for text in ("Infinity", "-Infinity", "NaN", ".5", "5.", "1e", "1e+")),
    *(("n", text, "type") for text in ('"NaN"', "true", "{}")),
]
TEXTS = [
    ('""', ""),
    ('"\\u0000"', "\0"),
    ('"\\ud83d\\ude00"', "\U0001f600"),
    ('"\\ud800"', "?"),
    ('"\\udc00x"', "?x"),
    ('"\\ud800\\u0041"', "?A"),
    ('"\\\\ud800"', "\\ud800"),
    ('"\\/"', "/"),
    ('"\u2028\x7f"', "\u2028\x7f"),
    ("null", None),
    *((text, "type") for text in ("1", "{}", "[]", "true")),
    *((text, "json") for text in ('"a\nb"', '"\t"', '"\\x"', '"\\u12"', "'a'", '"a', "a", "nul", "True")),
]


@pytest.mark.parametrize(("name", "text", "expected"), NUMBERS, ids=[f"{row[0]}:{row[1][:25]}" for row in NUMBERS])
def test_numbers(name, text, expected):
    assert [repr(value) for value in of(name, text)] == [repr(expected)] * 2


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_texts(text, expected):
    assert of("s", text) == [expected] * 2


MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)
TIMES = [
    ("2026-01-31T10:00:00Z", MIDNIGHT.replace(hour=10)),
    ("2026-01-31", MIDNIGHT),
    ("2026-01", MIDNIGHT.replace(day=1)),
    ("2026-1-3 4:5:6", datetime(2026, 1, 3, 4, 5, 6, tzinfo=UTC)),
    ("  2026-01-31 10:00:00 ", MIDNIGHT.replace(hour=10)),
    ("2026-01-31T10:00:00", MIDNIGHT.replace(hour=10)),
    ("2026-01-31T10", MIDNIGHT.replace(hour=10)),
    ("2026-01-31T10:30", MIDNIGHT.replace(hour=10, minute=30)),
    ("2026-01-31T10:30:00.123456789Z", MIDNIGHT.replace(hour=10, minute=30, microsecond=123456)),
    ("2026-01-31T10:30:00.1+05:30", MIDNIGHT.replace(hour=5, microsecond=100000)),
    ("2026-01-31T10:30:00+02", MIDNIGHT.replace(hour=8, minute=30)),
    ("2026-01-31T10:30:00-0200", MIDNIGHT.replace(hour=12, minute=30)),
    ("2026-01-31T20:30:00+18:00", MIDNIGHT.replace(hour=2, minute=30)),
    ("2026-01-31T10:30:00 UTC", MIDNIGHT.replace(hour=10, minute=30)),
    ("2026-01-31T10:30:00UTC+1", MIDNIGHT.replace(hour=9, minute=30)),
    ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
    ("2000-02-29T00:00:00Z", datetime(2000, 2, 29, tzinfo=UTC)),
    ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ("1582-10-10T00:00:00Z", datetime(1582, 10, 10, tzinfo=UTC)),
    ("1969-12-31T23:59:59.5Z", datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC)),
    ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
]
NO_TIMES = [
    *("", "noon", "2026", "170670", "12:30", "T12:30:00", "12:30-05:00", "999-01-01", "1234567-01-01", "-2026-01-01"),
    *("2026-13-01", "2026-00-10", "2026-01-00", "2026-02-29", "1900-02-29", "2026-04-31", "2026/01/31", "20260131"),
    *("2026-01-31T24:00:00Z", "2026-01-31T10:61:00Z", "2026-01-31T23:59:60Z", "2026-01-31T", "2026-01-31T10:"),
    *("2026-01-31T10:30Z", "2026-01-31t10:00:00Z", "2026-01-31T10:00:00z", "2026-01-31T10:00:00+18:01", "2026-W05-6"),
    *("2026-01-31 10:00:00 CST", "2026-03-08 02:30:00 America/New_York", "2026-01-31T10:00:00+", "294248-01-01"),
]


def test_times():
    values = [json.dumps({"t": text}).encode() for text, _ in TIMES]
    rows, _, rules = judge(values)
    assert rules == [None] * len(values)
    assert [(text, row["t"]) for (text, _), row in zip(TIMES, rows, strict=True)] == TIMES


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time(text):
    assert of("t", json.dumps(text)) == ["type", "type"]


def test_days_agree_with_pythons():
    draw = random.Random(3)
    days = [date.fromordinal(draw.randrange(1, date.max.toordinal() + 1)) for _ in range(2_000)]
    schema = {"type": "object", "properties": {"d": {"type": "string", "format": "date"}}}
    rows, _, _ = judge([json.dumps({"d": str(day)}).encode() for day in days], schema)
    assert [row["d"] for row in rows] == days


WHOLE = b'{"i": 1}'
DOCUMENTS = [
    *((value, None) for value in (WHOLE, b" \n" + WHOLE + b"\t\r\n", b"{}", b'{"\\u0069": 1}', b'{"i" :1}')),
    *((value, "duplicate_field") for value in (b'{"i":1,"i":1}', b'{"\\u0069":1,"i":1}', b'{"o":{"i":1,"i":1}}')),
    (b'{"x":[{"a":1,"a":1}]}', "duplicate_field"),
    *((value, "duplicate_field") for value in (b'{"\\ud800":1,"\\ud800":1}', b'{"x":{"\\ud800":1,"\\udc00":2}}')),
    (b'{"i":1,"I":2}', "unknown_field"),
    *((value, "object") for value in (b"[]", b"null", b"7", b'"x"')),
    *((value, "json") for value in (b"", b"  ", WHOLE + WHOLE, WHOLE + b" x", WHOLE + b"}", WHOLE[:5])),
    *(
        (value, "json")
        for value in (b'{"i":1,}', b'{"i":1,,"n":2}', b"{'i':1}", b"{i:1}", b'{"i"=1}', b'{"i":1;"n":1}')
    ),
    *((value, "json") for value in (b"\xef\xbb\xbf" + WHOLE, WHOLE + b"\0", b"\x0c" + WHOLE, "\u00a0{}".encode())),
    *((value, "json") for value in (b'{"i":1/**/}', WHOLE + b"//x", b'{"i":' + b"1" * 5_000 + b"}")),
    *((value, "utf8") for value in (b'{"s":"\xff"}', b'{"s":"\xed\xa0\x80"}', b'{"s":"\xc0\xaf"}', b"\xff\xfe{\0")),
    (b'{"s":' + b"[" * 900 + b"]" * 900 + b"}", "type"),
    (b'{"s":' + b"[" * 999 + b"]" * 999 + b"}", "type"),
    (b'{"s":' + b"[" * 1_000 + b"]" * 1_000 + b"}", "json"),
    (b"[" * 100_000, "json"),
    (b'{"s":"' + b"[{" * 1_000 + b'"}', None),
]


def test_documents():
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3_500))  # as json_rows.rows does
    found = judge([value for value, _ in DOCUMENTS])[2]
    assert [(value[:40], rule) for (value, _), rule in zip(DOCUMENTS, found, strict=True)] == [
        (value[:40], rule) for value, rule in DOCUMENTS
    ]


def test_decimals_are_exact():
    schema = {"type": "object", "properties": {"d": {"type": ["number", "string"], "format": "decimal(20,2)"}}}
    good = ["123456789012345678.99", "1e2", "-0.10", '"5.5"', "0.100", "12345678901234567", "0e99"]
    rows, _, rules = judge([b'{"d": %s}' % text.encode() for text in good], schema)
    assert rules == [None] * len(good)
    expected = ["123456789012345678.99", "100.00", "-0.10", "5.50", "0.10", "12345678901234567.00", "0.00"]
    assert [row["d"] for row in rows] == list(map(Decimal, expected))
    bad = ["1e18", "0.001", "1e-3", "1e999999999", "1e-999999999", '""', '"1,5"', '" 1"', '"NaN"', "true", "1e18.5"]
    assert judge([b'{"d": %s}' % text.encode() for text in bad], schema)[2] == ["type"] * (len(bad) - 1) + ["json"]
    assert judge([b'{"d": 1e9999999999999999999}'], schema)[2] == ["json"]


def test_json_text_keeps_every_digit():
    schema = {"type": "object", "properties": {"a": {}, "n": {"type": "number"}}}
    text = '{"x":[1.10,-0,12345678901234567890,1E+400,true,null],"\u00e9":"\\u00e9\\ud800"}'
    rows, _, _ = judge([f'{{"a": {text}, "n": 0.1}}'.encode()], schema)
    assert rows[0]["a"] == '{"x":[1.10,0,12345678901234567890,1E+400,true,null],"\u00e9":"\u00e9?"}'
    assert rows[0]["n"] == 0.1


def test_no_name_is_lost_where_two_become_the_same():
    schema = {
        "type": "object",
        "properties": {"a": {}, "m": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    twice = [b'{"\\ud800": 1, "\\udbff": 2}', b'{"?": 1, "\\ud800": 2}']
    values = [b'{"%s": %s}' % (name, text) for name in (b"a", b"m") for text in (*twice, b'{"\\ud800": 1, "x": 2}')]
    rows, _, rules = judge(values, schema)
    assert rules == [*["duplicate_field"] * 2, None] * 2
    assert rows[2]["a"] == '{"?":1,"x":2}'
    assert rows[5]["m"] == [("?", 1), ("x", 2)]
    assert judge([b'{"b": {"\\ud800": 1, "\\udbff": 2}}'], schema, "rescue")[2] == ["duplicate_field"]


def test_unknown_fields_are_kept_as_they_are():
    record = b'{"z": 1.10, "i": 1, "s": null, "t2": "x", "o": {"i": 2, "y": 1e400}, "e": null}'
    rows, others, rules = judge([record, WHOLE], unknown="rescue")
    assert rules == [None, None]
    assert others == ['{"z":"1.10","t2":"x","o":"{\\"i\\":2,\\"y\\":1e400}","e":null}', None]
    assert rows[0]["o"]["i"] == 2
    assert judge([record], unknown="ignore")[1:] == ([None], [None])
    assert judge([record], unknown="reject")[2] == ["unknown_field"]


def test_names_of_any_kind():
    properties = {"US Gross": {"type": "integer"}, "_links": {"type": "object", "properties": {"US Gross": {}}}}
    schema = {
        "type": "object",
        "required": ["US Gross"],
        "properties": {**properties, "Gr\u00f6\u00dfe": {"type": "string"}},
    }
    names = {"US Gross": "gross", "_links": "links", "Gr\u00f6\u00dfe": "size"}
    values = [{"US Gross": 1, "_links": {"US Gross": 2}, "Gr\u00f6\u00dfe": "x", "gross": 9}, {"gross": 1}]
    rows, _, rules = judge([json.dumps(value).encode() for value in values], schema, "ignore", **names)
    assert rows == [{"gross": 1, "links": {"gross": "2"}, "size": "x"}, None]
    assert rules == [None, "required"]


def test_batches_are_judged_in_parts_and_by_code_that_travels(tmp_path, monkeypatch):
    """The executor has pyspark and pyarrow, and no package of ours."""
    monkeypatch.setattr(json_rows, "BYTES_MAX", 100)
    json_rows.shipped()
    value, key = RecordSchema.parse(SCHEMA).root, RecordSchema.parse({"type": "object", "properties": {"k": {}}}).root
    values = [WHOLE, None, b"x" * 150, b'{"z": 1}', WHOLE]
    keys = [None, b'{"k": 1}', b"\xff", b'{"l": 1}', b"x" * 60]
    batch = pa.RecordBatch.from_arrays([pa.array(values), pa.array(keys)], names=["_raw_value", "_raw_key"])
    work = tmp_path / "work.pickle"
    work.write_bytes(
        cloudpickle.dumps((json_rows.rows(value, key, "rescue", COLUMNS, ("_raw_value", "_raw_key")), batch))
    )
    program = (
        "import pickle, sys; rows, batch = pickle.load(open(sys.argv[1], 'rb')); found = list(rows([batch]));"
        " assert not [name for name in sys.modules if name.startswith(('spark_etl', 'pydantic'))];"
        " pickle.dump([part.to_pylist() for part in found], open(sys.argv[1], 'wb'))"
    )
    subprocess.run([sys.executable, "-c", program, str(work)], check=True, timeout=60)
    found = pickle.loads(work.read_bytes())
    assert [len(part) for part in found] == [2, 1, 2]
    rows = [row for part in found for row in part]
    assert [row["_raw_value"] for row in rows] == values
    assert [row["i"] for row in rows] == [1, None, None, None, 1]
    assert [row["_rescued"] for row in rows] == [None, None, None, '{"z":"1"}', None]
    assert [row["_fault"] and row["_fault"]["rule"] for row in rows] == [None, None, "json", None, None]
    assert [row["_key"] for row in rows] == [None, {"k": "1"}, None, None, None]
    assert [row["_key_fault"] and tuple(row["_key_fault"].values()) for row in rows] == [
        None,
        None,
        ("utf8", "the key is not UTF-8"),
        ("key_unknown_field", "key: unknown: l"),
        ("key_json", "key: the key is not one whole JSON value"),
    ]


def test_a_value_that_arrow_refuses_is_a_fault_of_its_record(monkeypatch):
    """Whatever the reader overlooks stops no batch."""
    schema = {"type": "object", "properties": {"t": {"type": "string", "format": "date-time"}}}
    monkeypatch.setitem(json_values._SCALARS, "date-time", lambda text: (1 << 70) if text == "late" else 0)
    rows, _, rules = judge([b'{"t": "early"}', b'{"t": "late"}', b'{"t": "early"}'], schema)
    assert rules == [None, "type", None]
    assert [row and row["t"].year for row in rows] == [1970, None, 1970]
