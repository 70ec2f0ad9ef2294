"""What `codec` and the program that it starts say to each other over pipes.

operation, 1 byte | key of a schema, 4 | length, 4 | body        →      status, 1 byte | length, 4 | body
"""

from __future__ import annotations

import struct
from typing import Any

REQUEST = struct.Struct(">BII")
ANSWER = struct.Struct(">BI")
#: PREPARE imports the module of a type. LOAD has the type, the text, and names and texts of references. NAME asks for
#: the name of the record that a schema describes.
PREPARE, LOAD, FORGET, DECODE, ENCODE, NAME = range(6)
#: REFUSED is about data, BAD_SCHEMA about the schema.
DONE, REFUSED, BAD_SCHEMA = range(3)
TEXT = struct.Struct(">I")


class RefusedError(ValueError):
    """Data that are not of the schema, or a schema that cannot be used; the message is the answer."""


def distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object of JSON. Raises RefusedError for two of one name: one would be lost."""
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise RefusedError(f"two members have the name {name[:60]!r}")
        found[name] = value
    return found


class BadSchemaError(RefusedError):
    """A schema that turns out to be none when data are encoded by it."""
