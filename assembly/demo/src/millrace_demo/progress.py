"""Progress for the user: bars in a terminal, one plain line per step elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Advance = Callable[[int], None]


class Steps:
    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, what: str, total: int | None = None) -> Iterator[Advance]:
        """Show one step of the work, also one that fails. The yielded function adds to the number done, of `total`."""
        began = time.monotonic()
        try:
            if self._console.is_terminal:
                with self._bar(counted=total is not None) as progress:
                    task = progress.add_task(what, total=total)
                    yield lambda count: progress.update(task, advance=count)
            else:
                self._console.print(f"{what} …")
                yield lambda _count: None
        except Exception:
            self.say(f"✗ {what}: after {time.monotonic() - began:.1f} s")
            raise
        self.say(f"✓ {what}: {time.monotonic() - began:.1f} s")

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def _bar(self, *, counted: bool) -> Progress:
        columns = [BarColumn(), MofNCompleteColumn()] if counted else [SpinnerColumn()]
        return Progress(
            TextColumn("{task.description}"), *columns, TimeElapsedColumn(), console=self._console, transient=True
        )
