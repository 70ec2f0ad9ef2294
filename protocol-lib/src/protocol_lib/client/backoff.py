"""Delays before the next try."""

import asyncio
import random

from protocol_lib.client.settings import ClientSettings


class Backoff:
    """Delays that double from `retry_backoff_ms` to `retry_backoff_max_ms`, each 20 % more or less (KIP-580)."""

    def __init__(self, settings: ClientSettings) -> None:
        self._first = settings.retry_backoff_ms / 1000
        self._most = settings.retry_backoff_max_ms / 1000
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    def next_delay(self) -> float:
        """Return the next delay in seconds; counts as a try."""
        delay: float = min(self._most, self._first * 2 ** min(self._tries, 30))
        self._tries += 1
        return delay * random.uniform(0.8, 1.2)

    async def wait(self) -> None:
        await asyncio.sleep(self.next_delay())
