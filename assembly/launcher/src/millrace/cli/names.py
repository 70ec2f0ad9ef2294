"""Names by regular expressions (`--regex`), which match whole names as those of Kafka's consumers do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from millrace.cli.errors import USAGE, CliError


def pattern(texts: Sequence[str]) -> re.Pattern[str]:
    """Return one expression for names that match any of these. Raises CliError for a text that is none."""
    whole = texts[0] if len(texts) == 1 else "|".join(f"(?:{text})" for text in texts)
    for text in (*texts, whole):
        try:
            found = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise CliError(f"--regex: {text!r} is no regular expression: {error}", USAGE) from error
    return found


def matching(texts: Sequence[str], names: Iterable[str], kind: str) -> list[str]:
    """Return the names that match. Raises CliError when none does; `kind` is the plural of what has the names."""
    wanted = pattern(texts)
    found = [name for name in names if wanted.fullmatch(name)]
    if not found:
        raise CliError(f"no {kind} match {' or '.join(texts)}")
    return found
