"""Concatenated JSON objects, divided as their bytes arrive: `{"value": …}{"value": …}`, with any white space between.

    OBJECT_BYTES_MAX   bytes of one object
    VALUES_MAX         its commas and opening brackets: about the number of values, each of which takes memory
    DEPTH_MAX          objects and arrays within each other

The splitter looks at quotes and brackets alone, and once or twice at each byte; a regular expression passes over texts.
Whether an object is good JSON decides its parser.
"""

from __future__ import annotations

import re

from admin_api import errors

#: A record of Kafka's 1 MiB takes 1.4 MB in base64.
OBJECT_BYTES_MAX = 2 * 1024 * 1024
VALUES_MAX = 100_000
DEPTH_MAX = 64
#: Bytes to feed at once: about two milliseconds for the slowest, texts that consist of escapes.
FEED_BYTES = 16 * 1024

_SPACE = re.compile(rb"[ \t\r\n]*+")
#: The rest of a text, up to its quote or to a backslash that is the last byte so far.
_TEXT = rb'[^"\\]*+(?:\\[\s\S][^"\\]*+)*+'
_IN_TEXT = re.compile(_TEXT)
#: Everything up to the next bracket, or to a text that does not end yet.
_OUTSIDE = re.compile(rb'[^"{}\[\]]*+(?:"' + _TEXT + rb'"[^"{}\[\]]*+)*+')
_QUOTE, _BACKSLASH, _OBJECT = b'"\\{'
_OPENING = b"{["


class ObjectSplitter:
    """The objects of one body. A fault is final: where the next object begins is not known after it."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: The place in the buffer to go on from, and the state there.
        self._at = 0
        self._depth = 0
        #: Opening brackets of the object so far.
        self._opened = 0
        self._in_text = False
        self._fault: errors.ApiError | None = None

    @property
    def is_between(self) -> bool:
        """Whether the bytes so far end with an object, or white space after it."""
        return not self._depth

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that these bytes complete, up to a fault: call `check` then."""
        buffer, found, begin = self._buffer, list[bytes](), 0
        buffer += data
        try:
            while True:
                if not self._depth:
                    self._pass(_SPACE)
                    begin = self._at
                    if begin == len(buffer):
                        break
                    if buffer[begin] != _OBJECT:
                        raise errors.of_status(400, "Error processing message: every record must be a JSON object.")
                if not self._reaches_end():
                    break
                self._opened = 0
                text = bytes(buffer[begin : self._at])
                _check(text)
                found.append(text)
            if len(buffer) - begin > OBJECT_BYTES_MAX:
                raise _too_large()
        except errors.ApiError as fault:
            self._fault = fault
        del buffer[:begin]
        self._at -= begin
        return found

    def check(self) -> None:
        """Raise the fault that `feed` met: ApiError, 400 for bytes that are no object, 413 for too large an object."""
        if self._fault is not None:
            raise self._fault

    def _reaches_end(self) -> bool:
        """Go on to the end of the object, and return whether it is there."""
        buffer = self._buffer
        while True:
            if self._in_text:
                self._pass(_IN_TEXT)
                if self._at == len(buffer) or buffer[self._at] == _BACKSLASH:
                    return False
                self._at += 1
                self._in_text = False
            self._pass(_OUTSIDE)
            if self._at == len(buffer):
                return False
            mark = buffer[self._at]
            self._at += 1
            if mark == _QUOTE:
                self._in_text = True
            elif mark in _OPENING:
                self._depth += 1
                self._opened += 1
                if self._opened > VALUES_MAX:
                    raise _too_many_values()
                if self._depth > DEPTH_MAX:
                    raise errors.of_status(400, f"Error processing message: more than {DEPTH_MAX} levels.")
            else:
                self._depth -= 1
                if not self._depth:
                    return True

    def _pass(self, pattern: re.Pattern[bytes]) -> None:
        """Move to the end of a pattern, which also matches no bytes."""
        found = pattern.match(self._buffer, self._at)
        self._at = found.end() if found is not None else self._at


def _check(text: bytes) -> None:
    if len(text) > OBJECT_BYTES_MAX:
        raise _too_large()
    if len(text) > VALUES_MAX and text.count(b",") + text.count(b"[") + text.count(b"{") > VALUES_MAX:
        raise _too_many_values()


def _too_many_values() -> errors.ApiError:
    return errors.of_status(400, f"A record has more than {VALUES_MAX} commas and opening brackets.")


def _too_large() -> errors.ApiError:
    return errors.of_status(413, f"A record is larger than {OBJECT_BYTES_MAX} bytes of JSON.")
