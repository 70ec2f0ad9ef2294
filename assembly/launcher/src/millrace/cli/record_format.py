"""The form of records at the command line: kcat's format strings, and one JSON object a line.

    %t topic  %p partition  %o offset  %T timestamp in ms  %k key  %K its length  %s or %v value  %S its length
    %R length of the value as 4 bytes, big-endian  %h headers as NAME=VALUE,…  %% a percent sign
    \\n \\r \\t \\0 \\xHH \\\\

A length of -1 stands for null. A JSON object has `key`, `value` and the `name` of a header as text. Where the bytes are
not UTF-8 it has `key_base64` and so on, so that every record can be written and read again. A record that is read has a
value, because one without it deletes the key of a compacted topic: a null must be written. Other fields are refused.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from protocol_lib.client import ConsumerRecord
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


@dataclass(slots=True)
class DecodedRecord(ConsumerRecord):
    """A record whose key, value or both are texts of JSON: those in `by_schema`."""

    by_schema: frozenset[str]

    @classmethod
    def of(cls, record: ShownRecord, texts: Mapping[str, bytes]) -> DecodedRecord:
        """Return a record with these texts in place of its key and value."""
        kept = {each.name: getattr(record, each.name) for each in fields(ConsumerRecord)}
        return cls(**{**kept, **texts}, by_schema=frozenset(texts))


@dataclass(frozen=True)
class NewRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


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


def compiled(text: str, null: bytes = b"") -> _Piece:
    """Return the function that writes a record by a format string, with `null` for keys and values that are null.

    Raises CliError for an unknown letter.
    """
    fields = _FIELDS if not null else _FIELDS | _nullable(null)
    if re.search(r"(?<!%)(?:%%)*%$", text):
        raise CliError("--format: a % at the end stands for nothing; %% is a percent sign", USAGE)
    pieces: list[_Piece] = []
    for literal, escape, field in re.findall(r"([^%\\]+)|\\(x[0-9A-Fa-f]{2}|.|$)|%(.|$)", text, flags=re.S):
        if field:
            if field not in fields:
                raise CliError(f"--format: %{field} is unknown; there are %{' %'.join(fields)}", USAGE)
            pieces.append(fields[field])
            continue
        fixed = literal.encode(errors="surrogateescape") if literal else _escaped(escape)
        pieces.append(lambda _record, fixed=fixed: fixed)  # type: ignore[misc]
    return lambda record: b"".join([piece(record) for piece in pieces])


def _nullable(null: bytes) -> dict[str, _Piece]:
    def value(record: ShownRecord) -> bytes:
        return null if record.value is None else record.value

    return {"k": lambda record: null if record.key is None else record.key, "s": value, "v": value}


def _escaped(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise CliError(f"--format: \\{escape} is unknown; there are \\n \\r \\t \\0 \\xHH \\\\", USAGE)
    return _ESCAPES[escape]


def to_json(record: ShownRecord | DecodedRecord) -> bytes:
    """Return a record as one line of JSON."""
    by_schema = record.by_schema if isinstance(record, DecodedRecord) else frozenset[str]()
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    texts = [json.dumps(row, ensure_ascii=False)[1:-1]]
    for name, content in (("key", record.key), ("value", record.value)):
        if name in by_schema and content is not None:
            texts.append(f'"{name}": {content.decode()}')
        else:
            texts.append(json.dumps(_text(name, content), ensure_ascii=False)[1:-1])
    headers = [_text("name", name.encode(errors=KEY_ERRORS)) | _text("value", value) for name, value in record.headers]
    texts.append(f'"headers": {json.dumps(headers, ensure_ascii=False)}')
    return f"{{{', '.join(texts)}}}\n".encode()


def from_json(line: bytes, number: int, by_schema: Collection[str] = ()) -> NewRecord:
    """Return the record of a line. Raises CliError that names the line's number when it is none.

    A key or value that is another thing than text keeps the letters that it has in the line: 1.10 stays 1.10. Those in
    `by_schema` do in any case: "a" keeps its quotes.
    """
    try:
        text = line.decode()
        row = json.loads(text)
        _check_fields(row, _PLACE, ("key", "value", "headers"))
        for each in (given := row.get("headers", ())):
            _check_fields(each, (), ("name", "value"))
        headers = tuple((_name(each), _bytes("value", each)) for each in given)
        written = _members(text) if by_schema or any(_is_json(row.get(name)) for name in ("key", "value")) else {}
        value, key = (_bytes(name, row, written, as_text=name not in by_schema) for name in ("value", "key"))
        return NewRecord(value, key, headers)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CliError(f"line {number} is not a record in JSON: {type(error).__name__}: {error}") from error


def from_line(line: bytes, key_delimiter: bytes | None, *, null_if_empty: bool = False) -> NewRecord:
    """Return the record of a line of text. A line without the delimiter has no key."""
    key, found, value = line.partition(key_delimiter) if key_delimiter else (b"", b"", line)
    if not found:
        return NewRecord((line or None) if null_if_empty else line)
    return NewRecord(value or None, key or None) if null_if_empty else NewRecord(value, key)


#: Fields of a written record that a new one does not keep.
_PLACE = ("topic", "partition", "offset", "timestamp")


def _check_fields(row: object, ignored: Sequence[str], fields: Sequence[str]) -> None:
    """Raise ValueError for an object with other fields than these, with a field twice, or without a value."""
    if not isinstance(row, dict):
        raise ValueError(f"{type(row).__name__} instead of an object")
    known = {*ignored, *fields, *(f"{each}_base64" for each in fields if each != "headers")}
    for name in row:
        if name not in known:
            raise ValueError(f"unknown field {name[:_NAME_SHOWN]!r}")
        if f"{name}_base64" in row:
            raise ValueError(f"both {name} and {name}_base64")
    if "value" not in row and "value_base64" not in row:
        raise ValueError("no value; null is written as null")


_SPACE = re.compile(r"[ \t\n\r]*")
#: Letters that a message has of a field's name.
_NAME_SHOWN = 100


def _members(text: str) -> dict[str, str]:
    """Return the members of a JSON object by name, each as it is written; the last of a name wins."""
    decoder, found = json.JSONDecoder(), {}
    at = _after_space(text, 0) + 1
    while text[at := _after_space(text, at)] != "}":
        at = _after_space(text, at + 1) if text[at] == "," else at
        name, at = decoder.raw_decode(text, at)
        at = _after_space(text, _after_space(text, at) + 1)
        _, end = decoder.raw_decode(text, at)
        found[name] = text[at:end]
        at = end
    return found


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _is_json(content: object) -> bool:
    return content is not None and not isinstance(content, str)


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


def _bytes(
    name: str, row: dict[str, Any], written: Mapping[str, str] | None = None, *, as_text: bool = True
) -> bytes | None:
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"], validate=True)
    content = row.get(name)
    if content is None:
        return None
    if isinstance(content, str) and as_text:
        return content.encode()
    return (written[name] if written else json.dumps(content)).encode()
