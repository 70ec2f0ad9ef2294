"""Producer ids that no producer has, in a pool that is filled ahead from blocks of the catalog.

Whoever takes an id waits for no commit, as long as the pool has one: a block is allocated when the pool runs low. The
first block is allocated when the first id is needed, so a broker without such producers writes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from service_chassis import logs as service_logs

from storage_svc.topics.catalog_file import CatalogError

log = service_logs.get(__name__)

#: Number of ids in a block, as in Kafka. A restart skips the rest of the block.
BLOCK_SIZE: Final = 1000
#: The number of ids that are left when another block is allocated.
LOW: Final = 100
#: The first id that no broker reaches. A client has made up such an id; it must not use up the others.
_FOREIGN: Final = 2**62


def first_unused(in_use: Iterable[int]) -> int:
    """Return the id after all of `in_use`, the ids that logs remember.

    The catalog does not know them if it was lost, or if the logs are Apache Kafka's. A new producer with one of them
    would look like the old one, and its records like repeated ones.
    """
    return 1 + max((each for each in in_use if each < _FOREIGN), default=-1)


def _set(filled: asyncio.Future[bool], is_filled: bool) -> None:
    if not filled.done():  # or its caller has left
        filled.set_result(is_filled)


class ProducerIds:
    """The pool. Owner: storage, on the event loop."""

    def __init__(self, allocate: Callable[[int], Awaitable[range]]) -> None:
        """Fill the pool by `allocate`, which gets a number of ids, and raises CatalogError if there are none now."""
        self._allocate = allocate
        self._ids: deque[int] = deque()
        self._waiting: list[Callable[[bool], None]] = []
        self._filling: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def spare(self) -> int | None:
        """The id that `take` returns; None while the pool is empty."""
        return self._ids[0] if self._ids else None

    def take(self) -> int:
        """Return an id, which is no longer spare.

        Raises:
            IndexError: the pool is empty.
        """
        taken = self._ids.popleft()
        if len(self._ids) < LOW:  # mutant: ids-filled-ahead
            self._fill()
        return taken

    def when_filled(self, done: Callable[[bool], None]) -> None:
        """Call back, later, with True once the pool has got a block, and with False if it gets none."""
        self._waiting.append(done)
        self._fill()

    async def next(self) -> int | None:
        """Return an id, after a wait if the pool is empty. None: no id can be allocated now."""
        while not self._ids:
            filled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self.when_filled(partial(_set, filled))
            if not await filled:
                return None
        return self.take()

    async def close(self) -> None:
        """Allocate no further block. A caller that waits for one gets None."""
        self._closed = True
        if self._filling is not None:
            await self._filling

    def _fill(self) -> None:
        if self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(self._add_block(), name="allocate producer ids")

    async def _add_block(self) -> None:
        is_filled = False
        try:
            if not self._closed:
                self._ids.extend(await self._allocate(BLOCK_SIZE))
                is_filled = True
        except CatalogError as error:
            log.error("cannot allocate a block of producer ids", reason=str(error))
        finally:
            self._filling = None
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                try:
                    done(is_filled)
                except Exception:  # of one; the others must be answered
                    log.exception("a call that waited for a producer id failed")
