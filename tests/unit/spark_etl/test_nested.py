"""Nested JSON: every fault inside objects and arrays is found and named by its path."""

import json
import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from spark_etl.decode.json_rows import Judge
from spark_etl.schemas.fields import RecordSchema

pytestmark = pytest.mark.etl

ITEM = {
    "type": "object",
    "required": ["sku", "count"],
    "properties": {
        "sku": {"type": "string"},
        "count": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "sold": {"type": "string", "format": "date-time"},
    },
}
SCHEMA = {
    "type": "object",
    "required": ["id", "customer", "items"],
    "properties": {
        "id": {"type": "integer"},
        "customer": {
            "type": "object",
            "required": ["name", "address"],
            "properties": {
                "name": {"type": "string"},
                "vip": {"type": "boolean"},
                "address": {
                    "type": ["object", "null"],
                    "required": ["zip"],
                    "properties": {"zip": {"type": "string"}, "lines": {"type": "array", "items": {"type": "string"}}},
                },
            },
        },
        "items": {"type": "array", "items": ITEM},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": ["integer", "null"]}}},
    },
}
GOOD = {
    "id": 1,
    "customer": {"name": "Ann", "vip": True, "address": {"zip": "01", "lines": ["a", "b"]}},
    "items": [
        {"sku": "x", "count": 2, "price": 1.5, "sold": "2026-01-31T10:00:00Z"},
        {"sku": "y", "count": 1, "price": 2},
    ],
    "grid": [[1, None], []],
}


def changed(*path: object, to: object) -> bytes:
    document = json.loads(json.dumps(GOOD))
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = to
    return json.dumps(document).encode()


def without(*path: object) -> bytes:
    document = json.loads(json.dumps(GOOD))
    place = document
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    return json.dumps(document).encode()


def twice(old: bytes) -> bytes:
    text = json.dumps(GOOD).encode()
    assert text.count(old) == 1
    return text.replace(old, old + b", " + old)


REFUSED = [
    ("text for object", changed("customer", to="Ann"), "type", "wrong type: customer"),
    ("array for object", changed("customer", to=[1]), "type", "wrong type: customer"),
    ("object for array", changed("items", to={"sku": "x"}), "type", "wrong type: items"),
    ("number for text", changed("customer", "name", to=7), "type", "wrong type: customer.name"),
    ("text for boolean", changed("customer", "vip", to="yes"), "type", "wrong type: customer.vip"),
    (
        "number for text, two down",
        changed("customer", "address", "zip", to=1),
        "type",
        "wrong type: customer.address.zip",
    ),
    (
        "number in texts",
        changed("customer", "address", "lines", 1, to=1),
        "type",
        "wrong type: customer.address.lines[]",
    ),
    ("text for integer in an item", changed("items", 1, "count", to="1"), "type", "wrong type: items[].count"),
    ("float for integer in an item", changed("items", 0, "count", to=2.0), "type", "wrong type: items[].count"),
    ("integer too big in an item", changed("items", 0, "count", to=1 << 63), "type", "wrong type: items[].count"),
    ("text for number in an item", changed("items", 0, "price", to="2"), "type", "wrong type: items[].price"),
    ("no time in an item", changed("items", 0, "sold", to="noon"), "type", "wrong type: items[].sold"),
    ("text for an item", changed("items", 0, to="x"), "type", "wrong type: items[]"),
    ("text in a grid", changed("grid", 0, 0, to="x"), "type", "wrong type: grid[][]"),
    ("number for a row of the grid", changed("grid", 0, to=3), "type", "wrong type: grid[]"),
    ("object missing", without("customer"), "required", "missing or null: customer"),
    ("object null", changed("customer", to=None), "required", "missing or null: customer"),
    ("array null", changed("items", to=None), "required", "missing or null: items"),
    ("field missing", without("customer", "name"), "required", "missing or null: customer.name"),
    ("field null", changed("customer", "name", to=None), "required", "missing or null: customer.name"),
    ("nullable field missing", without("customer", "address"), "required", "missing or null: customer.address"),
    ("missing two down", without("customer", "address", "zip"), "required", "missing or null: customer.address.zip"),
    ("missing in one item", without("items", 1, "sku"), "required", "missing or null: items[].sku"),
    ("item null", changed("items", 1, to=None), "required", "missing or null: items[]"),
    ("row of the grid null", changed("grid", 1, to=None), "required", "missing or null: grid[]"),
    ("unknown", changed("customer", "age", to=3), "unknown_field", "unknown: customer.age"),
    (
        "unknown two down",
        changed("customer", "address", "city", to="A"),
        "unknown_field",
        "unknown: customer.address.city",
    ),
    ("unknown in an item", changed("items", 0, "colour", to="red"), "unknown_field", "unknown: items[].colour"),
    ("twice inside", twice(b'"vip": true'), "duplicate_field", "a field appears twice: vip"),
    ("twice in an item", twice(b'"sku": "y"'), "duplicate_field", "a field appears twice: sku"),
]


