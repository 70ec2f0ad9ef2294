"""Kafka's `ssl.principal.mapping.rules`: from the subject of a client's certificate to its name.

    RULE:pattern/replacement/[LU], …, DEFAULT

The first rule whose pattern matches the whole subject decides: each match in it becomes the replacement, in lower (L)
or upper (U) case. DEFAULT is the subject itself. In a replacement `$n` is a group, and text if there are fewer groups;
a backslash makes the next character text. Patterns are Java's; those that Python reads otherwise, or not at all, are
refused at the start.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE)
_CASES: Final[dict[str, Callable[[str], str]]] = {"L": str.lower, "U": str.upper, "": str}


@dataclass(frozen=True, slots=True)
class _Rule:
    #: None for DEFAULT.
    pattern: re.Pattern[str] | None
    #: Texts, and the numbers of groups.
    replacement: Sequence[str | int]
    change: Callable[[str], str]

    def name(self, subject: str) -> str | None:
        """Return the name of a subject, or None if the rule is not for it."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        return self.change(self.pattern.sub(self._replaced, subject))

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(each if isinstance(each, str) else match[each] or "" for each in self.replacement)


class PrincipalRules:
    """The rules of one setting, in order."""

    def __init__(self, text: str) -> None:
        """Read the rules. Raises ValueError with a message for the operator."""
        found = [match[1] for match in _SPLITTER.finditer(text.strip() or "DEFAULT")]
        self._rules = [rule for each in found if (rule := _rule(each)) is not None]

    def name(self, subject: str) -> str:
        """Return the name of a certificate's subject.

        Raises:
            ValueError: no rule is for it.
        """
        for rule in self._rules:
            name = rule.name(subject)
            if name is not None:
                return name
        raise ValueError(f"no rule of MILLRACE_SSL_PRINCIPAL_MAPPING_RULES is for {subject}")


def _rule(text: str) -> _Rule | None:
    """Return the rule of a text; None for an empty one, which is ignored."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise ValueError(f"{text!r} is not RULE:pattern/replacement/[LU] or DEFAULT")
    if match[1]:
        return _Rule(None, (), str)
    if match[2] is None:
        return None
    pattern = _compiled(match[2])
    return _Rule(pattern, _replacement(match[3], pattern.groups), _CASES[match[4]])


def _compiled(text: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # sets in sets, which Java has
            return re.compile(text, re.ASCII)
    except (re.error, FutureWarning) as error:
        raise ValueError(f"the pattern {text!r} cannot be used: {error}") from error


def _replacement(text: str, groups: int) -> Sequence[str | int]:
    """Return the parts of a replacement, as Java's `Matcher.appendReplacement` reads it."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        sign, at = text[at], at + 1
        if sign == "\\":
            if at == len(text):
                raise ValueError(f"the replacement {text!r} ends with a backslash")
            parts.append(text[at])
            at += 1
        elif sign != "$":
            parts.append(sign)
        else:
            if not text[at : at + 1].isascii() or not text[at : at + 1].isdigit():
                raise ValueError(f"the replacement {text!r} has a $ without a number")
            number, end = int(text[at]), at + 1
            while end < len(text) and text[end] in "0123456789" and 10 * number + int(text[end]) <= groups:
                number, end = 10 * number + int(text[end]), end + 1
            if number <= groups:
                parts.append(number)
                at = end
            elif groups:
                parts.append("$")
            else:
                raise ValueError(f"the replacement {text!r} has ${number}, and the pattern no group")
    return parts
