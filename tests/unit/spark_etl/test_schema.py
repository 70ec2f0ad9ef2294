"""A record schema is checked in full: keywords that would not be checked are refused."""

import pytest
from spark_etl.errors import ConfigError
from spark_etl.schema import RecordSchema


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
        (object_of({}), "properties: 1 to"),
        (object_of({"a": {"type": "integer"}}, additionalProperties=False), "'additionalProperties' is not supported"),
        (object_of({"a": {"type": "integer", "minimum": 1}}), "properties.a: the keyword 'minimum' is not supported"),
        (object_of({"a": {"type": "map"}}), "properties.a.type: must be one of"),
        (object_of({"a": {"type": "object"}}), "properties.a.properties: 1 to 2000 fields are needed"),
        (object_of({"a": object_of({"_b": {"type": "integer"}})}), "properties.a.properties._b: a field's name"),
        (object_of({"a": object_of({"b": {"type": "integer", "x": 1}})}), "properties.a.properties.b: the keyword 'x'"),
        (
            object_of({"a": object_of({"b": {"type": "integer"}}, required=["c"])}),
            "properties.a.required: must be a list of names",
        ),
        (object_of({"a": {"type": "array"}}), "properties.a.items: must be an object"),
        (object_of({"a": {"type": "array", "items": {"type": "x"}}}), "properties.a.items.type: must be one of"),
        (object_of({"a": {"type": "array", "items": {"type": "string"}, "minItems": 1}}), "the keyword 'minItems'"),
        (object_of({"a": {"type": "string", "items": {"type": "string"}}}), "the keyword 'items' is not supported"),
        (nested(11), "nested deeper than 10"),
        (object_of({"a": {"type": ["integer", "string"]}}), "properties.a.type: must be one of"),
        (object_of({"a": {}}), "properties.a.type: must be one of"),
        (object_of({"a": {"type": "integer", "format": "date-time"}}), "properties.a.format"),
        (object_of({"a": {"type": "string", "format": "email"}}), "properties.a.format"),
        (object_of({"a": {"type": "integer"}}, required=["b"]), "required: must be a list of names"),
        (object_of({"_a": {"type": "integer"}}), "properties._a: a field's name"),
        (object_of({"a`b": {"type": "integer"}}), "a field's name"),
        (object_of({"a": {"type": "integer"}, "A": {"type": "integer"}}), "differ only in case"),
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
    path.write_text('{"type": "array"}')
    with pytest.raises(ConfigError, match=r"orders\.json: type: must be object"):
        RecordSchema.load(path)
