"""Avro schemas of a registry, which may be hostile: one document with its references in it, within bounds.

Named types get their full names, and a reference is replaced by the type where it is first named: Spark takes one
document. It makes columns of each mention of a type, so that mentions count, and a type in itself is refused.
"""

import json
from collections.abc import Sequence
from typing import Any

from spark_etl.errors import ConfigError
from spark_etl.schemas.fields import FIELDS_MAX

DEPTH_MAX = 64
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = ("record", "error", "enum", "fixed")
#: Attributes of a type that change how its values are read.
_KEPT = ("logicalType", "precision", "scale", "size", "symbols", "default", "aliases")


def whole(text: str, references: Sequence[tuple[str, str]]) -> Any:
    """Return the document of a schema with the types of its references. ConfigError: it is refused."""
    types = _Types()
    for name, each in references:
        types.collect(_document(each, name), "", 0)
    return types.found(_document(text, "the schema"), "", 0)


def columns(document: Any) -> list[str]:
    """Return the names of the columns of a document: the fields of a record, else `value`."""
    if isinstance(document, dict) and document.get("type") == "record":
        return [field["name"] for field in document["fields"]]
    return ["value"]


def named(document: Any) -> dict[str, Any]:
    """Return the named types of a document of `whole` by their full names."""
    found: dict[str, Any] = {}
    _add_named(document, found)
    return found


def difference(writer: Any, reader: Any) -> str | None:
    """Return where a writer's logical type has other values for the same bytes than the reader's; None if nowhere.

    Avro compares the stored types only: cents would be read as tenths of them.
    """
    return _Pairs(writer, reader).different(writer, reader, "the value")


