"""The lines that `// mutant: NAME` marks in JavaScript, and the changes that mutants.toml makes to them.

A mark stands alone above its line. A change is `OLD` -> `NEW`, both between backquotes. OLD is once in the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.mutants.marks import InapplicableError, Mutant

__all__ = ["MARK", "MarkedScript", "find_scripts"]

MARK: Final = "// mutant: "
_FOLDER: Final = "admin-api/src/admin_api/static/console"
_CHANGE: Final = re.compile(r"`([^`]+)` -> `([^`]*)`")


@dataclass(frozen=True)
class MarkedScript:
    """A file of JavaScript with marks."""

    path: Path
    source: str

    @cached_property
    def marks(self) -> list[tuple[str, int]]:
        """Pairs of a mark and the index of its line."""
        lines = self.source.splitlines()
        return [(text.strip().removeprefix(MARK), at + 1) for at, text in enumerate(lines) if MARK in text]

    def changed_by(self, mutant: Mutant) -> str:
        """Return the source with the change of a mutant at each of its marks. Raises InapplicableError."""
        lines = self.source.splitlines(keepends=True)
        change = _CHANGE.fullmatch(mutant.change)
        if change is None:
            raise InapplicableError(f"{mutant.change}: no such change of a script")
        old, new = change.groups()
        for mark, at in self.marks:
            if mark == mutant.mark:
                if lines[at].count(old) != 1:
                    raise InapplicableError(f"{old}: not once in {lines[at].strip()}")
                lines[at] = lines[at].replace(old, new)
        return "".join(lines)


def find_scripts(top: Path) -> list[MarkedScript]:
    """Return the files of the console that have marks."""
    paths = sorted(path for path in (top / _FOLDER).rglob("*.js") if path.parent.name != "vendor")
    files = (MarkedScript(path.relative_to(top), path.read_text()) for path in paths)
    return [each for each in files if MARK in each.source]
