"""Records as a caller gives them, made into Kafka's: BINARY, JSON, STRING or null; and parts of their reports.

`encoding` makes keys and values that are by a schema.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from admin_api import errors
from admin_api.schemas.produce import ProduceRequest, ProduceRequestData
from admin_api.schemas.requests import Request
from admin_api.times import milliseconds

#: Characters of data that an error quotes.
_QUOTED_MAX = 64
_FAULT_LENGTH_MAX = 200


#: Marks around the text of a number. Half a surrogate pair is in no valid text, and no caller knows the rest.
_BEGIN = "\udc00" + secrets.token_urlsafe(3)
_END = _BEGIN[1:] + "\udc01"
_marked = f"{_BEGIN}%s{_END}".__mod__
_FRACTION = re.compile(rb"[0-9][.eE]")

Shape = TypeVar("Shape", bound=Request)


class NewRecord(NamedTuple):
    """A record on its way to the gateway. Without a partition its key decides. The timestamp is in milliseconds."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Stored(NamedTuple):
    """The place of a record, and its timestamp."""

    partition: int
    offset: int
    timestamp: int


def parsed(text: bytes, shape: type[Shape]) -> Shape:
    """Return the object in a JSON text. Raises ApiError (400) for another shape.

    JSON data is stored as it is written. A float would forget `1.10` and `1e400`, so such numbers are marked texts.
    """
    kept: list[tuple[int, str, Any]] = []
    if _FRACTION.search(text):
        with contextlib.suppress(ValueError, RecursionError):  # the shape refuses it, and says why
            tree = json.loads(text, parse_float=_marked)
            kept = _taken_out(tree)
            rest = json.dumps(tree)
            if _BEGIN[1:] not in rest:  # else a number stands where the shape has none
                text = rest.encode()
    try:
        given = shape.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"{part}: " for part in [".".join(map(str, fault["loc"]))] if part)
        raise errors.of_status(400, f"Error processing message: {place}{fault['msg']}"[:_FAULT_LENGTH_MAX]) from None
    entries: Sequence[ProduceRequest] = getattr(given, "entries", [given])
    for index, name, data in kept:
        getattr(entries[index], name).data = data
    return given


def _taken_out(tree: Any) -> list[tuple[int, str, Any]]:
    """Replace the data of records, of JSON or by a schema, by null; return it with the index and `key` or `value`."""
    taken: list[tuple[int, str, Any]] = []
    entries = tree.get("entries", [tree]) if isinstance(tree, dict) else []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        for name in ("key", "value") if isinstance(entry, dict) else ():
            part = entry.get(name)
            if isinstance(part, dict) and part.get("type") not in ("BINARY", "STRING") and "data" in part:
                taken.append((index, name, part["data"]))
                part["data"] = None
    return taken


def new_record(given: ProduceRequest, by_schema: Mapping[str, bytes]) -> NewRecord:
    """Return the record that a caller describes, with the key and value that are by a schema.

    Raises:
        ApiError: 400 for data that is not of its type and for a time before 1970, 40402 for a negative partition.
    """
    if given.partition_id is not None and given.partition_id < 0:
        raise errors.partition_not_found()
    when = given.timestamp
    return NewRecord(
        given.partition_id,
        by_schema["key"] if "key" in by_schema else _serialized(given.key),
        by_schema["value"] if "value" in by_schema else _serialized(given.value),
        tuple((header.name, None if header.value is None else _decoded(header.value)) for header in given.headers),
        int(time.time() * 1000) if when is None else _timestamp(when),  # wall clock: the timestamp of a record
    )


def rfc3339(timestamp: int) -> str:
    """Return milliseconds since 1970 as Java's Instant writes them: without a fraction of zero."""
    seconds, milliseconds = divmod(timestamp, 1000)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return f"{text}.{milliseconds:03}Z" if milliseconds else f"{text}Z"


def _timestamp(when: datetime) -> int:
    found = milliseconds(when)
    if found < 0:  # as Kafka's ProducerRecord
        raise errors.of_status(400, f"Invalid timestamp: {found}. Timestamp should always be non-negative or null.")
    return found


def _serialized(given: ProduceRequestData | None) -> bytes | None:
    if given is None or given.data is None:
        return None
    if given.type == "BINARY":
        return _decoded(given.data)
    if given.type == "JSON":
        return json_text(given.data)
    if not isinstance(given.data, str):
        raise errors.of_status(400, f"Bad Request: data={_quoted(given.data)} is not a string.")
    return _encoded(given.data)


def _decoded(data: object) -> bytes:
    if not isinstance(data, str):
        raise errors.of_status(400, f"Bad Request: data={_quoted(data)} is not a base64 string.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise errors.of_status(400, f"Bad Request: data={_quoted(data)} is not a valid base64 string.") from None


def json_text(data: object) -> bytes:
    """Return the JSON text of data, in which numbers are as they were written. Raises ApiError (400)."""
    try:
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return _encoded(text.replace(f'"{_BEGIN}', "").replace(f'{_END}"', ""))
    except ValueError:
        raise errors.of_status(400, "Bad Request: data has a number that JSON has not.") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise errors.of_status(400, "Bad Request: data is not valid Unicode text.") from None


def _quoted(data: object) -> str:
    text = json.dumps(data) if not isinstance(data, list | dict) else type(data).__name__
    return text if len(text) <= _QUOTED_MAX else text[:_QUOTED_MAX] + "…"
