"""Deadlines by key on the event loop. Most are pushed back long before they are due (every heartbeat does so), so that
pushing back only notes the new deadline; the loop's handle finds it when it fires and waits for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(slots=True)
class _Entry:
    deadline: float
    handle: asyncio.TimerHandle


class Timers(Generic[KeyT]):
    """Owner: the coordinator; `fired` is called on the loop, once per `set` that was neither cancelled nor repeated."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fired: Callable[[KeyT], None]) -> None:
        self._loop = loop
        self._fired = fired
        self._entries: dict[KeyT, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def set(self, key: KeyT, delay_ms: int) -> None:
        deadline = self._loop.time() + delay_ms / 1000
        entry = self._entries.get(key)
        if entry is not None and entry.handle.when() <= deadline:
            entry.deadline = deadline
            return
        if entry is not None:
            entry.handle.cancel()
        self._entries[key] = _Entry(deadline, self._loop.call_at(deadline, self._due, key))

    def cancel(self, key: KeyT) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.handle.cancel()

    def close(self) -> None:
        for entry in self._entries.values():
            entry.handle.cancel()
        self._entries.clear()

    def _due(self, key: KeyT) -> None:
        entry = self._entries[key]
        if entry.deadline > entry.handle.when():
            entry.handle = self._loop.call_at(entry.deadline, self._due, key)
            return
        del self._entries[key]
        self._fired(key)
