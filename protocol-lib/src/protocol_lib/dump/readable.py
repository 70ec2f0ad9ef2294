"""A message as text: one field a line, by the names and versions of its declaration.

Error codes have their names, ids are spelled as Kafka spells them, record batches are summed up. Of fields that hold
secrets only the length is shown.
"""

import base64
import json
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.layout import Array, Kind, Layout, Nested, Place, layout, message_layout
from protocol_lib.records.compression import Codec
from protocol_lib.records.header import MAGIC, BatchHeader, crc_matches, read_batch_header, read_magic
from protocol_lib.records.legacy import read_messages
from protocol_lib.schema import Fixed, Opaque

_BYTES_SHOWN: Final = 64
_UUID: Final = "16s"


def readable(message: Any, version: int) -> Iterator[str]:
    """Yield the lines of a message, in the version that it was read in."""
    return _struct(message, message_layout(type(message), version))


def _struct(value: Any, inside: Layout) -> Iterator[str]:
    for place in inside.fields + inside.tagged:
        yield from _field(place, getattr(value, place.name), inside)
    for tag, data in value.unknown_tagged_fields:
        yield f"tag {tag}: {_bytes(data)}"


def _field(place: Place, value: Any, inside: Layout) -> Iterator[str]:
    kind = place.kind
    if value is None:
        yield f"{place.name}: null"
    elif place.secret:
        yield f"{place.name}: {len(value)} bytes, not shown"
    elif isinstance(kind, Nested):
        yield f"{place.name}:"
        yield from _indented(_struct(value, layout(kind.cls, inside.version, inside.flexible)))
    elif isinstance(kind, Array) and isinstance(kind.element, Nested) and value:
        yield f"{place.name}:"
        inner = layout(kind.element.cls, inside.version, inside.flexible)
        for item in value:
            for number, line in enumerate(_struct(item, inner)):
                yield f"  {'- ' if number == 0 else '  '}{line}"
    elif isinstance(kind, Array):
        yield f"{place.name}: [{', '.join(_scalar(place.name, kind.element, item) for item in value)}]"
    elif isinstance(kind, Opaque) and kind.by_reference:
        yield f"{place.name}: {len(value)} bytes"
        yield from _indented(_records(value))
    else:
        yield f"{place.name}: {_scalar(place.name, kind, value)}"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _scalar(name: str, kind: Kind, value: Any) -> str:
    if isinstance(kind, Opaque):
        return _bytes(value)
    if isinstance(kind, Fixed) and kind.format == _UUID:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if name.endswith("error_code"):
        return f"{value} {_member(ErrorCode, value)}"
    return json.dumps(value, ensure_ascii=False)


def _bytes(value: bytes) -> str:
    more = f"… {len(value)} bytes" if len(value) > _BYTES_SHOWN else ""
    return f"0x{bytes(value[:_BYTES_SHOWN]).hex()}{more}" if value else "0 bytes"


# -- records -----------------------------------------------------------------------------------------------------------


def _records(data: memoryview) -> Iterator[str]:
    """Yield a line for each batch or message; the last may be cut short, as a fetch by an old client leaves it."""
    position = 0
    try:
        if len(data) and read_magic(data) != MAGIC:
            for message in read_messages(data, partial=True):
                yield f"message of format {message.magic}: offset {message.offset}, {_codec(message.codec)}"
            return
        while position < len(data):
            header = read_batch_header(data, position)
            batch = data[position : position + header.size]
            yield f"batch: {_batch(header, batch)}"
            position += header.size
    except DecodeError as fault:
        yield f"{len(data) - position} bytes: {fault}"


def _batch(header: BatchHeader, batch: memoryview) -> str:
    said = [f"offsets {header.base_offset}-{header.last_offset}, records {header.records_count}", _codec(header.codec)]
    if header.is_idempotent:
        said.append(f"producer {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}")
    said += [
        word for word, holds in (("transactional", header.is_transactional), ("control", header.is_control)) if holds
    ]
    if len(batch) < header.size:
        said.append(f"cut short at {len(batch)} of {header.size} bytes")
    elif not crc_matches(batch):
        said.append("its CRC does not match")
    return ", ".join(said)


def _codec(number: int) -> str:
    return f"codec {_member(Codec, number).lower()}"


def _member(names: type[IntEnum], value: int) -> str:
    try:
        return names(value).name
    except ValueError:
        return "unknown"
