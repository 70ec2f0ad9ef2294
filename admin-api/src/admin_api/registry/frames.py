"""The id of a schema in a record, as Confluent's serializers write it.

    00 | id, 4 bytes | payload                         before the payload
    01 | GUID, 16 bytes                                in the header __key_schema_id or __value_schema_id
    00 | id, 4 bytes                                   in such a header as well

Indexes of a Protobuf message follow the id, wherever it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

_BY_ID, _BY_GUID = 0, 1
_ID_BYTES, _GUID_BYTES = 5, 17
HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}


class Framed(NamedTuple):
    """A payload and its schema: a number, or a GUID in its text."""

    schema: int | str
    payload: bytes
    #: Indexes of a Protobuf message that came in a header; None: they are at the start of the payload.
    indexes: bytes | None = None


def frame(schema: int, payload: bytes) -> bytes:
    """Return a key or value with the id of its schema before it."""
    return bytes((_BY_ID,)) + schema.to_bytes(4, "big") + payload


def framed(part: str, data: bytes, headers: Sequence[tuple[str, bytes | None]] = ()) -> Framed | None:
    """Return the parts of a record's `key` or `value`; None if it names no schema."""
    wanted = HEADERS[part]
    for name, content in headers:
        if name == wanted and content is not None:
            if len(content) >= _GUID_BYTES and content[0] == _BY_GUID:
                return Framed(str(uuid.UUID(bytes=content[1:_GUID_BYTES])), data, content[_GUID_BYTES:])
            if len(content) >= _ID_BYTES and content[0] == _BY_ID:
                return Framed(int.from_bytes(content[1:_ID_BYTES], "big"), data, content[_ID_BYTES:])
    if len(data) >= _ID_BYTES and data[0] == _BY_ID:
        return Framed(int.from_bytes(data[1:_ID_BYTES], "big"), data[_ID_BYTES:])
    return None
