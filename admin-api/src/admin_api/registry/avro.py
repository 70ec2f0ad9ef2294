"""Avro, as JSON from which the same bytes can be made.

Numbers keep every digit: 64-bit ones, and decimals, which are JSON numbers with the scale of their type. Other logical
types are shown as the number or text that Avro stores: milliseconds, days, a UUID. `bytes` and `fixed` are texts with
a character for each byte, as in Avro's JSON encoding.

A value of a union is shown as itself; of one with several records, as {"full.Name": {…}}. What is encoded may name
the branch of every union in this way, as Avro's JSON encoding demands.
"""

from __future__ import annotations

import io
import json
import math
import struct
from decimal import Decimal
from typing import Any, cast

import fastavro
import fastavro.read
import fastavro.write

from admin_api.registry.calls import RefusedError, distinct

#: Digits after the point of a decimal: more would be zeros without an end.
_SCALE_MAX = 4000
_WHOLE = "millrace_whole"
_INFINITE = ("NaN", "Infinity", "-Infinity")
_BOUNDS = {"int": 2**31, "long": 2**63}
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = frozenset(("record", "error", "enum", "fixed"))
_text = json.encoder.encode_basestring


def _exact_decimal(data: bytes, schema: Any, _: Any = None) -> Decimal:
    """Return a decimal with all of its digits: fastavro's own rounds to the precision of its type."""
    unscaled = int.from_bytes(data, "big", signed=True)
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -schema.get("scale", 0)))


# The process is ours alone, and no other code in it reads Avro.
fastavro.read.LOGICAL_READERS.clear()
fastavro.read.LOGICAL_READERS.update({"bytes-decimal": _exact_decimal, "fixed-decimal": _exact_decimal})
fastavro.write.LOGICAL_WRITERS.clear()


