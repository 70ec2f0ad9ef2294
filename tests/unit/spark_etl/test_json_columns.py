"""Records that are read many at once become what each would become alone."""

import json
import random

import pyarrow as pa
import pytest
from spark_etl.decode.json_rows import Judge
from spark_etl.schemas.fields import RecordSchema

from .test_json_values import DOCUMENTS, NO_TIMES, NUMBERS, SCHEMA, TEXTS, TIMES, WHOLE
from .test_nested import GOOD, disturbed
from .test_nested import SCHEMA as ORDER

pytestmark = pytest.mark.etl

PARTS = {
    "type": "object",
    "required": ["a", "day", "of"],
    "properties": {
        "a": {"type": ["integer", "null"], "minimum": 0},
        "b": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "id": {"type": "string", "format": "uuid"},
        "kind": {"enum": ["x", "y"]},
        "of": {
            "type": ["object", "null"],
            "required": ["n"],
            "properties": {"n": {"type": ["number", "null"], "exclusiveMaximum": 0.3}, "at": {"type": "string"}},
        },
        "times": {"type": "array", "items": {"type": ["string", "null"], "format": "date-time"}},
        "rows": {
            "type": "array",
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "integer"}}},
        },
    },
}
FULL = {
    "a": 1,
    "b": True,
    "day": "2026-01-31",
    "id": "2b1d1ee9-0f4e-4a8c-a3b0-7b1b6b6d4c11",
    "kind": "x",
    "of": {"n": 0.25, "at": "é"},
    "times": ["2026-01-31T10:00:00Z", None],
    "rows": [{"k": 1}],
}
ODD = [
    *(text.encode() for text in ('{"n":-0}', '{"n":-0.0}', '{"n":-1e-400}', '{"n":Infinity}', '{"o":{"n":NaN}}')),
    *(b'{"o":{"i":1}', b"}", b'{"o":[', b"]}", b'{"i":1},{"i":1}', b'{"i":1} {"i":', b'{"s":"}', b'{"}'),
    *(WHOLE + WHOLE, WHOLE + b"\n" + WHOLE, WHOLE + b"\0}", b'{"i":1}\0{"i":2}', b'{"i":1}\0{"i":2}{"i":3}'),
    *(b'{\n"i":\n1\n}', b'{"s":"a\\u0000b"}', b'{"s":"\\udc00"}', b'{"s":"\\ud83d\\ude00"}', b'{"s":"\xed\xa0\x80"}'),
]


def judged(texts: list[bytes | None], schema: RecordSchema, unknown: str = "reject", *, together: bool) -> list[tuple]:
    judge = Judge(schema.root, "value", unknown)
    if not together:
        judge._columns = None
    found = judge.judged(pa.array(texts, pa.binary()))
    assert found[0].type == judge._type
    # by their text, in which 0.0 and -0.0 differ
    return [tuple(map(repr, row)) for row in zip(*(column.to_pylist() for column in found), strict=True)]


def check_alike(texts: list[bytes | None], schema: dict, unknown: str = "reject") -> None:
    parsed = RecordSchema.parse(schema)
    assert judged(texts, parsed, unknown, together=True) == judged(texts, parsed, unknown, together=False)


def test_each_odd_record_among_good_ones():
    fields = [*((name, text) for name, text, _ in NUMBERS), *(("s", text) for text, _ in TEXTS)]
    fields += [("t", json.dumps(text)) for text in (*NO_TIMES, *(text for text, _ in TIMES))]
    odd = [f'{{"{name}": {text}}}'.encode() for name, text in fields]
    odd += [f'{{"o": {{"{name}": {text}}}}}'.encode() for name, text in fields]
    odd += [text for text, _ in DOCUMENTS] + ODD
    good: list[bytes | None] = [b'{"i": %d, "o": {"n": 0.5}}' % number for number in range(16)]
    schema = RecordSchema.parse(SCHEMA)
    rows = judged(good, schema, together=False)
    for text, row in zip(odd, judged([*odd], schema, together=False), strict=True):
        assert judged([*good[:8], text, *good[8:]], schema, together=True) == [*rows[:8], row, *rows[8:]]
    check_alike([text for pair in zip(odd, good * 20, strict=False) for text in pair], SCHEMA)  # with each other


