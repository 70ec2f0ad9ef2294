"""Reads that ask the same in the same turn of the event loop, asked of storage once.

Those who follow one partition are answered together and ask for the same place again, many in one turn. The first such
read goes to storage at once; the others of that turn join it while it has no answer, and all are given its answer.

Invariant: a read only joins one that has no answer yet and that began in the same turn. Its request lay in the socket
before the turn began, so before storage was asked: nothing that its client can have heard of by then (an acknowledged
batch, deleted records, a deleted topic) is missing from the answer, and it waits as long as it asked to, but for the
turns before its own. A read that was answered, or is of an earlier turn, is never joined.

Only ANSWERS_A_TURN are answered in a turn, the others in the next ones, in order: between turns the event loop looks at
all connections, so that who appends does not wait until everybody who follows the partition was sent what is there.
While more answers than that are left, no read begins. Those that come meanwhile then begin together, and are told of
all that was appended meanwhile; where storage is another process they are one read in one frame, and the answers to
appends do not come behind those to many reads that were begun one by one. At most ASKED_A_TURN go to storage in a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from broker_contract.data import ReadRequest, ReadResponse

from gateway_svc.storage.protocols import Records

#: 0.2 ms; how long an append waits for one turn.
ANSWERS_A_TURN: Final = 2
#: What storage is asked in one turn, which is one frame where it is another process.
ASKED_A_TURN: Final = 8

ReadDone = Callable[[ReadResponse], None]


class _Joined:
    """One read at storage, and who waits for it."""

    __slots__ = ("_owner", "_response", "_waiting", "cancel", "left")

    def __init__(self, owner: JoinedReads) -> None:
        self._owner = owner
        self._waiting: list[ReadDone | None] = []
        self._response: ReadResponse | None = None
        #: How many have not given up; none once there is an answer: nobody joins any more.
        self.left = 0
        self.cancel: Callable[[], None] | None = None

    def join(self, done: ReadDone) -> Callable[[], None]:
        place = len(self._waiting)
        self._waiting.append(done)
        self.left += 1
        return lambda: self._leave(place)

    def _leave(self, place: int) -> None:
        if self._waiting[place] is not None:
            self._waiting[place] = None
            if self._response is None:
                self.left -= 1
                if not self.left and self.cancel is not None:
                    self.cancel()

    def answered(self, response: ReadResponse) -> None:
        self._response = response
        self.left = 0
        for place in range(len(self._waiting)):
            self._owner.give(self, place)

    def give(self, place: int) -> None:
        done, self._waiting[place] = self._waiting[place], None
        if done is not None and self._response is not None:
            done(self._response)


class _Later:
    """A read that has not begun."""

    __slots__ = ("cancel", "done", "request")

    def __init__(self, request: ReadRequest, done: ReadDone) -> None:
        self.request = request
        self.done: ReadDone | None = done
        self.cancel: Callable[[], None] | None = None

    def give_up(self) -> None:
        self.done = None
        if self.cancel is not None:
            self.cancel()


class JoinedReads:
    """Owned by the gateway's Services."""

    def __init__(self, records: Records, loop: asyncio.AbstractEventLoop) -> None:
        self._records = records
        self._loop = loop
        #: What was asked in this turn, how often storage was, and how many were answered.
        self._turn: dict[tuple[object, ...], _Joined] = {}
        self._asked = 0
        self._given = 0
        self._next_turn_due = False
        #: Those whose turn has not come.
        self._to_begin: deque[_Later] = deque()
        self._to_give: deque[tuple[_Joined, int]] = deque()

    def read(self, request: ReadRequest, done: ReadDone) -> Callable[[], None]:
        """As `Records.read`."""
        if self._to_begin or not self._may_begin():
            later = _Later(request, done)
            self._to_begin.append(later)
            return later.give_up
        return self._begin(request, done)

    def give(self, joined: _Joined, place: int) -> None:
        """An answer to one of those that wait: now or when it is its turn."""
        if self._given >= ANSWERS_A_TURN or self._to_give:
            self._to_give.append((joined, place))
            return
        self._await_next_turn()
        self._given += 1
        joined.give(place)

    def _may_begin(self) -> bool:
        """Whether storage may be asked now: little is left to answer."""
        return self._asked < ASKED_A_TURN and self._given < ANSWERS_A_TURN and len(self._to_give) <= ANSWERS_A_TURN

    def _await_next_turn(self) -> None:
        if not self._next_turn_due:
            self._next_turn_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn.clear()
        self._asked = self._given = 0
        self._next_turn_due = False
        if not self._to_begin and not self._to_give:
            return
        self._await_next_turn()
        while self._to_begin and self._may_begin():
            later = self._to_begin.popleft()
            if later.done is not None:
                later.cancel = self._begin(later.request, later.done)
        while self._to_give and self._given < ANSWERS_A_TURN:
            self._given += 1
            joined, place = self._to_give.popleft()
            joined.give(place)

    def _begin(self, request: ReadRequest, done: ReadDone) -> Callable[[], None]:
        self._await_next_turn()
        if len(request.partitions) != 1:
            joined = _Joined(self)
            give_up = joined.join(done)
        else:
            (wanted,) = request.partitions
            key = (
                *(wanted.topic, wanted.topic_id, wanted.partition, wanted.fetch_offset, wanted.max_bytes),
                *(wanted.leader_epoch, request.version, request.max_wait_ms, request.min_bytes, request.max_bytes),
                *(request.isolation_level, request.by_reference),
            )
            found = self._turn.get(key)
            if found is not None and found.left:
                return found.join(done)
            joined = self._turn[key] = _Joined(self)
            give_up = joined.join(done)
        self._asked += 1
        joined.cancel = self._records.read(request, joined.answered)
        return give_up
