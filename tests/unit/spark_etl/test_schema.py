"""A record schema is checked in full: keywords that would not be checked are refused."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, WithJsonSchema
from spark_etl.decode.json_rows import Judge
from spark_etl.errors import ConfigError
from spark_etl.schemas.fields import RecordSchema

pytestmark = pytest.mark.etl


def object_of(properties: dict, **more: object) -> dict:
    return {"type": "object", "properties": properties, **more}


def nested(levels: int) -> dict:
    spec: dict = {"type": "integer"}
    for _ in range(levels - 1):
        spec = {"type": "array", "items": spec}
    return object_of({"a": spec})


def test_nested_fields_and_their_spark_types():
    point = object_of({"x": {"type": "number"}, "y": {"type": ["integer", "null"]}}, required=["x"])
    schema = RecordSchema.parse(object_of({"points": {"type": "array", "items": point}, "first": point}))
    assert [field.spark_type for field in schema.fields] == [
        "ARRAY<STRUCT<`x`: DOUBLE, `y`: BIGINT>>",
        "STRUCT<`x`: DOUBLE, `y`: BIGINT>",
    ]
    assert RecordSchema.parse(nested(10)).fields[0].spark_type.startswith("ARRAY<ARRAY<")


def test_fields_and_their_spark_types():
    schema = RecordSchema.parse(
        object_of(
            {
                "id": {"type": "integer"},
                "at": {"type": "string", "format": "date-time", "description": "when"},
                "price": {"type": ["number", "null"]},
                "paid": {"type": "boolean"},
            },
            required=["id", "price"],
            title="Order",
        )
    )
    assert [(f.name, f.spark_type, f.required, f.nullable) for f in schema.fields] == [
        ("id", "BIGINT", True, False),
        ("at", "TIMESTAMP", False, False),
        ("price", "DOUBLE", True, True),
        ("paid", "BOOLEAN", False, False),
    ]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "type: must be object"),
        ({"type": "array"}, "type: must be object"),
        ({"type": "object"}, "properties: 1 to"),
        (object_of({}), "properties: 1 to"),
        (object_of({"a": {"type": "integer", "minimun": 1}}), "properties.a: the keyword 'minimun' is not supported"),
        (object_of({"a": object_of({"_b": {"type": "integer"}})}), "properties.a.properties._b: a field's name"),
        (object_of({"a": object_of({"b": {"type": "integer", "y": 1}})}), "properties.a.properties.b: the keyword 'y'"),
        (
            object_of({"a": object_of({"b": {"type": "integer"}}, required=["c"])}),
            "properties.a.required: must be a list of names",
        ),
        (object_of({"a": {"type": "array", "items": 3}}), "properties.a.items: must be an object"),
        (object_of({"a": {"type": "array", "items": {"type": "x"}}}), "properties.a.items.type: must be one of"),
        (object_of({"a": {"type": "array", "minItems": -1}}), "properties.a.minItems: not a value"),
        (object_of({"a": {"type": "string", "items": {"type": "string"}}}), "the keyword 'items' is not supported"),
        (nested(11), "nested deeper than 10"),
        (object_of({"a": {"type": []}}), "properties.a.type: must be one of"),
        (object_of({"a": {"anyOf": []}}), "properties.a.anyOf: must be a list of schemas"),
        (object_of({"a": {"enum": []}}), "properties.a.enum: must be a list of values"),
        (object_of({"a": {"type": "integer"}}, required=["b"]), "required: must be a list of names"),
        (object_of({"a": {"$ref": "#/$defs/x/y"}}), "properties.a.*: there is no #/.defs/x/y"),
        (object_of({"_a": {"type": "integer"}}), r"properties._a: .* decode.names, such as .\"_a\": a}"),
        (object_of({"a`b": {"type": "integer"}, "1": {}}), r"a field's name .*\"a`b\": a_b, \"1\": field_1}"),
        (object_of({"+1": {}, "-1": {}, "_a": {}, "a": {}}), "plus_1, .-1.: minus_1, ._a.: a_2}"),
        (object_of({"a": {"type": "integer"}, "A": {"type": "integer"}}), "differ only in case"),
        ({**object_of({"a": {}}), "additionalProperties": {"type": "integer"}}, "beside properties only true or false"),
    ],
)
def test_what_is_refused(document, reason):
    with pytest.raises(ConfigError, match=reason):
        RecordSchema.parse(document)


def test_a_file_names_itself_in_the_error(tmp_path):
    path = tmp_path / "orders.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"orders\.json: not JSON"):
        RecordSchema.load(path)
    twice = '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "a": {"type": "string"}}}'
    path.write_text(twice)
    with pytest.raises(ConfigError, match=r"orders\.json: not JSON: 'a' appears twice$"):
        RecordSchema.load(path)
    path.write_text('{"type": "object", "properties": {"a": {"type": "number", "minimum": NaN}}}')
    with pytest.raises(ConfigError, match=r"orders\.json: not JSON: NaN is no number$"):
        RecordSchema.load(path)
    path.write_text('{"type": "array"}')
    with pytest.raises(ConfigError, match=r"orders\.json: type: must be object"):
        RecordSchema.load(path)


def test_references_that_multiply_end_at_the_limit_of_fields():
    """Thirty definitions that each name the next one ten times would be 10³⁰ fields."""
    names = [f"D{number}" for number in range(10)]
    definitions = {
        name: object_of({f"f{field}": {"$ref": f"#/$defs/{after}"} for field in range(10)})
        for name, after in pairwise([*names, "End"])
    }
    definitions["End"] = {"type": "integer"}
    with pytest.raises(ConfigError, match="more than 2000 fields"):
        RecordSchema.parse({**object_of({"a": {"$ref": "#/$defs/D2"}}), "$defs": definitions})


def test_a_record_may_be_a_reference():
    document = {"$ref": "#/$defs/Order", "$defs": {"Order": object_of({"id": {"type": "integer"}}, required=["id"])}}
    assert RecordSchema.parse(document).fields[0].required


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")

    x: float
    y: float = Field(0, ge=0)


class Circle(BaseModel):
    shape: Literal["circle"] = "circle"
    centre: Point


class Square(BaseModel):
    shape: Literal["square"] = "square"
    side: int


class Order(BaseModel):
    """A model with what pydantic has types for."""

    id: int
    price: Annotated[Decimal, WithJsonSchema({"type": "string", "format": "decimal(12,2)"})]
    exact: Decimal | None = None
    note: str | None = None
    colour: Colour | None = None
    at: datetime
    day: date
    clock: time
    wait: timedelta
    key: UUID
    site: AnyUrl | None = None
    address: IPv4Address
    path: Path
    ratio: Annotated[float, Field(gt=0, lt=1, multiple_of=0.1)]
    code: Annotated[str, Field(min_length=1, max_length=3, pattern="^[A-Z]+$")]
    kind: Literal["a", "b"]
    tags: set[str]
    pair: tuple[float, float]
    many: tuple[int, ...] = ()
    by_name: dict[str, Point] = {}
    free: dict[str, Any] = {}
    anything: Any = None
    either: int | str = 0
    inner: Point | None = None
    points: list[Point | None] = Field(default_factory=list)
    figure: Circle | Square = Field(discriminator="shape")
    raw: bytes = b""


ORDER = Order(
    id=1,
    price=Decimal("1.50"),
    colour=Colour.RED,
    at=datetime(2026, 1, 31, 10, tzinfo=UTC),
    day=date(2026, 1, 31),
    clock=time(10, 30),
    wait=timedelta(minutes=5),
    key=UUID(int=1),
    address=IPv4Address("10.0.0.1"),
    path=Path("a/b"),
    ratio=0.3,
    code="ABC",
    kind="a",
    tags={"t"},
    pair=(1, 2.5),
    many=(1, 2, 3),
    by_name={"p": Point(x=1)},
    free={"a": [1, None]},
    anything={"b": 1.5},
    either="x",
    inner=Point(x=1, y=2),
    points=[Point(x=1), None],
    figure=Square(side=3),
)


def test_a_model_of_pydantic():
    schema = RecordSchema.parse(Order.model_json_schema(mode="serialization"))
    found, _, faults = Judge(schema.root, "value", "reject").judged(pa.array([ORDER.model_dump_json().encode()]))
    assert faults.to_pylist() == [None]
    (row,) = found.to_pylist()
    assert (row["price"], row["day"], row["pair"]) == (Decimal("1.50"), date(2026, 1, 31), [1.0, 2.5])
    assert (row["by_name"], row["points"]) == ([("p", {"x": 1.0, "y": 0.0})], [{"x": 1.0, "y": 0.0}, None])
    assert (row["figure"], row["either"], row["free"]) == ('{"shape":"square","side":3}', '"x"', '{"a":[1,null]}')
    bad = ORDER.model_copy(update={"ratio": 0.35, "code": "abc", "figure": Circle(shape="circle", centre=Point(x=1))})
    spoiled = bad.model_dump_json().replace('"circle"', '"oval"').replace('"t"', '"t","t"')
    _, _, faults = Judge(schema.root, "value", "reject").judged(pa.array([spoiled.encode()]))
    assert faults.to_pylist() == [{"rule": "type", "message": "wrong type: figure"}]
    _, _, faults = Judge(schema.root, "value", "reject").judged(
        pa.array([spoiled.replace('"oval"', '"circle"').encode()])
    )
    message = "not allowed: ratio (multipleOf), code (pattern), tags (uniqueItems)"
    assert faults.to_pylist() == [{"rule": "value", "message": message}]
    assert RecordSchema.parse(Order.model_json_schema()).names == schema.names


def test_schemas_of_genson():
    """genson 1.4 made them from the films, earthquakes and penguins of vega-datasets; the records are some of those."""
    cases = [json.loads(line) for line in (Path(__file__).parent / "genson_schemas.jsonl").read_text().splitlines()]
    assert [case["source"] for case in cases[:2]] == ["movies.json", "earthquakes.json"]
    for case in cases:
        judge = Judge(RecordSchema.parse(case["schema"], case["names"]).root, "value", "reject")
        records = [json.dumps(record).encode() for record in case["records"]]
        assert judge.judged(pa.array(records, pa.binary()))[2].to_pylist() == [None] * len(records), case["source"]