def _document(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{name[:128]} is not JSON, or nests too deep") from None


class _Types:
    def __init__(self) -> None:
        #: Definitions in references: full name → definition, and the namespace around it.
        self._others: dict[str, tuple[dict[str, Any], str]] = {}
        #: Fields that a named type adds to the columns; None while it is open.
        self._sizes: dict[str, int | None] = {}
        self._fields = 0

    def collect(self, schema: Any, space: str, depth: int) -> None:
        """Keep the named types of a reference."""
        _check_depth(depth)
        if isinstance(schema, list):
            for each in schema:
                self.collect(each, space, depth + 1)
        elif isinstance(schema, dict):
            if schema.get("type") in _NAMED:
                full = _full_name(schema, space)
                self._others.setdefault(full, (schema, space))
                space = full.rpartition(".")[0]
            for name in ("type", "items", "values"):
                if isinstance(schema.get(name), dict | list):
                    self.collect(schema[name], space, depth + 1)
            for field in _list(schema, "fields"):
                self.collect(field.get("type"), space, depth + 1)

    def found(self, schema: Any, space: str, depth: int) -> Any:
        """Return a type with full names, and with the types that it refers to."""
        _check_depth(depth)
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVES else self._named(schema, space, depth)
        if isinstance(schema, list):
            return [self.found(each, space, depth + 1) for each in schema]
        if not isinstance(schema, dict):
            raise ConfigError("a type is neither a name nor an object nor a union")
        kind = schema.get("type")
        if kind in _NAMED:
            return self._defined(schema, space, depth)
        kept = {name: schema[name] for name in _KEPT if name in schema}
        if kind == "array" or kind == "map":
            inner = "items" if kind == "array" else "values"
            self._count(1)
            return {"type": kind, inner: self.found(schema.get(inner), space, depth + 1)}
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return {"type": kind, **kept} if kept else kind
        return self.found(kind, space, depth + 1)

    def _named(self, name: str, space: str, depth: int) -> Any:
        full = name if "." in name or not space else f"{space}.{name}"
        for each in (full, name):
            if each in self._sizes:
                size = self._sizes[each]
                if size is None:
                    raise ConfigError(f"the type {each[:128]} has itself as a part, and a column cannot")
                self._count(size)
                return each
            if each in self._others:
                return self._defined(*self._others[each], depth)
        raise ConfigError(f"the type {full[:128]} is neither in the schema nor in its references")

    def _defined(self, schema: dict[str, Any], space: str, depth: int) -> dict[str, Any]:
        full = _full_name(schema, space)
        if full in self._sizes:
            raise ConfigError(f"the type {full[:128]} is defined twice, or has itself as a part")
        self._sizes[full] = None
        space, _, name = full.rpartition(".")
        found: dict[str, Any] = {"type": schema["type"], "name": name, "namespace": space}
        found.update({each: schema[each] for each in _KEPT if each in schema})
        before = self._fields
        self._count(1)
        if schema["type"] in ("record", "error"):
            found["type"] = "record"
            fields: list[dict[str, Any]] = []
            found["fields"] = fields
            for field in _list(schema, "fields"):
                if not isinstance(field.get("name"), str):
                    raise ConfigError(f"a field of {full[:128]} has no name")
                kept: dict[str, Any] = {each: field[each] for each in ("default", "aliases") if each in field}
                self._count(1)
                kind = self.found(field.get("type"), space, depth + 1)
                fields.append({"name": field["name"], "type": kind, **kept})
        self._sizes[full] = self._fields - before
        return found

    def _count(self, fields: int) -> None:
        self._fields += fields
        if self._fields > 2 * FIELDS_MAX:
            raise ConfigError(f"it has more than {FIELDS_MAX} fields, where each mention of a type counts")


class _Pairs:
    """Compares two documents of `whole`."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._named = (named(writer), named(reader))

    def different(self, writer: Any, reader: Any, place: str) -> str | None:
        writer, reader = self._named[0].get(_key(writer), writer), self._named[1].get(_key(reader), reader)
        if isinstance(writer, list) or isinstance(reader, list):
            return self._of_union(writer, reader, place)
        mine, other = _logical(writer), _logical(reader)
        if mine and other and mine != other:
            return (
                f"{place} is {' '.join(map(str, mine))}, and {' '.join(map(str, other))} in the version of the columns"
            )
        if not (isinstance(writer, dict) and isinstance(reader, dict)):
            return None
        for inner in ("items", "values"):
            if inner in writer and inner in reader:
                return self.different(writer[inner], reader[inner], f"{place}[]")
        written = {field["name"]: field["type"] for field in writer.get("fields", ())}
        for field in reader.get("fields", ()):
            for name in (field["name"], *field.get("aliases", ())):
                if name in written:
                    found = self.different(written[name], field["type"], f"{place}.{name}")
                    if found is not None:
                        return found
                    break
        return None

    def _of_union(self, writer: Any, reader: Any, place: str) -> str | None:
        """Compare each branch with that of the same type."""
        others = reader if isinstance(reader, list) else [reader]
        for branch in writer if isinstance(writer, list) else [writer]:
            same = [each for each in others if _form(branch, self._named[0]) == _form(each, self._named[1])]
            found = self.different(branch, same[0], place) if same else None
            if found is not None:
                return found
        return None


def _add_named(schema: Any, found: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _add_named(each, found)
    elif isinstance(schema, dict):
        if schema.get("type") in _NAMED:
            found[f"{schema['namespace']}.{schema['name']}".lstrip(".")] = schema
        for name in ("items", "values"):
            _add_named(schema.get(name), found)
        for field in schema.get("fields", ()):
            _add_named(field["type"], found)


def _form(schema: Any, named: dict[str, Any]) -> Any:
    schema = named.get(_key(schema), schema)
    if isinstance(schema, dict):
        return (schema["type"], schema.get("name"))
    return (schema, None)


def _logical(schema: Any) -> tuple[Any, ...]:
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return ()
    kind = schema["logicalType"]
    return (kind, "of scale", schema.get("scale", 0)) if kind == "decimal" else (kind,)


def _key(schema: Any) -> str:
    return schema if isinstance(schema, str) else ""


def _full_name(schema: dict[str, Any], space: str) -> str:
    name, own = schema.get("name"), schema.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str) or not name:
        raise ConfigError(f"a type {schema['type']} has no name")
    return name if "." in name or not own else f"{own}.{name}"


def _list(schema: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = schema.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConfigError(f"{name} is not a list of objects")
    return found


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ConfigError(f"it nests deeper than {DEPTH_MAX}")
