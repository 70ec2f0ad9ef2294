"""Times as people write them at the command line."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-(\d{1,9})([smhd])", flags=re.ASCII)
_MILLISECONDS_MAX = 1 << 62


def iso(ms: int) -> str:
    """Return the time of some milliseconds since 1970 as ISO 8601, to the second, in UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).isoformat(timespec="seconds")


def milliseconds(text: str) -> int:
    """Return the milliseconds since 1970 of such a number, of an ISO 8601 time, or of -15m: a time ago (s, m, h, d).

    A time without a zone is one of UTC.

    Raises ValueError for another text and for times before 1970, which ListOffsets takes for something else.
    """
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    if ago := _AGO.fullmatch(text):
        # wall clock: timestamps of records
        found = int(time.time() * 1000) - int(ago[1]) * _UNITS_MS[ago[2]]
    else:
        try:
            given = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time") from None
        given = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        found = (given - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if not 0 <= found < _MILLISECONDS_MAX:
        raise ValueError(f"{text!r} is no time since 1970")
    return found
