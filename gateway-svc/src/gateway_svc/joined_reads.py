"""Reads that ask the same in the same turn of the event loop, asked of storage once.

Those who follow one partition are answered together and ask for the same place again, many in one turn. The first such
read goes to storage at once; the others of that turn join it while it has no answer, and all are given its answer.

Invariant: a read only joins one that has no answer yet and that began in the same turn. Its request lay in the socket
before the turn began, so before storage was asked: nothing that its client can have heard of by then (an acknowledged
batch, deleted records, a deleted topic) is missing from the answer, and it waits as long as it asked to, but for the
length of a turn. A read that was answered, or is of an earlier turn, is never joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_contract.data import ReadRequest, ReadResponse

from gateway_svc.storage import Records

ReadDone = Callable[[ReadResponse], None]


class _Joined:
    """One read at storage, and who waits for it."""

    __slots__ = ("cancel", "left", "waiting")

    def __init__(self) -> None:
        self.waiting: list[ReadDone | None] = []
        #: How many of them have not given up.
        self.left = 0
        self.cancel: Callable[[], None] | None = None

    def join(self, done: ReadDone) -> Callable[[], None]:
        place = len(self.waiting)
        self.waiting.append(done)
        self.left += 1
        return lambda: self._leave(place)

    def _leave(self, place: int) -> None:
        if self.waiting and self.waiting[place] is not None:
            self.waiting[place] = None
            self.left -= 1
            if not self.left and self.cancel is not None:
                self.cancel()

    def answered(self, response: ReadResponse) -> None:
        waiting, self.waiting, self.left = self.waiting, [], 0
        for done in waiting:
            if done is not None:
                done(response)


class JoinedReads:
    """Owned by the gateway's Services."""

    def __init__(self, records: Records, loop: asyncio.AbstractEventLoop) -> None:
        self._records = records
        self._loop = loop
        #: What was asked in this turn.
        self._turn: dict[tuple[object, ...], _Joined] = {}

    def read(self, request: ReadRequest, done: ReadDone) -> Callable[[], None]:
        """As `Records.read`."""
        if len(request.partitions) != 1:
            return self._records.read(request, done)
        (wanted,) = request.partitions
        key = (
            *(wanted.topic, wanted.topic_id, wanted.partition, wanted.fetch_offset, wanted.max_bytes),
            *(wanted.leader_epoch, request.version, request.max_wait_ms, request.min_bytes, request.max_bytes),
            *(request.isolation_level, request.by_reference),
        )
        joined = self._turn.get(key)
        if joined is not None and joined.left:
            return joined.join(done)
        if not self._turn:
            self._loop.call_soon(self._turn.clear)
        joined = self._turn[key] = _Joined()
        give_up = joined.join(done)
        joined.cancel = self._records.read(request, joined.answered)
        return give_up
