"""Records as JSON: each key, value and header in a format, with the name of the format that was used.

    auto      json for an object or an array, else utf8 for text, else base64
    json      the JSON text as it is, not a text in quotes
    utf8      text
    base64, hex
    schema   by its schema (`schema_values`); as auto where this module alone renders
    decoded  what a record of Kafka's own topics means, in place of auto

Bytes that are not of the requested format are shown in base64, as is the name of a header that is not UTF-8. JSON goes
out byte for byte as it came in, so that no number changes. Only line breaks become spaces: JSON allows them between
its values alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Literal

from admin_api.records.conditions import JSON_BYTES_MAX, Readable

Format = Literal["auto", "json", "utf8", "base64", "hex", "schema"]

#: Bytes of a key, a value or a header's value that a list shows; the record itself and a download show all.
SHOWN_BYTES_MAX = 64 * 1024
_ALL = 2**31
#: Larger contents are shown in base64: a text can grow six times when it is written as JSON.
TEXT_BYTES_MAX = 1024 * 1024
#: Bytes of larger contents that are made text at a time, a multiple of three for base64.
_PART_BYTES = 48 * 1024
#: Headers that a list shows, and bytes of the name and of the value of each.
_HEADERS_MAX = 64
_HEADER_BYTES_MAX = 1024

#: Kafka's own topics.
_DECODED_TOPICS = frozenset(("__consumer_offsets", "__transaction_state"))
#: The first byte of Confluent's serializers, and the bytes of it and of a schema's id.
_CONFLUENT, _CONFLUENT_BYTES = b"\0", 5

_dumps: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LINE_BREAKS = str.maketrans("\r\n", "  ")
_NONE: Mapping[str, str] = {}


#: The function that renders one record with what its schemas say: `schema_values` makes it.
BySchema = Callable[[int, Readable], Awaitable[str]]


class Formats:
    """The formats of keys and values, and the sizes to show: those of a list, or all of a record."""

    __slots__ = ("by_schema", "bytes_max", "header_bytes_max", "headers_max", "key", "topic", "value")

    def __init__(self, key: Format = "auto", value: Format = "auto", *, whole: bool = False, topic: str = "") -> None:
        #: The topic, if its records are decoded.
        self.topic = topic if topic in _DECODED_TOPICS else ""
        self.key: Format = key
        self.value: Format = value
        #: The parts that are decoded by a schema.
        self.by_schema = tuple(part for part, wanted in (("key", key), ("value", value)) if wanted == "schema")
        self.bytes_max = _ALL if whole else SHOWN_BYTES_MAX
        self.headers_max = _ALL if whole else _HEADERS_MAX
        self.header_bytes_max = _ALL if whole else _HEADER_BYTES_MAX


def render(partition: int, record: Readable, formats: Formats, made: Mapping[str, str] = _NONE) -> str:
    """Return a record as a JSON object on one line. `made` are members of its `key` or `value` that are known."""
    shown, bytes_max = record.headers[: formats.headers_max], formats.header_bytes_max
    headers = ",".join(_header(name, content, bytes_max) for name, content in shown)
    return (
        f'{{"partition":{partition},"offset":{record.offset},"timestamp":{record.timestamp},'
        f"{_contents(record, formats, made)},"
        f'"headers":[{headers}],"headers_count":{len(record.headers)}}}'
    )


def render_in_parts(partition: int, record: Readable, formats: Formats) -> Iterator[str]:
    """Yield the text of `render` in parts, each of which takes a few milliseconds at most."""
    headers = record.headers
    contents = (record.key, record.value, *(content for _, content in headers))
    if sum(map(len, filter(None, contents))) <= TEXT_BYTES_MAX:
        yield render(partition, record, formats)
        return
    yield f'{{"partition":{partition},"offset":{record.offset},"timestamp":{record.timestamp},'
    yield from _field_in_parts("key", record.key, formats.key, formats.bytes_max)
    yield f"{schema_id('key', record.key)},"
    yield from _field_in_parts("value", record.value, formats.value, formats.bytes_max)
    yield f"{schema_id('value', record.value)},"
    yield '"headers":['
    for number, (name, content) in enumerate(headers[: formats.headers_max]):
        key = name.encode(errors="surrogateescape")
        yield f"{',' if number else ''}{{{field('name', key, 'utf8', formats.header_bytes_max)},"
        yield from _field_in_parts("value", content, "utf8", formats.header_bytes_max)
        yield "}"
    yield f'],"headers_count":{len(headers)}}}'


def _contents(record: Readable, formats: Formats, made: Mapping[str, str]) -> str:
    """Return the members that show a key and a value."""
    if formats.topic:
        from admin_api.records.kafka_topics import decoded  # few servers show these topics

        texts = decoded(formats.topic, record.key, record.value)
    else:
        texts = None, None
    found = []
    fields: tuple[tuple[str, bytes | None, Format], ...] = (
        ("key", record.key, formats.key),
        ("value", record.value, formats.value),
    )
    for (name, data, wanted), text in zip(fields, texts, strict=True):
        if name in made:
            found.append(made[name])
        elif text is None or data is None or wanted != "auto":
            found.append(field(name, data, wanted, formats.bytes_max) + schema_id(name, data))
        else:
            shown = f'"{name}_format":"decoded","{name}_size":{len(data)},"{name}_truncated":false'
            found.append(f'"{name}":{text},{shown}')
    return ",".join(found)


def schema_id(name: str, data: bytes | None) -> str:
    """Return the member that shows the id of a schema; empty if the bytes do not begin as Confluent's do."""
    if data is None or len(data) < _CONFLUENT_BYTES or data[:1] != _CONFLUENT:
        return ""
    number = int.from_bytes(data[1:_CONFLUENT_BYTES], "big", signed=True)
    return f',"{name}_schema_id":{number}' if number > 0 else ""  # else it is rather a small number of 8 bytes


