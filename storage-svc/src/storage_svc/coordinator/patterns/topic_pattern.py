r"""Subscriptions by pattern: RE2's syntax (google/re2/wiki/Syntax) matched against whole topic names, in linear time.

    compile_pattern("order.*|user-[0-9]+").matches("orders") -> True

A pattern becomes an automaton (Thompson's construction) all of whose states are followed at once, as one integer: a
name of n characters costs n steps for every pattern, and earlier steps are remembered. RE2 lacks the features that make
matching slow elsewhere (backreferences, lookaround, possessive and atomic groups): the parser, `topic_pattern_syntax`,
refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from storage_svc.coordinator.patterns.topic_pattern_syntax import (
    WORD,
    Alternatives,
    Assertion,
    Characters,
    InvalidPatternError,
    Node,
    Repeat,
    Sequence,
    Where,
    parse,
)

__all__ = ["InvalidPatternError", "TopicPattern", "compile_pattern"]

#: Characters of a pattern, and states of its automaton: repetitions are written out.
PATTERN_LENGTH_MAX: Final = 4096
STATES_MAX: Final = 2048
#: Steps remembered per pattern; patterns kept compiled.
_REMEMBERED_MAX: Final = 4096
_COMPILED_MAX: Final = 256

_FINAL: Final = 0


class TopicPattern:
    """A compiled pattern. State 0 is the final one."""

    def __init__(self, root: Node) -> None:
        #: state -> the characters it reads, or the assertion it makes; None for one that only leads on.
        self._reads: list[Characters | Assertion | None] = [None]
        self._next: list[tuple[int, ...]] = [()]
        self._start = 1 << self._build(root, _FINAL)
        self._remembered: dict[tuple[int, str, str], int] = {}
        self._known: dict[str, bool] = {}

    def _state(self, reads: Characters | Assertion | None, *following: int) -> int:
        if len(self._next) >= STATES_MAX:
            raise InvalidPatternError("pattern too large")
        self._reads.append(reads)
        self._next.append(following)
        return len(self._next) - 1

    def _build(self, node: Node, following: int) -> int:
        """Return the state at which the node begins, if the next node begins at `following`."""
        match node:
            case Characters() | Assertion():
                return self._state(node, following)
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case Alternatives(options):
                return self._state(None, *(self._build(option, following) for option in options))
            case Repeat(part, least, most):
                return self._build_repeat(part, least, most, following)

    def _build_repeat(self, part: Node, least: int, most: int | None, following: int) -> int:
        if most is None:
            loop = self._state(None)
            self._next[loop] = (self._build(part, loop), following)
            following = loop
        else:
            end = following
            for _ in range(most - least):
                following = self._state(None, self._build(part, following), end)
        for _ in range(least):
            following = self._build(part, following)
        return following

    def matches(self, name: str) -> bool:
        states, before = self._start, ""
        for character in name:
            states = self._step(states, before, character)
            if not states:
                return False
            before = character
        return bool(self._reachable(states, before, "") & 1 << _FINAL)

    def _step(self, states: int, before: str, character: str) -> int:
        key = (states, before, character)
        following = self._remembered.get(key)
        if following is None:
            following = 0
            for state in _bits(self._reachable(states, before, character)):
                reads = self._reads[state]
                if isinstance(reads, Characters) and character in reads.allowed:
                    following |= 1 << self._next[state][0]
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = following
        return following

    def _reachable(self, states: int, before: str, after: str) -> int:
        """Return all states reached between two characters without reading one; "" stands for the name's ends."""
        found = 0
        open_ = list(_bits(states))
        while open_:
            state = open_.pop()
            if found >> state & 1:
                continue
            found |= 1 << state
            reads = self._reads[state]
            if reads is None or (isinstance(reads, Assertion) and _holds(reads.where, before, after)):
                open_.extend(self._next[state])
        return found

    def select(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names that match. A name is matched once as long as it is among the names asked for."""
        known = self._known
        self._known = {name: known[name] if name in known else self.matches(name) for name in names}
        return frozenset(name for name, is_match in self._known.items() if is_match)


def _bits(number: int) -> Iterable[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _holds(where: Where, before: str, after: str) -> bool:
    match where:
        case Where.START:
            return not before
        case Where.END:
            return not after
        case Where.WORD_BOUNDARY:
            return (before in WORD) != (after in WORD)
        case Where.NO_WORD_BOUNDARY:
            return (before in WORD) == (after in WORD)


@lru_cache(maxsize=_COMPILED_MAX)
def compile_pattern(pattern: str) -> TopicPattern:
    """Return the pattern, ready to match.

    Raises:
        InvalidPatternError: it is not RE2's syntax, or too large.
    """
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPatternError("pattern too large")
    return TopicPattern(parse(pattern))
