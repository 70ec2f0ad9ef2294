"""Strict JSON: a text → the value that the schema describes, or the reason why not.

A text is UTF-8, one whole value as RFC 8259 has it, nested at most 1,000 deep, in which no name appears twice. Numbers
are exact: those of a schema with decimals or JSON text are read as Decimal.

A part of what runs on executors, which may have no more than Python and pyarrow: it imports nothing of ours but such
parts.
"""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from spark_etl.decode.json_limits import LIMITS
from spark_etl.decode.times import days, is_clock, microseconds
from spark_etl.schemas.fields import Field

DEPTH_MAX = 1_000
MESSAGE_CHARACTERS_MAX = 500
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1
CHECKS = ("utf8", "json", "object", "duplicate_field", "type", "required", "value", "unknown_field")
BLANK = " \t\r\n"
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])  # mutant: decimal-exact
_TIMES_KEPT = 4_096

#: A function that returns a value as its column has it. It notes in the faults what does not fit.
Reader = Callable[[Any, "Faults"], Any]


class DuplicateNameError(ValueError):
    """A name appears twice in an object."""


class Number(str):
    """A number as it is written."""


class Faults:
    """Places in a record that do not fit the schema, such as `items[].price`, each once and in the order found."""

    def __init__(self) -> None:
        self.wrong: dict[str, None] = {}
        self.missing: dict[str, None] = {}
        self.refused: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.kept: set[str] = set()  # fields of the record that are, or have, an unknown field for `rescue`

    def first(self) -> tuple[str, str] | None:
        """Return rule and message of the first kind of fault."""
        for rule, text, places in (
            ("type", "wrong type", self.wrong),
            ("required", "missing or null", self.missing),
            ("value", "not allowed", self.refused),
            ("unknown_field", "unknown", self.unknown),
        ):
            if places:
                return rule, f"{text}: {', '.join(places)[:MESSAGE_CHARACTERS_MAX]}"
        return None


def parser(*, exact: bool) -> Callable[[str], Any]:
    """Return a function that parses a text; it raises ValueError or RecursionError. `exact`: fractions are Decimal."""
    fraction = Decimal if exact else None  # mutant: fractions-as-decimals
    decoder = json.JSONDecoder(object_pairs_hook=_object_of, parse_constant=_no_number, parse_float=fraction)
    scan: Any = vars(decoder)["scan_once"]  # in C

    def parsed(text: str) -> Any:
        if text[:1] != "{":
            text = text.lstrip(BLANK)
        try:
            value, end = scan(text, 0)
        except StopIteration:
            raise ValueError from None
        if end != len(text) and text[end:].strip(BLANK):  # mutant: rest-of-text-refused
            raise ValueError
        if text.count("{") + text.count("[") > DEPTH_MAX and _depth(text) > DEPTH_MAX:
            raise ValueError
        if "\\" in text and _SURROGATE.search(text):
            value = _encodable(value)
        return value

    return parsed


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # mutant: duplicate-name-refused
        seen = set[str]()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DuplicateNameError(_encodable(name))
    return found


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        sign = match[0]
        if sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
    return deepest


def _encodable(value: Any) -> Any:
    """Return a value whose texts can be UTF-8: half of a surrogate pair becomes `?`.

    DuplicateNameError: two names of an object are the same then.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        # mutant: names-stay-apart
        return _object_of([(_encodable(name), _encodable(inner)) for name, inner in value.items()])
    return [_encodable(inner) for inner in value] if isinstance(value, list) else value


def written(value: Any) -> str:
    """Return a parsed value as JSON, with all digits of its numbers and without spaces."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(name)}:{written(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def rescued(text: str, names: set[str]) -> str:
    """Return fields of a good record as a JSON object of texts: a text as it is, any other value as JSON."""
    exact = json.JSONDecoder(parse_int=Number, parse_float=Number).decode(text)
    if _SURROGATE.search(text):
        exact = _encodable(exact)
    return written({name: _as_text(value) for name, value in exact.items() if name in names})


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) and not isinstance(value, Number) else written(value)


def needs_decimals(field: Field) -> bool:
    """Return whether the schema has a value that binary fractions would change."""
    inner = (*field.fields, *field.options, *([field.items] if field.items is not None else []))
    return field.kind in ("decimal", "json") or any(map(needs_decimals, inner))


def reader(field: Field, place: str, unknown: str, root: str = "") -> Reader:
    """Return the reader of a field.

    `place` is the field's path, `root` its first part; `unknown` is decode.unknown_fields.
    """
    match field.kind:
        case "object":
            read = _object(field, place, unknown, root)
        case "array" | "map":
            read = (_array if field.kind == "array" else _map)(field, place, unknown, root)
        case "json":
            read = _json(field, place)
        case kind:
            read = _scalar(_SCALARS[kind] if kind != "decimal" else _decimal(*field.digits), place)
    return _limited(read, field, place) if field.limits else read


def _scalar(convert: Callable[[Any], Any], place: str) -> Reader:
    def read(value: Any, faults: Faults) -> Any:
        found = convert(value)
        if found is None:
            faults.wrong[place] = None
        return found

    return read