def test_records_that_make_two_objects_and_two_that_make_one():
    """There are as many objects in all as records, and not one in each."""
    good = [b'{"i": %d}' % number for number in range(30)]
    for halves in (
        [b'{"o":{"i":1}', b"}"],
        [b'{"o":', b'{"i":1}}'],
        [b'{"o":{"s":"}', b'{"}}'],
        [b'{"i":7}\0}', b"{}"],
    ):
        check_alike([*good, *halves, WHOLE + WHOLE], SCHEMA)
        check_alike([WHOLE + WHOLE, *halves, *good], SCHEMA)


def test_each_fault_of_a_nested_value():
    odd = [
        {"of": None},
        {"of": {}},
        {"of": {"n": None}},
        {"of": {"n": 0.3}},
        {"of": {"n": 0.1, "at": 1}},
        {"of": {"z": 1}},
    ]
    odd += [
        {"rows": [None]},
        {"rows": [{"k": 1}, {}]},
        {"rows": [{"k": None}]},
        {"rows": [[]]},
        {"rows": None},
        {"a": None},
    ]
    odd += [{"times": ["noon"]}, {"times": []}, {"a": -1}, {"kind": "z"}, {"kind": None}, {"id": "x"}, {"day": None}]
    texts: list[bytes | None] = [json.dumps(FULL).encode()] * 30
    without = {name: value for name, value in FULL.items() if name != "a"}
    absent = [without, {**without, "kind": "a"}, {**without, "of": {"n": 0.1, "at": '"a":'}}, {**without, 'x"a': 1}]
    for each in absent:
        check_alike([*texts, json.dumps(each).encode()], PARTS)
    for each in odd:
        check_alike([*texts, json.dumps({**FULL, **each}).encode()], PARTS)


@pytest.mark.parametrize("unknown", ["reject", "rescue", "ignore"])
def test_random_records(unknown):
    chance = random.Random(20261128)
    for schema, whole in ((ORDER, GOOD), (PARTS, FULL)):
        for rate in (0.0, 0.001, 0.02):
            documents = [disturbed(chance, whole, rate) for _ in range(300)]
            check_alike([None, *(json.dumps(each).encode() for each in documents)], schema, unknown)


def places(judge: Judge, texts: list[bytes]) -> list[int]:
    """Return the places of the records that were read together."""
    assert judge._columns is not None
    found: list[int] = judge._columns.read(pa.array(texts))[1].to_pylist()
    return found


def test_good_records_are_not_read_one_by_one():
    for schema, whole in ((ORDER, GOOD), (PARTS, FULL)):
        judge = Judge(RecordSchema.parse(schema).root, "value", "rescue")
        texts = [json.dumps(whole).encode()] * 5_000
        assert places(judge, texts) == list(range(5_000))
        texts[1_000], texts[2_000] = b"x", b"{}"  # the second one lacks required fields, in one row
        assert places(judge, texts) == [place for place in range(5_000) if place not in (1_000, 2_000)]
        texts[4_000] = json.dumps({**whole, "a": None}).encode() if "a" in whole else texts[0]  # required, may be null
        assert places(judge, texts) == [place for place in range(5_000) if place not in (1_000, 2_000)]
        texts[3_000] = b"{ }}"  # Arrow gives up
        assert len(places(judge, texts)) >= 4_997 - 2 * 16


def test_records_that_cannot_be_read_together_are_seldom_tried():
    judge = Judge(RecordSchema.parse(ORDER).root, "value", "ignore")
    assert places(judge, [json.dumps({**GOOD, "new": 1}).encode()] * 40) == []
    tries = [len(places(judge, [json.dumps(GOOD).encode()] * 40)) for _ in range(20)]
    assert tries == [0] * 15 + [40] * 5
    assert judge.judged(pa.array([], pa.binary()))[0] == pa.array([], judge._type)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "number", "format": "decimal"},
        {"type": "object"},
        {},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    ],
    ids=str,
)
def test_values_that_lose_digits_or_names_are_read_one_by_one(value):
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": value}}}}
    assert Judge(RecordSchema.parse(schema).root, "value", "reject")._columns is None
