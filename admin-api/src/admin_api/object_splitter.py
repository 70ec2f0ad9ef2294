"""Concatenated JSON objects, divided as their bytes arrive: `{"value": …}{"value": …}`, with any white space between.

    OBJECT_BYTES_MAX   bytes of one object
    VALUES_MAX         its commas and opening brackets: about the number of values, each of which takes memory
    DEPTH_MAX          objects and arrays within each other

The splitter looks at quotes and brackets alone, and once at each byte. Whether an object is good JSON decides its
parser.
"""

from __future__ import annotations

import re

from admin_api import errors

#: A record of Kafka's 1 MiB takes 1.4 MB in base64.
OBJECT_BYTES_MAX = 2 * 1024 * 1024
VALUES_MAX = 100_000
DEPTH_MAX = 64

_SPACE = b" \t\r\n"
_OUTSIDE = re.compile(rb'["{}\[\]]')
_IN_TEXT = re.compile(rb'["\\]')


class ObjectSplitter:
    """The objects of one body. A fault is final: where the next object begins is not known after it."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: The place in the buffer to go on from, and the state there.
        self._at = 0
        self._depth = 0
        self._in_text = False
        self._fault: errors.ApiError | None = None

    @property
    def is_between(self) -> bool:
        """Whether the bytes so far end with an object, or white space after it."""
        return not self._depth

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that these bytes complete, up to a fault: call `check` then."""
        self._buffer += data
        found: list[bytes] = []
        try:
            while (end := self._end()) is not None:
                text = bytes(self._buffer[:end])
                _check(text)
                found.append(text)
                del self._buffer[:end]
                self._at = 0
            if len(self._buffer) > OBJECT_BYTES_MAX:
                raise _too_large()
        except errors.ApiError as fault:
            self._fault = fault
        return found

    def check(self) -> None:
        """Raise the fault that `feed` met: ApiError, 400 for bytes that are no object, 413 for too large an object."""
        if self._fault is not None:
            raise self._fault

    def _end(self) -> int | None:
        """Return where the first object ends, None if it does not yet. Drop white space before it."""
        if not self._depth:
            self._buffer = self._buffer.lstrip(_SPACE)
            if not self._buffer:
                return None
            if self._buffer[0] != ord("{"):
                raise errors.of_status(400, "Error processing message: every record must be a JSON object.")
        while True:
            mark = (_IN_TEXT if self._in_text else _OUTSIDE).search(self._buffer, self._at)
            if mark is None:
                self._at = max(self._at, len(self._buffer))
                return None
            self._at = mark.end()
            match mark[0]:
                case b"\\":
                    self._at += 1  # the escaped byte, which may be yet to come
                case b'"':
                    self._in_text = not self._in_text
                case b"{" | b"[":
                    self._depth += 1
                    if self._depth > DEPTH_MAX:
                        raise errors.of_status(400, f"Error processing message: more than {DEPTH_MAX} levels.")
                case _:
                    self._depth -= 1
                    if not self._depth:
                        return self._at


def _check(text: bytes) -> None:
    if len(text) > OBJECT_BYTES_MAX:
        raise _too_large()
    if text.count(b",") + text.count(b"[") + text.count(b"{") > VALUES_MAX:
        raise errors.of_status(400, f"A record has more than {VALUES_MAX} commas and opening brackets.")


def _too_large() -> errors.ApiError:
    return errors.of_status(413, f"A record is larger than {OBJECT_BYTES_MAX} bytes of JSON.")
