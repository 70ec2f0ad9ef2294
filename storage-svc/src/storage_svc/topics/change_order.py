"""Changes of named things that take several turns of the event loop, one after the other for each name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class ChangeOrder:
    """Owner: the event loop."""

    def __init__(self) -> None:
        #: Name -> its last change that is not over.
        self._last: dict[str, asyncio.Task[Any]] = {}

    async def run(self, names: Collection[str], change: Callable[[], Awaitable[T]]) -> T:
        """Make a change after all earlier ones of any of these names, and before all later ones.

        The change decides when it is its turn: it sees what the earlier ones have done. It goes on when its caller is
        cancelled. It must not make another change of these names.
        """
        earlier = {self._last[name] for name in names if name in self._last}
        task = asyncio.create_task(_after(earlier, change))
        self._last |= dict.fromkeys(names, task)
        task.add_done_callback(partial(self._over, tuple(names)))
        return await asyncio.shield(task)

    def _over(self, names: Collection[str], task: asyncio.Task[Any]) -> None:
        for name in names:
            if self._last.get(name) is task:
                del self._last[name]

    async def finish(self) -> None:
        """Wait for the changes that are under way."""
        while self._last:
            await asyncio.wait(set(self._last.values()))


async def _after(earlier: set[asyncio.Task[Any]], change: Callable[[], Awaitable[T]]) -> T:
    if earlier:
        await asyncio.wait(earlier)  # mutant: changes-in-order
    return await change()
