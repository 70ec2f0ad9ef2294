r"""The syntax of patterns, RE2's, as a tree.

    ab|c*   Alternatives(Sequence(a, b), Repeat(c, 0, None))

Topic names are of letters, digits, `.`, `_` and `-`, so that only these count in a class;
`$` and `\z` hold at a name's end, `^` and `\A` at its start; and laziness makes no difference to whether a whole name
matches. Refused as Kafka's RE2/J refuses them: backreferences, lookaround, atomic groups, `**`, counts above 1000,
`\Z`, `\C`.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

REPEAT_MAX: Final = 1000
#: Parentheses within parentheses.
DEPTH_MAX: Final = 100

_DIGITS = frozenset(string.digits)
_UPPER, _LOWER = frozenset(string.ascii_uppercase), frozenset(string.ascii_lowercase)
_LETTERS = _UPPER | _LOWER
WORD: Final = _DIGITS | _LETTERS | {"_"}
ALPHABET: Final = WORD | {".", "-"}
_NOTHING: frozenset[str] = frozenset()

_PERL_CLASSES: Final = {"d": _DIGITS, "w": WORD, "s": _NOTHING}
_POSIX_CLASSES: Final = {
    "alnum": _DIGITS | _LETTERS,
    "alpha": _LETTERS,
    "ascii": ALPHABET,
    "blank": _NOTHING,
    "cntrl": _NOTHING,
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": _LOWER,
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": _NOTHING,
    "upper": _UPPER,
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
#: General categories and scripts of Unicode, by the characters of topic names that they have.
_UNICODE_CLASSES: Final = {
    **dict.fromkeys(("Lm", "Lo", "Lt", "M", "Mn", "Mc", "Me", "Nl", "No", "Pe", "Pf", "Pi", "Ps"), _NOTHING),
    **dict.fromkeys(("S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs", "C", "Cc", "Cf", "Co", "Cs"), _NOTHING),
    **dict.fromkeys(("Arabic", "Cyrillic", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana"), _NOTHING),
    "Any": ALPHABET,
    "Common": ALPHABET - _LETTERS,
    "L": _LETTERS,
    "Latin": _LETTERS,
    "Ll": _LOWER,
    "Lu": _UPPER,
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": frozenset("._-"),
    "Pc": frozenset("_"),
    "Pd": frozenset("-"),
    "Po": frozenset("."),
}
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_FLAGS: Final = frozenset("imsU")


class InvalidPatternError(ValueError):
    """A pattern that is not RE2's, or larger than allowed; says why."""


class Where(Enum):
    START = auto()
    END = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()


_ASSERTIONS: Final = {
    "A": Where.START,
    "z": Where.END,
    "b": Where.WORD_BOUNDARY,
    "B": Where.NO_WORD_BOUNDARY,
}


@dataclass(frozen=True, slots=True)
class Characters:
    allowed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Assertion:
    where: Where


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    #: None: any number.
    most: int | None


Node = Characters | Assertion | Sequence | Alternatives | Repeat


