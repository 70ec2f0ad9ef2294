"""JSON by a JSON Schema: shown as it is written, validated before it is encoded. No $ref is fetched."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from jsonschema import Draft7Validator, SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from admin_api.registry.calls import BadSchemaError, RefusedError, distinct

_LINE_BREAKS = str.maketrans("\r\n", "  ")


class JsonSchema:
    def __init__(self, text: str, references: list[tuple[str, str]]) -> None:
        self._text = text
        self._references = references
        self._validator: Any = None

    def decode(self, payload: bytes) -> str:
        text = payload.decode()
        json.loads(text, parse_constant=_refuse)
        return text.translate(_LINE_BREAKS)

    def encode(self, text: str) -> bytes:
        if self._validator is None:
            self._validator = self._compiled()
        try:
            self._validator.validate(json.loads(text, **_EXACTLY, object_pairs_hook=distinct))
        except ValidationError as error:
            raise RefusedError(f"{error.json_path}: {error.message}") from None
        except Unresolvable as error:
            raise BadSchemaError(f"the schema refers to {error.ref}, which is not in the registry") from None
        return text.encode()

    def name(self) -> str:
        schema = _exact(self._text)
        title = schema.get("title") if isinstance(schema, dict) else None
        if not isinstance(title, str) or not title:
            raise RefusedError("the schema has no title, which would name its subject")
        return title

    def _compiled(self) -> Any:
        try:
            schema = _exact(self._text)
        except ValueError as error:
            raise BadSchemaError(f"not JSON: {error}") from None
        found = validator_for(schema, default=Draft7Validator)
        try:
            found.check_schema(schema)
        except SchemaError as error:
            raise BadSchemaError(f"not a JSON Schema: {error.message}") from None
        # A registry without a function that retrieves: a reference that is not in it is an error.
        known = [
            (name, Resource.from_contents(_exact(text), default_specification=DRAFT7))
            for name, text in self._references
        ]
        if found.TYPE_CHECKER.is_type(1.0, "integer"):
            found = extend(found, type_checker=found.TYPE_CHECKER.redefine("integer", _is_integer))
        return found(schema, registry=Registry().with_resources(known))


def compiled(text: str, references: list[tuple[str, str]]) -> JsonSchema:
    return JsonSchema(text, references)


def _exact(text: str) -> Any:
    return json.loads(text, **_EXACTLY)


def _is_integer(_: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse(constant: str) -> Any:
    raise RefusedError(f"{constant} is not JSON")


_EXACTLY: Any = {"parse_float": Decimal, "parse_constant": _refuse}
