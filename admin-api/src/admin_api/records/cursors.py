"""Where a browse goes on: an opaque text with the offsets that each partition has left, for the same topic only."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from admin_api import errors

#: About 300 partitions with offsets of ten digits. A head of HTTP has at most 16 KiB.
CURSOR_LENGTH_MAX = 12 * 1024
_VERSION = 1
_OFFSET_MAX = 2**63 - 1


class Left(NamedTuple):
    """The offsets of a partition that are left, from `start` to the one before `end`."""

    partition: int
    start: int
    end: int


class Cursor(NamedTuple):
    newest_first: bool
    left: list[Left]


def encode(topic: str, newest_first: bool, left: Iterable[Left]) -> str:
    """Return the cursor's text: letters, digits, `-` and `_`."""
    content = [_VERSION, _sum(topic), int(newest_first), [list(each) for each in left]]
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode())
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode(topic: str, text: str) -> Cursor:
    """Return the cursor in a text. Raises ApiError for any text that `encode` has not made for this topic."""
    if len(text) > CURSOR_LENGTH_MAX:
        raise _not_a_cursor()
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        content = json.loads(unpacking.decompress(packed, 8 * CURSOR_LENGTH_MAX))
        version, topic_sum, newest_first, rows = content
        left = [Left(*row) for row in rows]
    except (binascii.Error, zlib.error, ValueError, TypeError, RecursionError):
        raise _not_a_cursor() from None
    numbers = [version, topic_sum, newest_first, *(number for row in left for number in row)]
    if any(type(number) is not int or not 0 <= number <= _OFFSET_MAX for number in numbers):
        raise _not_a_cursor()
    if (
        version != _VERSION
        or newest_first > 1
        or topic_sum != _sum(topic)
        or len({row.partition for row in left}) < len(left)
    ):
        raise _not_a_cursor()
    return Cursor(bool(newest_first), left)


def _sum(topic: str) -> int:
    return zlib.crc32(topic.encode())


def _not_a_cursor() -> errors.ApiError:
    return errors.of_status(400, "cursor is not one that a browse of this topic gave out.")
