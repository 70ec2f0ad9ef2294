"""Filters of records: substrings, and conditions `path op literal`. A condition is data, never code.

    value.order.total >= 100          value.items[0].sku = "A-1"       headers.source ~ web
    key = null                        value["odd name"] != true        timestamp >= "2026-01-31T12:00:00Z"

A path begins with value, key, headers, partition, offset or timestamp. Steps go into the JSON of a value or a key; a
header's step is its name. `=` and `!=` compare any JSON values, `<`, `<=`, `>` and `>=` two numbers or two texts, and
`~` and `!~` search a text in a text. A path that leads nowhere satisfies no condition. A literal is JSON, or a bare
text. The time of `timestamp` is in milliseconds since 1970, or in RFC 3339.
"""

from __future__ import annotations

import codecs
import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from admin_api.times import milliseconds

#: Bytes of a value that is read as JSON; its objects take up to 25 times as many.
JSON_BYTES_MAX = 256 * 1024
CONDITION_LENGTH_MAX = 1024
_STEPS_MAX = 32

_ROOTS = frozenset(("value", "key", "headers", "partition", "offset", "timestamp"))
_STEP = re.compile(r'\.([A-Za-z_][\w-]*)|\[(\d{1,9})\]|\["((?:[^"\\]|\\["\\])*)"\]')
_ROOT = re.compile(r"[a-z]+")
_OPERATOR = re.compile(r"\s*(!=|<=|>=|!~|=|<|>|~)\s*")
#: Letters that JSON may write with a backslash and another letter than u.
_SHORT_ESCAPES = re.compile(rb'["\\/\0-\x1f]')
_MISSING = object()

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Readable(Protocol):
    """A record, as far as filters read it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ConditionError(ValueError):
    """The text is not a condition. The message is for its writer."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One parsed condition."""

    root: str
    steps: tuple[str | int, ...]
    operator: str
    literal: Any
    #: Texts that a JSON text has in it, as UTF-8 or with a backslash, if the condition holds.
    parts: tuple[bytes, ...] = ()

    @property
    def needs(self) -> list[tuple[bytes, ...]]:
        """The bytes of which a record has some in it if the condition holds, for each text that it asks for.

        A text stands in JSON as it is, or with a backslash. In UTF-16 and UTF-32 zeros are around a quotation mark that
        is next to a bracket, a comma or a colon.
        """
        if needle := self.needle:
            return [(needle,)]
        if self.root in ("key", "value") and self.steps:
            return [(part, b"\\" if _SHORT_ESCAPES.search(part) else b"\\u", b'\0"\0') for part in self.parts]
        return []

    @property
    def needle(self) -> bytes:
        """Bytes that a record has in it as they are if the condition holds; empty where that is not known."""
        is_whole = self.root == "headers" or (self.root in ("key", "value") and not self.steps)
        if is_whole and self.operator in ("=", "~") and isinstance(self.literal, str):
            return self.literal.encode(errors="surrogatepass")
        return b""

    def holds(self, partition: int, record: Readable) -> bool:
        found = self._find(partition, record)
        if found is _MISSING:
            return False
        literal = self.literal
        if isinstance(found, bytes) and isinstance(literal, str):
            literal = literal.encode(errors="surrogatepass")
        if self.operator in ("=", "!="):
            return _same(found, literal) is (self.operator == "=")
        if self.operator in ("~", "!~"):
            is_text = isinstance(found, str | bytes) and isinstance(literal, str | bytes)
            return is_text and (literal in found) is (self.operator == "~")
        return _comparable(found, literal) and _ORDERS[self.operator](found, literal)

    def _find(self, partition: int, record: Readable) -> Any:
        """Return what the path leads to. A text that is no part of JSON stays bytes: the order of UTF-8 is the same."""
        if self.root == "partition":
            return partition
        if self.root in ("offset", "timestamp"):
            return getattr(record, self.root)
        if self.root == "headers":
            for name, content in record.headers:
                if name == self.steps[0]:
                    return content
            return _MISSING
        data = record.value if self.root == "value" else record.key
        if not self.steps:
            return self._whole(data)
        if data is None or not self._may_lead(data):
            return _MISSING
        found = json_of(data)
        for step in self.steps:
            if isinstance(step, str) and isinstance(found, dict):
                found = found.get(step, _MISSING)
            elif isinstance(step, int) and isinstance(found, list):
                found = found[step] if step < len(found) else _MISSING
            else:
                return _MISSING
        return found

    def _may_lead(self, data: bytes) -> bool:
        """Return whether it is worth to read these bytes as JSON.

        JSON may be in UTF-16 or UTF-32, with a byte order mark or with zeros in front, and may write any letter with a
        backslash.
        """
        return (
            all(part in data for part in self.parts)
            or b"\\" in data
            or b"\0" in data[:2]
            or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        )

    def _whole(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return data if isinstance(self.literal, str) else json_of(data)


@dataclass(frozen=True, slots=True)
class Filter:
    """All conditions of a request; a record must satisfy each."""

    #: Bytes that the key has in it.
    key: bytes = b""
    #: Bytes that the key, the value or a header has in it.
    anywhere: bytes = b""
    conditions: Sequence[Condition] = ()

    @property
    def needle(self) -> bytes:
        """Bytes that every record has in it that the filter admits; empty where none are known."""
        return max(self.key, self.anywhere, *(each.needle for each in self.conditions), key=len)

    @property
    def needs(self) -> list[tuple[bytes, ...]]:
        """Bytes of which every record that the filter admits has some in it, for each text that it asks for."""
        return [
            *((each,) for each in (self.key, self.anywhere) if each),
            *(needed for each in self.conditions for needed in each.needs),
        ]

    @property
    def is_empty(self) -> bool:
        return not (self.key or self.anywhere or self.conditions)

    def admits(self, partition: int, record: Readable) -> bool:
        if self.key and (record.key is None or self.key not in record.key):
            return False
        if self.anywhere and not self._is_anywhere(record):
            return False
        return all(condition.holds(partition, record) for condition in self.conditions)

    def _is_anywhere(self, record: Readable) -> bool:
        wanted = self.anywhere
        if (record.value and wanted in record.value) or (record.key and wanted in record.key):
            return True
        return any(
            wanted in name.encode(errors="surrogateescape") or (content and wanted in content)
            for name, content in record.headers
        )


def parse(text: str) -> Condition:
    """Return the condition in a text. Raises ConditionError."""
    if len(text) > CONDITION_LENGTH_MAX:
        raise ConditionError(f"a condition has at most {CONDITION_LENGTH_MAX} characters")
    text = text.strip()
    root = _ROOT.match(text)
    if root is None or root.group() not in _ROOTS:
        raise ConditionError(f"a condition begins with one of {', '.join(sorted(_ROOTS))}")
    steps, position = _steps(text, root.end())
    if root.group() == "headers":
        if len(steps) != 1 or not isinstance(steps[0], str):
            raise ConditionError('headers need one name: headers.source or headers["content-type"]')
    elif steps and root.group() not in ("value", "key"):
        raise ConditionError(f"{root.group()} has no parts")
    found = _OPERATOR.match(text, position)
    if found is None:
        raise ConditionError("after the path comes one of = != < <= > >= ~ !~")
    literal = _literal(text[found.end() :])
    if root.group() == "timestamp" and isinstance(literal, str):
        literal = _milliseconds(literal)
    if found.group(1) in ("~", "!~") and not isinstance(literal, str):
        literal = text[found.end() :]
    return Condition(root.group(), steps, found.group(1), literal, _parts(steps, found.group(1), literal))


def _parts(steps: tuple[str | int, ...], operation: str, literal: Any) -> tuple[bytes, ...]:
    """Return the names of a path, and the text that its end must have in it."""
    texts = [step for step in steps if isinstance(step, str)]
    if operation in ("=", "~") and isinstance(literal, str):
        texts.append(literal)
    return tuple(text.encode(errors="surrogatepass") for text in texts)


def json_of(data: bytes) -> Any:
    """Return the value of a JSON text, or a marker that is no JSON value and has no parts."""
    if len(data) > JSON_BYTES_MAX:
        return _MISSING
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _MISSING


def _steps(text: str, position: int) -> tuple[tuple[str | int, ...], int]:
    steps: list[str | int] = []
    while (step := _STEP.match(text, position)) is not None:
        name, index, quoted = step.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        position = step.end()
        if len(steps) > _STEPS_MAX:
            raise ConditionError(f"a path has at most {_STEPS_MAX} parts")
    return tuple(steps), position


def _literal(text: str) -> Any:
    if not text:
        raise ConditionError("the literal is missing")
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        if text[0] in "\"[{'":
            raise ConditionError("the literal begins like JSON, but is none") from None
        return text


def _milliseconds(text: str) -> int:
    try:
        return milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ConditionError("a time is a number of milliseconds, or as in 2026-01-31T12:00:00Z") from None


def _same(found: Any, literal: Any) -> bool:
    return isinstance(found, bool) is isinstance(literal, bool) and bool(found == literal)


def _comparable(found: Any, literal: Any) -> bool:
    if isinstance(found, bool) or isinstance(literal, bool):
        return False
    if isinstance(found, str | bytes):
        return isinstance(literal, str | bytes)
    return isinstance(found, int | float) and isinstance(literal, int | float)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
