"""The shape of a record: a JSON Schema file, read into typed fields.

Supported keywords:

- an object with `properties`, `required`, and the annotations `$schema $id title description`;
- each property's `type`: string, integer, number, boolean, object or array, or a pair of one of these with "null";
- `format: date-time` of a string; `properties` and `required` of an object; `items` of an array.

Any other keyword would be a check that is not made, so it is refused.

    {"type": "object", "required": ["id"],
     "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}}

A required field must be there; it may be null only when its type says so. An optional field that is null counts as
absent. An item of an array may be null only when its type says so. integer is 64 bits.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from spark_etl.errors import ConfigError

SCHEMA_FILE_BYTES_MAX = 1 << 20
FIELDS_MAX = 2_000
DEPTH_MAX = 10
_ANNOTATIONS = {"$schema", "$id", "title", "description"}
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]{0,127}$")

JsonType = Literal["string", "integer", "number", "boolean", "object", "array"]
SPARK_TYPES: dict[str, str] = {
    "string": "STRING",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "date-time": "TIMESTAMP",
}


class Field(BaseModel):
    """A property of an object, or (with the name `[]`) the items of an array."""

    model_config = ConfigDict(frozen=True)

    name: str
    json_type: JsonType
    date_time: bool
    nullable: bool
    required: bool
    fields: tuple["Field", ...] = ()  # of an object
    items: "Field | None" = None  # of an array

    @property
    def nested(self) -> bool:
        return self.json_type in ("object", "array")

    @property
    def spark_type(self) -> str:
        if self.json_type == "object":
            return f"STRUCT<{', '.join(f'`{field.name}`: {field.spark_type}' for field in self.fields)}>"
        if self.items is not None:
            return f"ARRAY<{self.items.spark_type}>"
        return SPARK_TYPES["date-time" if self.date_time else self.json_type]


class RecordSchema(BaseModel):
    model_config = ConfigDict(frozen=True)

    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @classmethod
    def load(cls, path: Path) -> "RecordSchema":
        document = load_document(path)
        try:
            return cls.parse(document)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, document: Any) -> "RecordSchema":
        if not isinstance(document, dict) or document.get("type") != "object":
            raise ConfigError("type: must be object")
        _refuse_others(document, {"type", "properties", "required"}, "schema")
        schema = cls(fields=_fields(document, "properties", 1))
        if sum(_counted(field) for field in schema.fields) > FIELDS_MAX:
            raise ConfigError(f"properties: more than {FIELDS_MAX} fields")
        return schema


def load_document(path: Path) -> Any:
    """Return a JSON document. ConfigError: the file is not there, too large, or not JSON."""
    try:
        with path.open("rb") as file:
            content = file.read(SCHEMA_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(content) > SCHEMA_FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {SCHEMA_FILE_BYTES_MAX} bytes")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error


def check_names(names: Iterable[Any], where: str) -> None:
    """Refuse names that cannot be columns. ConfigError: such a name, or two that differ only in case."""
    seen = set[str]()
    for name in names:
        if not isinstance(name, str) or not _NAME.match(name):
            raise ConfigError(
                f"{where}.{str(name)[:128]}: a field's name is letters, digits and _, and starts with a letter"
            )
        if name.lower() in seen:
            raise ConfigError(f"{where}: two names differ only in case, which Spark ignores")
        seen.add(name.lower())


def _fields(document: dict[str, Any], where: str, depth: int) -> tuple[Field, ...]:
    properties, required = document.get("properties"), document.get("required", [])
    if not isinstance(properties, dict) or not 0 < len(properties) <= FIELDS_MAX:
        raise ConfigError(f"{where}: 1 to {FIELDS_MAX} fields are needed")
    if not isinstance(required, list) or not set(map(str, required)) <= properties.keys():
        place = where.removesuffix("properties") + "required"
        raise ConfigError(f"{place}: must be a list of names under properties")
    check_names(properties, where)
    return tuple(_field(name, spec, f"{where}.{name}", depth, name in required) for name, spec in properties.items())


def _field(name: str, spec: Any, where: str, depth: int, required: bool) -> Field:
    if depth > DEPTH_MAX:
        raise ConfigError(f"{where}: nested deeper than {DEPTH_MAX}")
    if not isinstance(spec, dict):
        raise ConfigError(f"{where}: must be an object")
    types = spec.get("type")
    types = list(types) if isinstance(types, list) else [types]
    kinds = [kind for kind in types if kind != "null"]
    if len(kinds) != 1 or kinds[0] not in get_args(JsonType):
        raise ConfigError(f"{where}.type: must be one of {', '.join(get_args(JsonType))}, alone or in a list with null")
    kind = kinds[0]
    own = {"string": {"format"}, "object": {"properties", "required"}, "array": {"items"}}.get(kind, set())
    if spec.get("format") not in (None, "date-time") or ("format" in spec and kind != "string"):
        raise ConfigError(f"{where}.format: only date-time, on a string")
    _refuse_others(spec, {"type", *own}, where)
    return Field(
        name=name,
        json_type=kind,
        date_time="format" in spec,
        nullable="null" in types,
        required=required,
        fields=_fields(spec, f"{where}.properties", depth + 1) if kind == "object" else (),
        items=_field("[]", spec.get("items"), f"{where}.items", depth + 1, True) if kind == "array" else None,
    )


def _counted(field: Field) -> int:
    inner = (*field.fields, field.items) if field.items is not None else field.fields
    return 1 + sum(_counted(item) for item in inner)


def _refuse_others(document: dict[str, Any], known: set[str], where: str) -> None:
    others = sorted(document.keys() - known - _ANNOTATIONS)
    if others:
        raise ConfigError(f"{where}: the keyword {others[0]!r} is not supported")