def parse(pattern: str) -> Node:
    """Return the pattern as a tree.

    Raises:
        InvalidPatternError: it is not RE2's syntax.
    """
    return _Parser(pattern).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._folds_case = False
        self._depth = 0
        self._names: set[str] = set()

    def whole(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPatternError("unexpected )")
        return node

    # --- characters of the text -----------------------------------------------------------------------------------

    def _peek(self, ahead: str) -> bool:
        return self._text.startswith(ahead, self._at)

    def _skip(self, ahead: str) -> bool:
        if self._peek(ahead):
            self._at += len(ahead)
            return True
        return False

    def _take(self, missing: str) -> str:
        if self._at >= len(self._text):
            raise InvalidPatternError(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, missing: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise InvalidPatternError(missing)
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    # --- the grammar ----------------------------------------------------------------------------------------------

    def _alternatives(self) -> Node:
        options = [self._sequence()]
        while self._skip("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alternatives(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and not (self._peek("|") or self._peek(")")):
            if self._skip("\\Q"):
                stop = self._text.find("\\E", self._at)
                quoted = self._text[self._at : stop] if stop >= 0 else self._text[self._at :]
                self._at += len(quoted) + (2 if stop >= 0 else 0)
                parts.extend(self._literal(each) for each in quoted)
                continue
            parts.append(self._repeated(self._atom()))
        return Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return node
        self._skip("?")
        if self._counts() is not None:
            raise InvalidPatternError("invalid nested repetition operator")
        return Repeat(node, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        """Return the least and most repetitions of a counted node; None for a brace that counts nothing and is a
        character."""
        for operator, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(operator):
                return counts
        if not self._peek("{"):
            return None
        stop = self._text.find("}", self._at)
        inside = self._text[self._at + 1 : stop] if stop >= 0 else ""
        low, comma, high = inside.partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        self._at = stop + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise InvalidPatternError("invalid repeat count")
        return least, most

    def _atom(self) -> Node:
        character = self._take("")
        match character:
            case "(":
                return self._group()
            case "[":
                return Characters(self._folded(self._class()))
            case ".":
                return Characters(ALPHABET)
            case "^":
                return Assertion(Where.START)
            case "$":
                return Assertion(Where.END)
            case "*" | "+" | "?":
                raise InvalidPatternError(f"missing argument to repetition operator: {character}")
            case "\\":
                return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> Characters:
        return Characters(self._folded(frozenset(character)))

    def _folded(self, characters: frozenset[str]) -> frozenset[str]:
        if self._folds_case:
            characters |= {each.lower() for each in characters} | {each.upper() for each in characters}
        return characters & ALPHABET

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidPatternError("expression nests too deeply")
        outer = self._folds_case
        if self._skip("?") and self._group_head():
            self._depth -= 1
            return Sequence(())  # (?flags): for the rest of the group it stands in
        node = self._alternatives()
        if not self._skip(")"):
            raise InvalidPatternError("missing closing )")
        self._folds_case = outer
        self._depth -= 1
        return node

    def _group_head(self) -> bool:
        """Read a group's head, after "(?"; return whether the group ends here, since it only sets flags."""
        if self._skip("P<") or (self._peek("<") and not self._peek("<=") and not self._peek("<!") and self._skip("<")):
            name = self._until(">", "invalid named capture")
            if not name or not set(name) <= WORD or name in self._names:
                raise InvalidPatternError("invalid named capture")
            self._names.add(name)
            return False
        flags = ""
        while (character := self._take("missing closing )")) not in ":)":
            flags += character
        on, minus, off = flags.partition("-")
        if not set(on) | set(off) <= _FLAGS or (minus and not off):
            raise InvalidPatternError("invalid or unsupported Perl syntax")
        self._folds_case = (self._folds_case or "i" in on) and "i" not in off
        return character == ")"

    # --- escapes and classes --------------------------------------------------------------------------------------

    def _escape(self) -> Node:
        character = self._take("trailing backslash at end of expression")
        if character in _ASSERTIONS:
            return Assertion(_ASSERTIONS[character])
        self._at -= 1
        found = self._escaped_class()
        return Characters(self._folded(frozenset(self._escaped()) if found is None else found))

    def _escaped_class(self) -> frozenset[str] | None:
        r"""Return the characters of \d, \pL and the like, after a backslash."""
        character = self._text[self._at : self._at + 1]
        if character.lower() in _PERL_CLASSES and character:
            self._at += 1
            found = _PERL_CLASSES[character.lower()]
            return ALPHABET - found if character.isupper() else found
        if character not in ("p", "P"):
            return None
        self._at += 1
        name = self._take("invalid character class range")
        if name == "{":
            name = self._until("}", "invalid character class range")
        is_negated = (character == "P") != name.startswith("^")
        try:
            found = _UNICODE_CLASSES[name.removeprefix("^")]
        except KeyError:
            raise InvalidPatternError("invalid character class range") from None
        return ALPHABET - found if is_negated else found

    def _escaped(self) -> str:
        """Return the one character that an escape stands for, after a backslash."""
        character = self._take("trailing backslash at end of expression")
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            digits = self._until("}", "invalid escape sequence") if self._skip("{") else self._take("") + self._take("")
            if not digits or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
                raise InvalidPatternError("invalid escape sequence")
            return chr(int(digits, 16))
        if character == "0" or (character in "1234567" and self._text[self._at : self._at + 1] in tuple("01234567")):
            digits = character
            while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
                digits += self._take("")
            return chr(int(digits, 8))
        if character.isascii() and character.isalnum():
            raise InvalidPatternError("invalid escape sequence")
        return character

    def _class(self) -> frozenset[str]:
        is_negated = self._skip("^")
        found: set[str] = set()
        is_first = True
        while is_first or not self._peek("]"):
            if self._at >= len(self._text):
                raise InvalidPatternError("missing closing ]")
            is_first = False
            if self._skip("[:"):
                name = self._until(":]", "invalid character class range")
                found |= self._posix_class(name)
                continue
            if self._peek("\\"):
                self._at += 1
                named = self._escaped_class()
                if named is not None:
                    found |= named
                    continue
                self._at -= 1
            found |= self._range()
        self._at += 1
        characters = self._folded(frozenset(found))
        return ALPHABET - characters if is_negated else characters

    def _posix_class(self, name: str) -> frozenset[str]:
        try:
            characters = _POSIX_CLASSES[name.removeprefix("^")]
        except KeyError:
            raise InvalidPatternError("invalid character class range") from None
        return ALPHABET - characters if name.startswith("^") else characters

    def _range(self) -> set[str]:
        low = self._class_character()
        if not self._peek("-") or self._peek("-]"):
            return {low}
        self._at += 1
        high = self._class_character()
        if high < low:
            raise InvalidPatternError("invalid character class range")
        return {each for each in ALPHABET if low <= each <= high}

    def _class_character(self) -> str:
        return self._escaped() if self._skip("\\") else self._take("missing closing ]")


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 5 and text.isascii() and text.isdigit()
