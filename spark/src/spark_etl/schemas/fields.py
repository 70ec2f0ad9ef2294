"""The shape of a record: typed fields, as a JSON Schema file describes them (json_schema.py)."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from spark_etl.errors import ConfigError

SCHEMA_FILE_BYTES_MAX = 1 << 20
FIELDS_MAX = 2_000
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]{0,127}$")

Scalar = Literal["string", "integer", "number", "boolean", "date-time", "date", "time", "uuid", "decimal"]
Kind = Scalar | Literal["object", "array", "map", "json"]
CSV_KINDS = ("string", "integer", "number", "boolean", "date-time")
SPARK_TYPES: dict[str, str] = {
    "string": "STRING",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "json": "STRING",  # the text of a JSON value of any shape
    "date-time": "TIMESTAMP",
    "date": "DATE",
    "time": "STRING",  # Spark has no type for it
    "uuid": "STRING",
}


@dataclass(frozen=True)
class Field:
    """A property of an object, the items of an array or the values of a map (both have the name `[]`)."""

    name: str  # in the record
    column: str  # in the row: another one by decode.names
    kind: Kind
    nullable: bool = False
    required: bool = True
    fields: tuple["Field", ...] = ()  # of an object
    items: "Field | None" = None  # of an array, or the values of a map
    options: tuple["Field", ...] = ()  # of json: one must fit
    exclusive: bool = False  # exactly one of the options
    types: tuple[str, ...] = ()  # of json: JSON's names of the types; none: any
    closed: bool = False  # of an object: no other fields, whatever decode.unknown_fields is
    digits: tuple[int, int] = (0, 0)  # of a decimal: all, and those after the point
    limits: tuple[tuple[str, Any], ...] = ()  # keyword and value: `minimum`, `pattern`, `enum` and others

    @property
    def nested(self) -> bool:
        return self.kind in ("object", "array", "map")

    @property
    def spark_type(self) -> str:
        if self.kind == "object":
            return f"STRUCT<{', '.join(f'`{field.column}`: {field.spark_type}' for field in self.fields)}>"
        if self.items is not None:
            return f"{'ARRAY<' if self.kind == 'array' else 'MAP<STRING, '}{self.items.spark_type}>"
        return "DECIMAL({}, {})".format(*self.digits) if self.kind == "decimal" else SPARK_TYPES[self.kind]


class RecordSchema(BaseModel):
    model_config = ConfigDict(frozen=True)

    root: Field

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.root.fields

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [field.column for field in self.fields]

    @classmethod
    def load(cls, path: Path, names: Mapping[str, str] | None = None) -> "RecordSchema":
        """Return the schema of a file. ConfigError: it is no JSON, or has what is not supported."""
        document = load_document(path)
        try:
            return cls.parse(document, names)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, document: Any, names: Mapping[str, str] | None = None) -> "RecordSchema":
        """Return the schema of a document; `names` are columns of properties. ConfigError: it is not supported."""
        from spark_etl.schemas import json_schema  # it imports Field

        return cls(root=json_schema.record(document, names or {}))

    def every_field(self) -> Iterable[Field]:
        """Yield the fields at all depths."""
        return _every(self.root)


def _every(field: Field) -> Iterable[Field]:
    yield field
    for inner in (*field.fields, *field.options, *([field.items] if field.items is not None else [])):
        yield from _every(inner)


def load_document(path: Path) -> Any:
    """Return a JSON document. ConfigError: the file is not there, too large, not JSON, or has a name twice."""
    try:
        with path.open("rb") as file:
            content = file.read(SCHEMA_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(content) > SCHEMA_FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {SCHEMA_FILE_BYTES_MAX} bytes")
    try:
        return document(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def document(content: str | bytes) -> Any:
    """Return a JSON document. ConfigError: it is not JSON, or has a name twice."""
    try:
        return json.loads(content, object_pairs_hook=_object_of, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from error


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # mutant: schema-names-once
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)[:128]!a} appears twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def is_column(name: Any) -> bool:
    """Return whether a name can be that of a column: letters, digits and _, a letter first."""
    return isinstance(name, str) and _NAME.match(name) is not None


def check_names(names: Iterable[Any], where: str) -> None:
    """Refuse names that cannot be columns. ConfigError: such a name, or two that differ only in case."""
    seen = set[str]()
    for name in names:
        if not is_column(name):
            raise ConfigError(
                f"{where}.{str(name)[:128]}: a field's name is letters, digits and _, and starts with a letter"
            )
        if name.lower() in seen:
            raise ConfigError(f"{where}: two names differ only in case, which Spark ignores")
        seen.add(name.lower())
