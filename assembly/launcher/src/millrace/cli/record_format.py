"""The form of records at the command line: kcat's format strings, and one JSON object a line.

    %t topic  %p partition  %o offset  %T timestamp in ms  %k key  %K its length  %s or %v value  %S its length
    %R length of the value as 4 bytes, big-endian  %h headers as NAME=VALUE,…  %% a percent sign
    \\n \\r \\t \\0 \\xHH \\\\

A length of -1 stands for null. A JSON object has `key` and `value` as text, or `key_base64` and `value_base64` where
the bytes are not UTF-8, so that every record can be written and read again. The same goes for the `name` of a header.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from protocol_lib.records.record import KEY_ERRORS

from millrace.cli.errors import USAGE, CliError


class ShownRecord(Protocol):
    """The record that a consumer returns."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any


@dataclass(frozen=True)
class NewRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


_Piece = Callable[[ShownRecord], bytes]


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _headers(record: ShownRecord) -> bytes:
    return b",".join(
        name.encode(errors=KEY_ERRORS) + b"=" + (b"NULL" if value is None else value) for name, value in record.headers
    )


_FIELDS: dict[str, _Piece] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "s": lambda record: record.value or b"",
    "v": lambda record: record.value or b"",
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "h": _headers,
    "%": lambda _record: b"%",
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def compiled(text: str) -> _Piece:
    """Return the function that writes a record by a format string. Raises CliError for an unknown letter."""
    if re.search(r"(?<!%)(?:%%)*%$", text):
        raise CliError("--format: a % at the end stands for nothing; %% is a percent sign", USAGE)
    pieces: list[_Piece] = []
    for literal, escape, field in re.findall(r"([^%\\]+)|\\(x[0-9A-Fa-f]{2}|.|$)|%(.|$)", text, flags=re.S):
        if field:
            if field not in _FIELDS:
                raise CliError(f"--format: %{field} is unknown; there are %{' %'.join(_FIELDS)}", USAGE)
            pieces.append(_FIELDS[field])
            continue
        fixed = literal.encode(errors="surrogateescape") if literal else _escaped(escape)
        pieces.append(lambda _record, fixed=fixed: fixed)  # type: ignore[misc]
    return lambda record: b"".join([piece(record) for piece in pieces])


def _escaped(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise CliError(f"--format: \\{escape} is unknown; there are \\n \\r \\t \\0 \\xHH \\\\", USAGE)
    return _ESCAPES[escape]


def to_json(record: ShownRecord) -> bytes:
    """Return a record as one line of JSON."""
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    row |= _text("key", record.key) | _text("value", record.value)
    row["headers"] = [
        _text("name", name.encode(errors=KEY_ERRORS)) | _text("value", value) for name, value in record.headers
    ]
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def from_json(line: bytes, number: int) -> NewRecord:
    """Return the record of a line. Raises CliError that names the line's number when it is none."""
    try:
        row = json.loads(line)
        headers = tuple((_name(each), _bytes("value", each)) for each in row.get("headers", ()))
        return NewRecord(_bytes("value", row), _bytes("key", row), headers)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CliError(f"line {number} is not a record in JSON: {type(error).__name__}: {error}") from error


def from_line(line: bytes, key_delimiter: bytes | None) -> NewRecord:
    """Return the record of a line of text. A line without the delimiter has no key."""
    if key_delimiter:
        key, found, value = line.partition(key_delimiter)
        if found:
            return NewRecord(value, key)
    return NewRecord(line)


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def _name(header: dict[str, Any]) -> str:
    name = _bytes("name", header)
    if name is None:
        raise KeyError("name")
    return name.decode(errors=KEY_ERRORS)


def _bytes(name: str, row: dict[str, Any]) -> bytes | None:
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"], validate=True)
    content = row.get(name)
    if content is None:
        return None
    return (content if isinstance(content, str) else json.dumps(content)).encode()
