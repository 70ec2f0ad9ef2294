"""Places of requests that may last: at most half of them are for one client, so that others find one."""

from __future__ import annotations

import asyncio
import weakref


class Share:
    """The places that one client can take, with the methods of a semaphore. Owned by who holds or awaits a place."""

    __slots__ = ("__weakref__", "_all", "_own")

    def __init__(self, all_places: asyncio.Semaphore, count: int) -> None:
        self._all = all_places
        self._own = asyncio.Semaphore(count)

    def locked(self) -> bool:
        return self._own.locked() or self._all.locked()

    async def acquire(self) -> None:
        """Take a place of the client's share, and then one of all.

        A client waits for its share outside of the queue for all places.
        """
        await self._own.acquire()  # mutant: half-for-one-client
        try:
            await self._all.acquire()
        except BaseException:
            self._own.release()
            raise

    def release(self) -> None:
        self._all.release()
        self._own.release()


class Places:
    """The places of one kind of requests. The event loop alone uses it."""

    def __init__(self, count: int) -> None:
        self._all = asyncio.Semaphore(count)
        self._half = max(count // 2, 1)
        self._shares: weakref.WeakValueDictionary[str, Share] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        """Return the number of clients that hold or await a place."""
        return len(self._shares)

    def of(self, client: str) -> Share:
        """Return the share of a client."""
        share = self._shares.get(client)
        if share is None:
            share = self._shares[client] = Share(self._all, self._half)
        return share