def judge(values: list[bytes], unknown: str = "reject") -> tuple[list, list, list]:
    """Return the fields, unknown fields and faults of records."""
    found, others, faults = Judge(RecordSchema.parse(SCHEMA).root, "value", unknown).judged(
        pa.array(values, pa.binary())
    )
    return found.to_pylist(), others.to_pylist(), [fault and tuple(fault.values()) for fault in faults.to_pylist()]


def test_every_fault_is_named():
    found, _, faults = judge([value for _, value, *_ in REFUSED])
    assert faults == [(rule, message) for _, _, rule, message in REFUSED]
    assert found == [None] * len(REFUSED)


def test_faults_of_several_levels_are_listed_together():
    document = json.loads(changed("customer", "vip", to=1))
    document["items"][0]["count"] = "2"
    document["id"] = "one"
    _, _, faults = judge([json.dumps(document).encode()])
    assert faults == [("type", "wrong type: id, customer.vip, items[].count")]


def test_good_values_keep_their_types():
    least = {"id": 2, "customer": {"name": "Bob", "address": None}, "items": []}
    rows, _, faults = judge([json.dumps(GOOD).encode(), json.dumps(least).encode()])
    assert faults == [None, None]
    assert rows[0]["customer"] == GOOD["customer"]
    assert rows[0]["items"] == [
        {"sku": "x", "count": 2, "price": 1.5, "sold": datetime(2026, 1, 31, 10, tzinfo=UTC)},
        {"sku": "y", "count": 1, "price": 2.0, "sold": None},
    ]
    assert rows[0]["grid"] == [[1, None], []]
    assert (rows[1]["customer"]["address"], rows[1]["items"], rows[1]["grid"]) == (None, [], None)


def test_rescue_keeps_a_nested_field_whole():
    document = json.loads(changed("customer", "age", to=3))
    document["note"] = "n"
    rows, others, faults = judge([json.dumps(document).encode(), json.dumps(GOOD).encode()], "rescue")
    assert faults == [None, None]
    rescued = json.loads(others[0])
    assert {name: json.loads(text) if name != "note" else text for name, text in rescued.items()} == {
        "customer": document["customer"],
        "note": "n",
    }
    assert others[1] is None
    assert rows[0]["customer"]["name"] == "Ann"


ANY = [None, True, 7, 1.5, "text", "2026-01-31T10:00:00Z", {}, [], {"zip": "1"}, ["a"], [[1]], {"sku": "x", "count": 1}]


def disturbed(chance: random.Random, value: object, rate: float) -> object:
    """Return a copy of a document in which some values are others, some fields are gone and some are new."""
    if chance.random() < rate:
        return chance.choice(ANY)
    if isinstance(value, dict):
        kept = {name: disturbed(chance, inner, rate) for name, inner in value.items() if chance.random() > rate / 2}
        return {**kept, "new": 1} if chance.random() < rate / 2 else kept
    if isinstance(value, list):
        return [disturbed(chance, inner, rate) for inner in value]
    return value


def verdict(value: object, spec: dict, required: bool) -> set[str]:
    """Return the rules that a value breaks, found without Spark."""
    kinds = spec["type"] if isinstance(spec["type"], list) else [spec["type"]]
    if value is None:
        return set() if "null" in kinds or not required else {"required"}
    kind = next(kind for kind in kinds if kind != "null")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "string": isinstance(value, str) and ("format" not in spec or value.startswith("2026")),
        "integer": number and isinstance(value, int),
        "number": number,
        "boolean": isinstance(value, bool),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
    }
    if not fits[kind]:
        return {"type"}
    broken: set[str] = set()
    if isinstance(value, dict):
        known = spec["properties"]
        broken |= {"unknown_field"} if value.keys() - known.keys() else set()
        broken |= {"required"} if set(spec.get("required", [])) - value.keys() else set()
        for name in value.keys() & known.keys():
            broken |= verdict(value[name], known[name], name in spec.get("required", []))
    if isinstance(value, list):
        for item in value:
            broken |= verdict(item, spec["items"], True)
    return broken


def test_random_documents_agree_with_a_second_judge():
    chance = random.Random(20260131)
    documents = [disturbed(chance, GOOD, chance.choice([0, 0.02, 0.1])) for _ in range(2_000)]
    documents = [document for document in documents if isinstance(document, dict)]
    rows, _, faults = judge([json.dumps(document).encode() for document in documents])
    expected = []
    for document in documents:
        broken = verdict(document, SCHEMA, True)
        expected.append(next((rule for rule in ("type", "required", "unknown_field") if rule in broken), None))
    assert [fault and fault[0] for fault in faults] == expected
    assert min(expected.count(rule) for rule in (None, "type", "required", "unknown_field")) >= 5
    for row, document, rule in zip(rows, documents, expected, strict=True):
        if rule is None:
            assert row["customer"]["name"] == document["customer"]["name"]
            assert [item["sku"] for item in row["items"]] == [item["sku"] for item in document["items"]]
