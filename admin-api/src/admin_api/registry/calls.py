"""What `codec` and the program that it starts say to each other over pipes.

operation, 1 byte | key of a schema, 4 | length, 4 | body        →      status, 1 byte | length, 4 | body
"""

from __future__ import annotations

import struct

REQUEST = struct.Struct(">BII")
ANSWER = struct.Struct(">BI")
#: PREPARE imports the module of a type. LOAD has the type, the text, and names and texts of references.
PREPARE, LOAD, FORGET, DECODE, ENCODE = range(5)
DONE, REFUSED = range(2)
TEXT = struct.Struct(">I")


class RefusedError(ValueError):
    """Data that are not of the schema, or a schema that cannot be used; the message is the answer."""