class AvroSchema:
    def __init__(self, text: str, references: list[tuple[str, str]]) -> None:
        #: Types by their full names.
        self._named: dict[str, Any] = {}
        for _, each in references:
            fastavro.parse_schema(json.loads(each), named_schemas=self._named)
        # Types of references are known within a record alone, and one of a single field has the bytes of that field.
        whole = {"type": "record", "name": _WHOLE, "fields": [{"name": "value", "type": json.loads(text)}]}
        self._whole = cast("dict[str, Any]", fastavro.parse_schema(whole, named_schemas=self._named))
        self._schema: Any = self._whole["fields"][0]["type"]
        for each in self._named.values():
            _check_scale(each)

    def decode(self, payload: bytes) -> str:
        source = io.BytesIO(payload)
        value: Any = fastavro.schemaless_reader(
            source, self._whole, None, return_record_name=True, return_record_name_override=True
        )
        if source.tell() != len(payload):
            raise RefusedError(f"{len(payload) - source.tell()} bytes follow its value")
        parts: list[str] = []
        _show(cast("dict[str, Any]", value)["value"], parts)
        return "".join(parts)

    def encode(self, text: str) -> bytes:
        given = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=distinct)
        value = self._datum(self._schema, given, "$")
        target = io.BytesIO()
        fastavro.schemaless_writer(target, self._whole, {"value": value})
        return target.getvalue()

    def name(self) -> str:
        """Return the full name of the record. Raises RefusedError for other types."""
        found = self._named.get(self._schema) if isinstance(self._schema, str) else self._schema
        if not isinstance(found, dict) or found["type"] != "record":
            raise RefusedError("the schema is not of a record, which would name its subject")
        return str(found["name"])

    def _datum(self, schema: Any, value: Any, path: str) -> Any:
        """Return what fastavro writes for a JSON value. Raises RefusedError."""
        if isinstance(schema, list):
            return self._branch(schema, value, path)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _primitive(schema, value, path)
            schema = self._named[schema]
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self._datum(kind, value, path)
        is_decimal = schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed")
        if is_decimal and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            return _decimal(schema, value, path)
        if kind in _PRIMITIVES:
            return _primitive(kind, value, path)
        return getattr(self, f"_{'record' if kind == 'error' else kind}")(schema, value, path)

    def _record(self, schema: Any, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(path, value, schema["name"])
        fields = {field["name"]: field for field in schema["fields"]}
        if unknown := value.keys() - fields.keys():
            raise RefusedError(f"{path}: {schema['name']} has no field {min(unknown)!r}")
        found = {}
        for name, field in fields.items():
            if name in value:
                found[name] = self._datum(field["type"], value[name], f"{path}.{name}")
            elif "default" in field:
                kind = field["type"][0] if isinstance(field["type"], list) else field["type"]
                default = self._datum(kind, field["default"], f"{path}.{name}")
                found[name] = _marked(kind, default) if isinstance(field["type"], list) else default
            else:
                raise RefusedError(f"{path}: no field {name!r}, which has no default")
        return found

    def _enum(self, schema: Any, value: Any, path: str) -> str:
        if value not in schema["symbols"]:
            raise _mismatch(path, value, schema["name"])
        return str(value)

    def _fixed(self, schema: Any, value: Any, path: str) -> bytes:
        data = _bytes(value, path)
        if len(data) != schema["size"]:
            raise RefusedError(f"{path}: {len(data)} bytes, {schema['name']} has {schema['size']}")
        return data

    def _array(self, schema: Any, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _mismatch(path, value, "array")
        return [self._datum(schema["items"], each, f"{path}[{index}]") for index, each in enumerate(value)]

    def _map(self, schema: Any, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(path, value, "map")
        return {name: self._datum(schema["values"], each, f"{path}.{name}") for name, each in value.items()}

    def _branch(self, union: list[Any], value: Any, path: str) -> Any:
        """Return the value of the branch that a caller names, else of the first that it fits."""
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
            for branch in union:
                if name == _name(branch) and name != "null":
                    return _marked(branch, self._datum(branch, inner, path))
        for branch in union:
            try:
                return _marked(branch, self._datum(branch, value, path))
            except RefusedError:
                continue
        raise _mismatch(path, value, " or ".join(map(_name, union)))


def compiled(text: str, references: list[tuple[str, str]]) -> AvroSchema:
    return AvroSchema(text, references)


def _name(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    return str(branch["name"] if branch["type"] in _NAMED else branch["type"])


def _marked(branch: Any, datum: Any) -> Any:
    """Return a value of a union in fastavro's notation, which names the branch: it would guess for what is in it."""
    return (_name(branch), datum)


def _primitive(kind: str, value: Any, path: str) -> Any:
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if kind == "null" and value is None:
        return None
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind in _BOUNDS and is_number and -_BOUNDS[kind] <= value < _BOUNDS[kind] and value == int(value):
        return int(value)
    if kind in ("float", "double") and (value in _INFINITE if isinstance(value, str) else is_number):
        return _floating(kind, value, path)
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "bytes" and isinstance(value, str):
        return _bytes(value, path)
    raise _mismatch(path, value, kind)


def _floating(kind: str, value: Any, path: str) -> float:
    """Return a floating-point number. Raises RefusedError for one that would be an infinity that nobody wrote."""
    try:
        found = float(value)
        struct.pack("<f" if kind == "float" else "<d", found)  # fastavro has no such error
    except OverflowError:
        found = math.inf
    if math.isinf(found) and not isinstance(value, str):
        raise RefusedError(f"{path}: {str(value)[:60]} is too large for the type {kind}")
    return found


def _no_constant(constant: str) -> Any:
    raise RefusedError(f"{constant} is not JSON")


def _bytes(value: Any, path: str) -> bytes:
    try:
        return bytes(value.encode("latin-1"))
    except (AttributeError, UnicodeEncodeError):
        raise _mismatch(path, value, "bytes, a character for each") from None


def _decimal(schema: Any, value: int | Decimal, path: str) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise _mismatch(path, value, "decimal")
    zeros = exponent + schema.get("scale", 0)
    if zeros < 0 and any(digits[zeros:]):
        raise RefusedError(f"{path}: more than {schema.get('scale', 0)} digits after the point")
    if len(digits) + zeros > schema["precision"] and any(digits):
        raise RefusedError(f"{path}: more than {schema['precision']} digits")
    kept = (*digits, *(0,) * zeros) if zeros >= 0 else digits[:zeros]
    unscaled = int("".join(map(str, kept)) or "0")
    unscaled = -unscaled if sign else unscaled
    size = schema["size"] if schema["type"] == "fixed" else (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _check_scale(schema: Any) -> None:
    """Refuse a decimal whose text would be mostly zeros. Raises RefusedError."""
    if isinstance(schema, list):
        for each in schema:
            _check_scale(each)
    elif isinstance(schema, dict):
        if schema.get("logicalType") == "decimal" and not 0 <= schema.get("scale", 0) <= _SCALE_MAX:
            raise RefusedError(f"a decimal has the scale {schema['scale']}")
        for name in ("type", "items", "values"):
            _check_scale(schema.get(name))
        for field in schema.get("fields", ()):
            _check_scale(field["type"])


def _mismatch(path: str, value: Any, wanted: str) -> RefusedError:
    shown = type(value).__name__ if isinstance(value, (dict, list)) else repr(value)
    return RefusedError(f"{path}: {shown[:60]} is not of the type {wanted}")


def _show(value: Any, parts: list[str]) -> None:
    """Add the JSON text of a value that fastavro read."""
    if isinstance(value, str):
        parts.append(_text(value))
    elif value is None:
        parts.append("null")
    elif isinstance(value, bool):
        parts.append("true" if value else "false")
    elif isinstance(value, int):
        parts.append(int.__repr__(value))
    elif isinstance(value, float):
        parts.append(float.__repr__(value) if math.isfinite(value) else _infinite(value))
    elif isinstance(value, dict):
        opening = "{"
        for name, each in value.items():
            parts.append(f"{opening}{_text(name)}:")
            _show(each, parts)
            opening = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        opening = "["
        for each in value:
            parts.append(opening)
            _show(each, parts)
            opening = ","
        parts.append("]" if value else "[]")
    elif isinstance(value, tuple):  # a record of a union
        parts.append(f"{{{_text(value[0])}:")
        _show(value[1], parts)
        parts.append("}")
    elif isinstance(value, bytes):
        parts.append(_text(value.decode("latin-1")))
    else:
        assert isinstance(value, Decimal)
        parts.append(format(value, "f"))


def _infinite(value: float) -> str:
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
