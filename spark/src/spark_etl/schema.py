"""The shape of a record: a flat JSON Schema file, read into typed fields.

Supported keywords:

- an object with `properties`, `required`, and the annotations `$schema $id title description`;
- each property's `type`: string, integer, number or boolean, or a pair of one of these with "null";
- `format: date-time` of a string.

Any other keyword would be a check that is not made, so it is refused.

    {"type": "object", "required": ["id"],
     "properties": {"id": {"type": "integer"}, "at": {"type": ["string", "null"]}}}

A required field must be there; it may be null only when its type says so. An optional field that is null counts as
absent. integer is 64 bits.
"""

import json
import re
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from spark_etl.errors import ConfigError

SCHEMA_FILE_BYTES_MAX = 1 << 20
FIELDS_MAX = 2_000
_ANNOTATIONS = {"$schema", "$id", "title", "description"}
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]{0,127}$")

JsonType = Literal["string", "integer", "number", "boolean"]
SPARK_TYPES: dict[str, str] = {
    "string": "STRING",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "date-time": "TIMESTAMP",
}


class Field(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    json_type: JsonType
    date_time: bool
    nullable: bool
    required: bool

    @property
    def spark_type(self) -> str:
        return SPARK_TYPES["date-time" if self.date_time else self.json_type]


class RecordSchema(BaseModel):
    model_config = ConfigDict(frozen=True)

    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @classmethod
    def load(cls, path: Path) -> "RecordSchema":
        try:
            with path.open("rb") as file:
                content = file.read(SCHEMA_FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        if len(content) > SCHEMA_FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {SCHEMA_FILE_BYTES_MAX} bytes")
        try:
            return cls.parse(json.loads(content))
        except ValueError as error:
            raise ConfigError(f"{path}: not JSON: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, document: Any) -> "RecordSchema":
        if not isinstance(document, dict) or document.get("type") != "object":
            raise ConfigError("type: must be object")
        _refuse_others(document, {"type", "properties", "required"}, "schema")
        properties, required = document.get("properties"), document.get("required", [])
        if not isinstance(properties, dict) or not 0 < len(properties) <= FIELDS_MAX:
            raise ConfigError(f"properties: 1 to {FIELDS_MAX} fields are needed")
        if not isinstance(required, list) or not set(map(str, required)) <= properties.keys():
            raise ConfigError("required: must be a list of names under properties")
        if len({name.lower() for name in properties}) != len(properties):
            raise ConfigError("properties: two names differ only in case, which Spark ignores")
        return cls(fields=tuple(_field(name, spec, name in required) for name, spec in properties.items()))


def _field(name: str, spec: Any, required: bool) -> Field:
    where = f"properties.{name}"
    if not _NAME.match(name):
        raise ConfigError(f"{where}: a field's name is letters, digits and _, and starts with a letter")
    if not isinstance(spec, dict):
        raise ConfigError(f"{where}: must be an object")
    _refuse_others(spec, {"type", "format"}, where)
    types = spec.get("type")
    types = list(types) if isinstance(types, list) else [types]
    kinds = [kind for kind in types if kind != "null"]
    if len(kinds) != 1 or kinds[0] not in get_args(JsonType):
        raise ConfigError(f"{where}.type: must be one of {', '.join(get_args(JsonType))}, alone or in a list with null")
    if spec.get("format") not in (None, "date-time") or ("format" in spec and kinds[0] != "string"):
        raise ConfigError(f"{where}.format: only date-time, on a string")
    return Field(name=name, json_type=kinds[0], date_time="format" in spec, nullable="null" in types, required=required)


def _refuse_others(document: dict[str, Any], known: set[str], where: str) -> None:
    others = sorted(document.keys() - known - _ANNOTATIONS)
    if others:
        raise ConfigError(f"{where}: the keyword {others[0]!r} is not supported")
