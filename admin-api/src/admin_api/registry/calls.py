"""What `codec` and the program that it starts say to each other over pipes.

operation, 1 byte | key of a schema, 4 | length, 4 | body        →      status, 1 byte | length, 4 | body
"""

from __future__ import annotations

import struct

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


class BadSchemaError(RefusedError):
    """A schema that turns out to be none when data are encoded by it."""