def _field_in_parts(name: str, data: bytes | None, wanted: Format, bytes_max: int) -> Iterator[str]:
    """Yield the text of `field`: in parts if it is that of a large content."""
    if data is None or len(data) <= TEXT_BYTES_MAX or len(data) > bytes_max:
        yield field(name, data, wanted, bytes_max)
        return
    is_hex = wanted == "hex"
    yield f'"{name}":"'
    for at in range(0, len(data), _PART_BYTES):
        part = data[at : at + _PART_BYTES]
        yield part.hex() if is_hex else base64.b64encode(part).decode()
    yield f'","{name}_format":"{"hex" if is_hex else "base64"}","{name}_size":{len(data)},"{name}_truncated":false'


def _header(name: str, content: bytes | None, bytes_max: int) -> str:
    key = name.encode(errors="surrogateescape")  # as protocol_lib reads bytes that are not UTF-8
    return f"{{{field('name', key, 'utf8', bytes_max)},{field('value', content, 'utf8', bytes_max)}}}"


def field(name: str, data: bytes | None, wanted: Format, bytes_max: int) -> str:
    """Return the members of an object that show `data`: its text, format and size, and whether it is cut off."""
    if data is None:
        return f'"{name}":null,"{name}_format":null,"{name}_size":null,"{name}_truncated":false'
    is_cut = len(data) > bytes_max
    used, text = _text(data[:bytes_max] if is_cut else data, wanted, is_cut)
    return (
        f'"{name}":{text},"{name}_format":"{used}","{name}_size":{len(data)},'
        f'"{name}_truncated":{"true" if is_cut else "false"}'
    )


def _text(data: bytes, wanted: Format, is_cut: bool) -> tuple[str, str]:
    """Return the format used, and the JSON text."""
    if wanted == "hex":
        return "hex", f'"{data.hex()}"'
    if wanted != "base64" and len(data) <= TEXT_BYTES_MAX:
        if not is_cut and (wanted == "json" or (wanted in ("auto", "schema") and data[:1] in (b"{", b"["))):
            found = _json(data)
            if found is not None:
                return "json", found
        if wanted != "json":
            try:
                return "utf8", _dumps(_decoded(data, is_cut))
            except UnicodeDecodeError:
                pass
    return "base64", f'"{base64.b64encode(data).decode()}"'


def _decoded(data: bytes, is_cut: bool) -> str:
    if not is_cut:
        return data.decode()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:
            raise
        return data[: error.start].decode()  # the cut went through a character


def _json(data: bytes) -> str | None:
    """Return the text of a JSON value on one line; None for other bytes, and for large ones."""
    if len(data) > JSON_BYTES_MAX:
        return None
    try:
        text = data.decode()
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return text.translate(_LINE_BREAKS)


def _refuse(constant: str) -> object:
    raise ValueError(constant)
