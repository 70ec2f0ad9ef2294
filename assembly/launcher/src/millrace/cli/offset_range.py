"""`--offset` of `millrace consume`: where to begin, and where to end.

    START            beginning, end, N, -N for the last N records, or @TIME
    START:END        up to END, which is not read any more; without START from the beginning

The texts of times contain colons too: a text is split where both sides have a meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from millrace.cli.errors import USAGE, CliError
from millrace.cli.times import milliseconds

_NUMBER = re.compile(r"-?\d{1,18}", flags=re.ASCII)
_WORDS: dict[str, Literal["beginning", "end"]] = {"beginning": "beginning", "start": "beginning", "end": "end"}


@dataclass(frozen=True)
class Point:
    """A place in every partition: its ends, an offset, a number of records before its end, or a time in ms."""

    kind: Literal["beginning", "end", "offset", "last", "time"]
    number: int = 0

    def offset(self, first: int, end: int, at_time: int | None) -> int:
        """Return the offset in a log from `first` to `end`; `at_time` is the first one of the time, or None."""
        if self.kind == "offset":
            return max(self.number, first)
        if self.kind == "last":
            return max(first, end - self.number)
        if self.kind == "time":
            return end if at_time is None else at_time
        return first if self.kind == "beginning" else end


BEGINNING, END = Point("beginning"), Point("end")


@dataclass(frozen=True)
class OffsetRange:
    """The part of each partition to read; without `stop` it has no end."""

    start: Point
    stop: Point | None = None

    @property
    def times(self) -> list[int]:
        return [each.number for each in (self.start, self.stop) if each is not None and each.kind == "time"]


def offset_range(text: str, now_ms: int) -> OffsetRange:
    """Return the meaning of `--offset`. Raises CliError for a text without one, and for an end in the future or before
    the beginning."""
    found = _range(text)
    if found is None:
        raise CliError(
            f"--offset: {text!r} is neither beginning, end, N, -N, @TIME nor two of them with a colon between", USAGE
        )
    begin, end = found.start, found.stop
    if end is not None and begin.kind == end.kind in ("offset", "time") and end.number < begin.number:
        raise CliError(f"--offset: {text!r} ends before it begins", USAGE)
    if end is not None and end.kind == "time" and end.number > now_ms:
        raise CliError(f"--offset: the end of {text!r} is a time that is still to come", USAGE)
    return found


def _range(text: str) -> OffsetRange | None:
    if (start := _point(text)) is not None:
        return OffsetRange(start)
    for colon in (index for index, letter in enumerate(text) if letter == ":"):
        left, right = text[:colon], text[colon + 1 :]
        start = BEGINNING if left == "" else _point(left)
        stop = _point(right)
        if start is not None and (stop is not None or (right == "" and left != "")):
            return OffsetRange(start, stop)
    return None


def _point(text: str) -> Point | None:
    if text in _WORDS:
        return Point(_WORDS[text])
    if _NUMBER.fullmatch(text):
        return Point("last", -int(text)) if text.startswith("-") else Point("offset", int(text))
    if text.startswith("@"):
        try:
            return Point("time", milliseconds(text[1:]))
        except (ValueError, OverflowError):
            return None
    return None
