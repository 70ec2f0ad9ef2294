"""An exception from a rule stands where it is made: `# wall clock: shown to people`, on its line or directly above."""

from __future__ import annotations

__all__ = ["remark"]


def remark(source: str, line: int, rule: str) -> str:
    """Return the reason with which a comment excepts a line from a rule; empty if none does."""
    lines = source.splitlines()
    places = [lines[line - 1]]
    for above in reversed(lines[: line - 1]):
        if not above.lstrip().startswith("#"):
            break
        places.append(above)
    return next((text.partition(f"# {rule}: ")[2] for text in places if f"# {rule}: " in text), "")
