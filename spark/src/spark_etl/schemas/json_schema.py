"""A JSON Schema document, read into fields: what generators such as pydantic and genson write.

docs/json-schema.md lists what is supported, and what is refused with its reason.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_etl.errors import ConfigError
from spark_etl.schemas import json_keywords as keywords
from spark_etl.schemas.fields import FIELDS_MAX, Field, Kind, is_column
from spark_etl.schemas.json_keywords import OF_EVERY_TYPE, OF_TYPE, Spec

DEPTH_MAX = 10
_SUGGESTIONS_MAX = 200


def record(document: Any, names: Mapping[str, str]) -> Field:
    """Return the object that a document describes. ConfigError: it is none, or something in it is not supported.

    `names` gives properties of these names, at any depth, other names as columns.
    """
    reader = _Reader(document, names)
    root = reader.root()
    reader.check_columns()
    return root


@dataclass(frozen=True)
class _Place:
    """The place of a schema in the document, and what is known of its value from outside."""

    name: str
    where: str
    depth: int
    refs: tuple[str, ...] = ()  # pointers that led here
    required: bool = True
    nullable: bool = False

    def inner(self, name: str, suffix: str, *, required: bool = True) -> "_Place":
        where = f"{self.where}.{suffix}" if self.where else suffix
        return _Place(name, where, self.depth + 1, self.refs, required)


class _Reader:
    def __init__(self, document: Any, names: Mapping[str, str]) -> None:
        self._document = document
        self._names = names
        self._fields = 0
        self._columns = set[str]()  # in small letters
        self._unfit: dict[str, str] = {}  # a property's name that is no column's, and its first place

    def root(self) -> Field:
        if not isinstance(self._document, dict):
            raise ConfigError("type: must be object")
        spec, place = self._resolved(self._document, _Place("", "", 0))
        if spec.get("type", "object") != "object":
            raise ConfigError("type: must be object")
        if not spec.get("properties"):
            raise ConfigError(f"properties: 1 to {FIELDS_MAX} fields are needed")
        return self._of_type("object", spec, place)

    def check_columns(self) -> None:
        """Refuse names that are no columns, all at once."""
        if not self._unfit:
            return
        (_, where), *_ = self._unfit.items()
        chosen = list(self._unfit)[:_SUGGESTIONS_MAX]
        suggested = ", ".join(f'"{each[:128]}": {self._suggestion(each)}' for each in chosen)
        more = f" and {len(self._unfit) - len(chosen)} more" if len(self._unfit) > len(chosen) else ""
        raise ConfigError(
            f"{where}: a field's name is letters, digits and _, and starts with a letter: name the columns by"
            f" decode.names, such as {{{suggested}}}{more}"
        )

    def _suggestion(self, name: str) -> str:
        """Return a column for a name that no property has."""
        sign = {"+": "plus_", "-": "minus_"}.get(name[:1], "")
        found = sign + re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:100]
        found = found if is_column(found) else f"field_{found}".rstrip("_")
        chosen, number = found, 2
        while chosen.lower() in self._columns:
            chosen, number = f"{found}_{number}", number + 1
        self._columns.add(chosen.lower())
        return chosen

    def _field(self, spec: Any, place: _Place) -> Field:
        self._fields += 1
        if self._fields > FIELDS_MAX:
            raise ConfigError(f"properties: more than {FIELDS_MAX} fields")
        if place.depth > DEPTH_MAX:
            raise ConfigError(f"{place.where}: nested deeper than {DEPTH_MAX}")
        spec, place = self._resolved(spec, place)
        union = next((word for word in ("anyOf", "oneOf") if word in spec), None)
        if union is not None:
            return self._union(union, spec, place)
        types = keywords.types(spec, place.where)
        kinds = [kind for kind in types if kind != "null"]
        if len(kinds) < len(types) or spec.get("nullable") is True or not types:
            place = replace(place, nullable=True)
        if len(kinds) == 1:
            return self._of_type(kinds[0], spec, place)
        keywords.refuse_others(spec, OF_EVERY_TYPE.union(*(OF_TYPE[kind] for kind in kinds)), place.where)
        if not kinds:
            more = {"types": ("null",)} if types else {"limits": keywords.limits("null", spec, place.where)}
            return self._made("json", place, **more)
        parts = [
            {"type": kind, **{word: value for word, value in spec.items() if word in OF_TYPE[kind]}} for kind in kinds
        ]
        whole = {word: spec[word] for word in ("enum", "const", "format") if word in spec}
        return self._union("anyOf", {**whole, "anyOf": parts}, place)

    def _union(self, word: str, spec: Spec, place: _Place) -> Field:
        """Return a field with one of several types: JSON text, unless all are numbers, or parts of a decimal."""
        decimal = keywords.is_decimal(spec)
        keywords.refuse_others(spec, {word, "enum", "const", "nullable", "format"}, place.where)
        options = tuple(
            self._field(
                {key: value for key, value in member.items() if not decimal or key != "format"},
                place.inner("[]", f"{word}[{number}]"),
            )
            for number, member in enumerate(spec[word])
        )
        kinds = {option.kind for option in options}
        limits = keywords.limits("null", spec, place.where)
        if decimal and kinds <= {"integer", "number", "string"}:
            return self._made("decimal", place, digits=keywords.digits(spec["format"], place.where), limits=limits)
        if decimal:
            raise ConfigError(f"{place.where}.format: decimal is for numbers and texts")
        if kinds <= {"integer", "number"} and not any(option.limits for option in options):
            return self._made("number", place, limits=limits)
        return self._made("json", place, options=options, exclusive=word == "oneOf", limits=limits)

    def _of_type(self, kind: str, spec: Spec, place: _Place) -> Field:
        """Return a field of one of JSON's types."""
        keywords.refuse_others(spec, OF_TYPE[kind] | OF_EVERY_TYPE, place.where or "schema")
        limits = keywords.limits(kind, spec, place.where)
        match kind:
            case "object":
                return self._object(spec, place, limits)
            case "array":
                return self._array(spec, place, limits)
            case "boolean":
                return self._made("boolean", place, limits=limits)
            case "string" | "integer" | "number" if not keywords.is_decimal(spec):
                return self._made(keywords.kind_of(spec.get("format"), kind, place.where), place, limits=limits)
        return self._made("decimal", place, digits=keywords.digits(spec["format"], place.where), limits=limits)

    def _object(self, spec: Spec, place: _Place, limits: keywords.Limits) -> Field:
        properties, required = spec.get("properties", {}), spec.get("required", [])
        before = f"{place.where}." if place.where else ""
        if not isinstance(properties, dict):
            raise ConfigError(f"{before}properties: must be an object")
        if not isinstance(required, list) or not set(map(str, required)) <= properties.keys():
            raise ConfigError(f"{before}required: must be a list of names under properties")
        others = spec.get("additionalProperties", True)
        if not isinstance(others, bool | dict):
            raise ConfigError(f"{before}additionalProperties: must be a schema")
        closed, typed = others is False, isinstance(others, dict) and bool(others)
        if not properties and typed:
            values = self._field(others, place.inner("[]", "additionalProperties"))
            return self._made("map", place, items=values, limits=limits)
        if not properties:
            return self._made("json", place, types=("object",), closed=closed, limits=limits)
        if typed:
            raise ConfigError(
                f"{before}additionalProperties: beside properties only true or false: a column has fields of its own"
                " or is a map"
            )
        fields = tuple(
            self._field(each, place.inner(name, f"properties.{name}", required=name in required))
            for name, each in properties.items()
        )
        columns = {field.column.lower() for field in fields}
        if len(columns) < len(fields):
            raise ConfigError(
                f"{before}properties: two names differ only in case, which Spark ignores: give one another column by"
                " decode.names"
            )
        self._columns |= columns
        for field in fields:
            if not is_column(field.column):
                self._unfit.setdefault(field.name, f"{before}properties.{field.name[:128]}")
        return self._made("object", place, fields=fields, closed=closed, limits=limits)

    def _array(self, spec: Spec, place: _Place, limits: keywords.Limits) -> Field:
        items, first = spec.get("items", True), spec.get("prefixItems")
        if isinstance(items, list):  # drafts before 2020 write prefixItems so
            items, first = True, items
        if first is not None:
            fixed = first and {("minItems", len(first)), ("maxItems", len(first))} <= set(limits)
            if not fixed or any(each != first[0] for each in first) or items not in (True, False, first[0]):
                raise ConfigError(
                    f"{place.where}.prefixItems: all items must have one type, and minItems and maxItems be their"
                    " number"
                )
            items = first[0]
        if items is True or items == {}:
            return self._made("json", place, types=("array",), limits=limits)
        return self._made("array", place, items=self._field(items, place.inner("[]", "items")), limits=limits)

    def _made(self, kind: Kind, place: _Place, **more: Any) -> Field:
        column = self._names.get(place.name, place.name)
        return Field(place.name, column, kind, nullable=place.nullable, required=place.required, **more)

    def _resolved(self, spec: Any, place: _Place) -> tuple[dict[str, Any], _Place]:
        """Return a schema without $ref, allOf and unions with null, and its place."""
        if spec is True:
            return {}, place
        if not isinstance(spec, dict):
            raise ConfigError(
                f"{place.where}: must be an object" + (": no value would fit false" if spec is False else "")
            )
        while True:
            union = next((word for word in ("anyOf", "oneOf") if word in spec), None)
            if "$ref" in spec:
                target, place = self._target(spec["$ref"], place)
                spec = keywords.merged([target, _without(spec, "$ref")], place.where)
            elif "allOf" in spec:
                parts: list[Spec] = []
                for part in keywords.schemas(spec, "allOf", place.where):
                    resolved, place = self._resolved(part, place)
                    parts.append(resolved)
                spec = keywords.merged([*parts, _without(spec, "allOf")], place.where)
            elif union is not None:
                members = keywords.schemas(spec, union, place.where)
                others = [member for member in members if not keywords.is_null(member)]
                place = replace(place, nullable=place.nullable or len(others) < len(members))
                if len(others) > 1:
                    return {**spec, union: others}, place
                spec = keywords.merged([_without(spec, union), others[0] if others else {"type": "null"}], place.where)
            else:
                return spec, place

    def _target(self, pointer: Any, place: _Place) -> tuple[Spec, _Place]:
        """Return the schema that a pointer names, and its place."""
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise ConfigError(f"{place.where}.$ref: only a pointer into this file, such as #/$defs/Name")
        if pointer in place.refs or pointer == "#":
            raise ConfigError(
                f"{place.where}.$ref: {pointer} contains itself, as no column can: put"
                ' {"type": "object"} there, for a column of JSON text'
            )
        found = self._document
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise ConfigError(f"{place.where}.$ref: there is no {pointer[:200]}")
            found = found[key]
        if not isinstance(found, dict | bool) or found is False:
            raise ConfigError(f"{place.where}.$ref: {pointer[:200]} is no schema")
        return found if isinstance(found, dict) else {}, replace(place, refs=(*place.refs, pointer))


def _without(spec: Spec, word: str) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key != word}
