"""Answers on standard output: a table for people, JSON or YAML for programs.

The table is ours: columns of text need no library, and rich would cost a third of the time of `millrace topic list`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millrace.cli.options import Format

Row = Mapping[str, Any]


def show(rows: Sequence[Row] | Row, form: Format, *, columns: Sequence[str] = ()) -> None:
    """Print rows, or one row, whose names are the columns. `columns`: those of an empty table."""
    any_letter = (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    if form is Format.JSON:
        print(json.dumps(rows, indent=2, ensure_ascii=not any_letter))
    elif form is Format.YAML:
        import yaml

        print(yaml.safe_dump(rows, sort_keys=False, allow_unicode=any_letter), end="")
    elif isinstance(rows, Mapping):
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            print(f"{name.replace('_', ' '):<{width}}  {_cell(value)}".rstrip())
    else:
        names = list(rows[0]) if rows else list(columns)
        cells = [[_cell(row[name]) for name in names] for row in rows]
        for line in table([name.replace("_", " ").upper() for name in names], cells):
            print(line)


def show_each(rows: Iterable[Row], form: Format) -> None:
    """Print rows for programs, as a list of any length: each is printed before the next one is asked for."""
    number = 0
    for number, row in enumerate(rows, 1):
        if form is Format.YAML:
            show([row], form)
        else:
            print(f"{'[' if number == 1 else ','}\n  {json.dumps(row)}", end="")
    if form is Format.YAML and number:
        return
    print("\n]" if number else "[]")


def done(sentence: str, row: Row | Sequence[Row], form: Format) -> None:
    """Print what a command did or would do: a sentence for people, the row or rows for programs."""
    if form is Format.TABLE:
        print(sentence)
    else:
        show(row, form)


def tell(sentence: str) -> None:
    """Print an outcome at once, where more is to be done: a command goes on when the reader of its output has left."""
    try:
        print(sentence, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(sentence: str) -> None:
    """Print a remark on standard error, where it does not mix with the answer."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"millrace: {sentence}", file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table. Its head is bold on a terminal, unless NO_COLOR is set."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    if lines and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    return lines


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_cell, value)) or "-"
    text = str(value)
    return text if text.isprintable() else repr(text)
