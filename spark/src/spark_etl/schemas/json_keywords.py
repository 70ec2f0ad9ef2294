"""The keywords of JSON Schema: those that are known, and what their values must be.

docs/json-schema.md lists what is supported, and what is refused with its reason. A keyword that is not known would be a
check that is not made, so it is refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from spark_etl.errors import ConfigError
from spark_etl.schemas.fields import Kind

DECIMAL_DIGITS_MAX = 38
Spec = Mapping[str, Any]
Limits = tuple[tuple[str, Any], ...]

_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
#: Keywords that check nothing.
_ANNOTATIONS = {
    *("$schema", "$id", "$anchor", "$comment", "title", "description", "default", "examples", "example", "deprecated"),
    *("readOnly", "writeOnly", "contentMediaType", "contentEncoding", "discriminator", "$defs", "definitions"),
}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
OF_TYPE = {
    "string": {"format", "minLength", "maxLength", "pattern"},
    "integer": {"format", *_NUMBERS},
    "number": {"format", *_NUMBERS},
    "boolean": set[str](),
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"},
    "null": set[str](),
}
OF_EVERY_TYPE = {"type", "nullable", "enum", "const"}
#: Reasons of refusals, for keywords that are no typing errors.
_REASONS = {
    "patternProperties": "a column cannot have its name from a pattern: use additionalProperties for a map",
    "if": "a rule of the pipeline can check it",
    "not": "a rule of the pipeline can check it",
    "$dynamicRef": "only $ref is followed",
    "$recursiveRef": "only $ref is followed",
}
_KINDS: dict[str, Kind] = {"date-time": "date-time", "date": "date", "time": "time", "uuid": "uuid"}
_KINDS |= {f"uuid{number}": "uuid" for number in range(1, 9)}
#: Formats that a value is not checked for: JSON Schema leaves that open.
_UNCHECKED = {
    "string": {
        *("email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "uri-template"),
        *("iri", "iri-reference", "json-pointer", "relative-json-pointer", "regex", "duration", "time-delta"),
        *("path", "file-path", "directory-path", "binary", "base64", "base64url", "byte", "password", "color", "phone"),
        *("ipv4network", "ipv6network", "ipv4interface", "ipv6interface", "ipvanyaddress", "multi-host-uri"),
        *("name-email", "json-string"),
    },
    "integer": {"int64"},
    "number": {"double"},
}
_DECIMAL = re.compile(r"^decimal(?:\((\d{1,2})(?:, ?(\d{1,2}))?\))?$")
_DECIMAL_DIGITS = (DECIMAL_DIGITS_MAX, 18)  # of `decimal` alone


def refuse_others(spec: Spec, known: set[str], where: str) -> None:
    """Raise ConfigError if a schema has a keyword that is not known."""
    others = sorted(word for word in spec.keys() - known - _ANNOTATIONS if not word.startswith("x-"))
    if others:
        reason = f": {_REASONS[others[0]]}" if others[0] in _REASONS else ""
        raise ConfigError(f"{where}: the keyword {others[0]!r} is not supported{reason}")


def merged(parts: list[Spec], where: str) -> dict[str, Any]:
    """Return one schema for parts that must all fit. ConfigError: two have different values of a keyword."""
    found: dict[str, Any] = {}
    for part in parts:
        for word, value in part.items():
            before = found.get(word, value)
            if word in _ANNOTATIONS or before == value:
                found[word] = value
            elif word == "required" and isinstance(before, list) and isinstance(value, list):
                found[word] = [*before, *(name for name in value if name not in before)]
            elif word == "properties" and _go_together(before, value):
                found[word] = before | value
            else:
                raise ConfigError(f"{where}: {word} has two values in parts that must both fit")
    return found


def _go_together(one: Any, other: Any) -> bool:
    both = isinstance(one, dict) and isinstance(other, dict)
    return both and all(one.get(name, each) == each for name, each in other.items())


def schemas(spec: Spec, word: str, where: str) -> list[Spec]:
    """Return the schemas of `allOf`, `anyOf` or `oneOf`. ConfigError: they are no list of schemas."""
    found = spec[word]
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) or each is True for each in found):
        raise ConfigError(f"{where}.{word}: must be a list of schemas")
    return [{} if each is True else each for each in found]


def is_null(spec: Spec) -> bool:
    """Return whether a schema allows null only."""
    return spec.get("type") in ("null", ["null"]) or spec.get("enum") == [None] or ("const", None) in spec.items()


def types(spec: Spec, where: str) -> list[str]:
    """Return the types that a schema allows, by JSON's names; none: any type. ConfigError: there is no such type."""
    given = spec.get("type")
    if given is None:
        if "const" in spec or isinstance(spec.get("enum"), list):
            values = [spec["const"]] if "const" in spec else spec["enum"]
            return sorted({_type_of(value, where) for value in values})
        if {"properties", "additionalProperties"} & spec.keys():
            return ["object"]
        return ["array"] if {"items", "prefixItems"} & spec.keys() else []
    found = list(given) if isinstance(given, list) else [given]
    if not found or not all(isinstance(kind, str) and kind in _TYPES for kind in found):
        raise ConfigError(f"{where}.type: must be one of {', '.join(_TYPES)}, or a list of them")
    others = [kind for kind in dict.fromkeys(found) if kind != "integer" or "number" not in found]
    return others if len(others) == 1 else [kind for kind in others if kind != "null"] + ["null"] * ("null" in others)