def _integer(value: Any) -> int | None:
    return value if type(value) is int and INTEGER_MIN <= value <= INTEGER_MAX else None


def _number(value: Any) -> float | None:
    if type(value) is float:
        return value
    if type(value) not in (int, Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _decimal(digits: int, scale: int) -> Callable[[Any], Any]:
    unit, bound = Decimal(1).scaleb(-scale), Decimal(10) ** (digits - scale)

    def convert(value: Any) -> Decimal | None:
        if type(value) not in (int, float, Decimal) and not (type(value) is str and _NUMBER.fullmatch(value)):
            return None
        try:
            found = Decimal(repr(value) if type(value) is float else value).quantize(unit, context=_EXACT)
        except ArithmeticError:  # more digits than the column has: nothing is rounded
            return None
        return found if -bound < found < bound else None

    return convert


def _time() -> Callable[[Any], Any]:
    known: dict[str, int | None] = {}

    def convert(value: Any) -> int | None:
        if type(value) is not str:
            return None
        if value not in known:
            if len(known) >= _TIMES_KEPT:
                known.clear()
            known[value] = microseconds(value)
        return known[value]

    return convert


def _text_that(fits: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is str and fits(value) else None


_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "string": lambda value: value if type(value) is str else None,
    "integer": _integer,
    "number": _number,
    "boolean": lambda value: value if type(value) is bool else None,
    "date-time": _time(),
    "date": lambda value: days(value) if type(value) is str else None,
    "time": _text_that(is_clock),
    "uuid": _text_that(_UUID.fullmatch),
}


def _object(field: Field, place: str, unknown: str, root: str) -> Reader:
    known = frozenset(inner.name for inner in field.fields)
    columns = tuple((inner.column, inner.name) for inner in field.fields)
    renamed = any(column != name for column, name in columns)
    before = f"{place}." if place else ""
    looks = field.closed or unknown != "ignore"
    refuses = field.closed or unknown == "reject"
    entries = []
    for inner in field.fields:
        path = before + inner.name
        plain = {"string": str, "boolean": bool, "integer": int}.get(inner.kind) if not inner.limits else None
        read = reader(inner, path, unknown, root or inner.name)
        entries.append((inner.name, path, plain, inner.required, inner.nullable, read))

    def read_object(value: Any, faults: Faults) -> Any:
        if type(value) is not dict:
            faults.wrong[place] = None
            return None
        if looks and not value.keys() <= known:
            others = [name for name in value if name not in known]
            if refuses:
                faults.unknown.update(dict.fromkeys(before + name for name in others))
            else:
                faults.kept.update([root] if root else others)
        for name, path, plain, required, may_be_null, read in entries:
            found: Any = value.get(name)
            if found is None:
                if required and not (may_be_null and name in value):
                    faults.missing[path] = None
            elif plain is None:
                value[name] = read(found, faults)
            elif type(found) is not plain or (plain is int and _integer(found) is None):
                faults.wrong[path] = None
        return {column: value.get(name) for column, name in columns} if renamed else value

    return read_object


def _array(field: Field, place: str, unknown: str, root: str) -> Reader:
    inner = field.items
    assert inner is not None
    path = f"{place}[]"
    read = reader(inner, path, unknown, root)
    nullable = inner.nullable

    def read_array(value: Any, faults: Faults) -> Any:
        if type(value) is not list:
            faults.wrong[place] = None
            return None
        if not nullable and None in value:
            faults.missing[path] = None
        return [item if item is None else read(item, faults) for item in value]

    return read_array


def _map(field: Field, place: str, unknown: str, root: str) -> Reader:
    inner = field.items
    assert inner is not None
    path = f"{place}.*"
    read = reader(inner, path, unknown, root)
    nullable = inner.nullable

    def read_map(value: Any, faults: Faults) -> Any:
        if type(value) is not dict:
            faults.wrong[place] = None
            return None
        if not nullable and None in value.values():
            faults.missing[path] = None
        return [(name, each if each is None else read(each, faults)) for name, each in value.items()]

    return read_map


def _json(field: Field, place: str) -> Reader:
    """Return the reader of a value of any shape, or of one of several types: its column is JSON text."""
    options = [reader(option, place, "ignore") for option in field.options]

    def read(value: Any, faults: Faults) -> Any:
        text = written(value)
        if (field.types and _type(value) not in field.types) or (field.closed and value):
            faults.wrong[place] = None
        elif options:
            fitting = sum(_fits(option, json.loads(text, parse_float=Decimal)) for option in options)
            if fitting == 0 or (field.exclusive and fitting > 1):
                faults.wrong[place] = None
        return text

    return read


def _fits(read: Reader, value: Any) -> bool:
    faults = Faults()
    read(value, faults)
    return faults.first() is None


def _type(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}.get(type(value), "number")


def _limited(read: Reader, field: Field, place: str) -> Reader:
    checks = [(LIMITS[word](limit), f"{place} ({word})") for word, limit in field.limits]

    def read_limited(value: Any, faults: Faults) -> Any:
        for fits, refused in checks:
            if not fits(value):
                faults.refused[refused] = None
        return read(value, faults)

    return read_limited
