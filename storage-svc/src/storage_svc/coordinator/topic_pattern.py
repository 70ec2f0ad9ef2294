r"""Subscriptions by pattern: RE2's syntax (google/re2/wiki/Syntax) matched against whole topic names, in linear time.

    compile_pattern("order.*|user-[0-9]+").matches("orders") -> True

Kafka uses RE2/J. It refuses `\C` and groups of one name, which RE2 itself accepts here, and describes faults in other
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

#: Characters of a pattern together with its counts (`{1000}`); a class of Unicode (`\pL`) counts as CLASS_SIZE. The
#: largest patterns take some ten milliseconds to compile.
SIZE_MAX: Final = 4096
CLASS_SIZE: Final = 64
#: Bytes that a compiled pattern takes at most, with the states of its automaton that are remembered.
MEMORY_MAX: Final = 512 << 10
_COMPILED_MAX: Final = 256

_TOKEN: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\{(\d{1,5})(?:,(\d{0,5}))?\}|\(\?P?<([^=!>][^>]*)>", re.DOTALL)
#: RE2's words → RE2/J's.
_DESCRIPTIONS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
    "pattern too large - compile failed": "pattern too large",
}


class InvalidPatternError(ValueError):
    """A pattern that is not RE2's, or larger than allowed; says why."""


class TopicPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            InvalidPatternError: it is not RE2's syntax, or too large.
        """
        import re2  # a storage without patterns does without its 3 MB

        _check(pattern)
        options = re2.Options()
        # Groups are not wanted, and finding them in each name is slow.
        options.max_mem, options.log_errors, options.never_capture = MEMORY_MAX, False, True
        try:
            self._regexp = re2.compile(pattern.encode(errors="surrogatepass"), options)
        except re2.error as error:
            description = error.args[0].decode(errors="replace").partition(": ")[0]
            raise InvalidPatternError(_DESCRIPTIONS.get(description, description)) from None
        self._known: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        return self._regexp.fullmatch(name.encode(errors="surrogatepass")) is not None

    def select(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names that match. A name is matched once as long as it is among the names asked for."""
        known = self._known
        self._known = {name: known[name] if name in known else self.matches(name) for name in names}
        return frozenset(name for name, is_match in self._known.items() if is_match)


def _check(pattern: str) -> None:
    size, names = len(pattern), set[str]()
    for token in _TOKEN.finditer(pattern):
        least, most, name = token.groups()
        if token[0] == r"\C":
            raise InvalidPatternError("invalid escape sequence")
        if name is not None and (name in names or not name.isascii()):
            raise InvalidPatternError("invalid named capture")
        names.add(name)
        size += CLASS_SIZE if token[0] in (r"\p", r"\P") else max(int(least or 0), int(most or 0))
    if size > SIZE_MAX:
        raise InvalidPatternError("pattern too large")


@lru_cache(maxsize=_COMPILED_MAX)
def compile_pattern(pattern: str) -> TopicPattern:
    """Return the pattern, ready to match.

    Raises:
        InvalidPatternError: it is not RE2's syntax, or too large.
    """
    return TopicPattern(pattern)