def _type_of(value: Any, where: str) -> str:
    for kind, found in (("null", type(None)), ("boolean", bool), ("integer", int), ("number", float), ("string", str)):
        if isinstance(value, found):
            return kind
    raise ConfigError(f"{where}.enum: objects and arrays are not supported")


def is_decimal(spec: Spec) -> bool:
    """Return whether a schema has the format of a decimal."""
    return isinstance(spec.get("format"), str) and spec["format"].startswith("decimal")


def digits(form: str, where: str) -> tuple[int, int]:
    """Return a decimal's digits, and those after the point. ConfigError: the format has no such numbers."""
    match = _DECIMAL.match(form)
    if match is None:
        raise ConfigError(
            f"{where}.format: must be decimal, decimal(DIGITS) or decimal(DIGITS, DIGITS AFTER THE POINT)"
        )
    found, scale = (int(match[1]), int(match[2] or 0)) if match[1] is not None else _DECIMAL_DIGITS
    if not (1 <= found <= DECIMAL_DIGITS_MAX and scale <= found):
        raise ConfigError(f"{where}.format: a decimal has 1 to {DECIMAL_DIGITS_MAX} digits")
    return found, scale


def kind_of(form: Any, of: Kind, where: str) -> Kind:
    """Return the kind of texts and numbers of a format (None: none). ConfigError: the type has no such format."""
    if form is None or (isinstance(form, str) and form in _UNCHECKED[of]):
        return of
    if of == "string" and isinstance(form, str) and form in _KINDS:
        return _KINDS[form]
    known = sorted([*(_KINDS if of == "string" else []), "decimal", *_UNCHECKED[of]])
    raise ConfigError(f"{where}.format: for the type {of} one of {', '.join(known)}")


def limits(kind: str, spec: Spec, where: str) -> Limits:
    """Return the checks of a value of a type. ConfigError: one has no value of its keyword."""
    found: list[tuple[str, Any]] = []
    for word, value in spec.items():
        if word in ("enum", "const"):
            found.append(("enum", _values([value] if word == "const" else value, f"{where}.{word}")))
        elif word in OF_TYPE[kind] and word in _RIGHT:
            if not _RIGHT[word](value):
                raise ConfigError(f"{where}.{word}: not a value of this keyword")
            found += [(word, value)] if value is not False else []
    return tuple(found)


def _values(values: Any, where: str) -> tuple[tuple[bool, Any], ...]:
    """Return the values of `enum`, each with whether it is true or false: 1 is not true."""
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{where}: must be a list of values")
    for value in values:
        _type_of(value, where.rpartition(".")[0])
    return tuple((isinstance(value, bool), value) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except (re.error, RecursionError, OverflowError):
        return False


#: Whether a value is one of its keyword.
_RIGHT: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_COUNTS, lambda value: _is_number(value) and isinstance(value, int) and value >= 0),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": _is_pattern,
    "uniqueItems": lambda value: isinstance(value, bool),
}
