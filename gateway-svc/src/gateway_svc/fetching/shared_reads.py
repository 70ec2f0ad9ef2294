"""Equal reads of one turn of the event loop, made of storage once: `SharedReads`, a layer over `Records`.

Consumers of one partition are answered together, so they ask for the same offset again in one turn. The first such
read goes to storage at once. Later ones of that turn join it while it has no answer, and receive the same answer.

Invariant: a read joins only one that has no answer yet and that began in the same turn. The request of the second read
was in its socket before that turn began, so before storage was asked. Nothing that its client can know of by then (an
acknowledged batch, deleted records, a deleted topic) is missing from the answer.

Answers are paced. ANSWERS_A_TURN reads are answered in a turn, the others in later turns, in order; between turns the
event loop serves all connections, so producers do not wait until every consumer has its answer. While more answers
than that are left, no read begins. The reads that arrive in that time begin together and see all records appended by
then. With a separate storage they share one frame, and answers to appends do not queue after those to many single
reads. ASKED_A_TURN reads at most go to storage in a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from broker_contract.data import ReadRequest, ReadResponse, ReadResult
from broker_contract.revisions import Revisions
from protocol_lib.errors import ErrorCode
from service_chassis import logs

from gateway_svc.storage.protocols import Records

#: Reads answered in one turn: 0.2 ms, for which an append waits.
ANSWERS_A_TURN: Final = 2
#: Reads that go to storage in one turn; they share one frame with a separate storage.
ASKED_A_TURN: Final = 8

_log = logs.get(__name__)

ReadDone = Callable[[ReadResponse], None]


class _SharedRead:
    """One read of storage, and the callbacks that wait for its answer."""

    __slots__ = ("_owner", "_response", "_waiting", "cancel", "left")

    def __init__(self, owner: SharedReads) -> None:
        self._owner = owner
        self._waiting: list[ReadDone | None] = []
        self._response: ReadResponse | None = None
        #: Callbacks that have not given up; 0 once there is an answer, so that no other read joins.
        self.left = 0
        self.cancel: Callable[[], None] | None = None

    def join(self, done: ReadDone) -> Callable[[], None]:
        """Add a callback; return a function that gives its read up."""
        index = len(self._waiting)
        self._waiting.append(done)
        self.left += 1
        return lambda: self._give_up(index)

    def _give_up(self, index: int) -> None:
        if self._waiting[index] is not None:
            self._waiting[index] = None
            if self._response is None:
                self.left -= 1
                if not self.left and self.cancel is not None:
                    self.cancel()

    def answered(self, response: ReadResponse) -> None:
        self._response = response
        self.left = 0
        for index in range(len(self._waiting)):
            self._owner.deliver_in_turn(self, index)

    def deliver(self, index: int) -> None:
        """Call one callback with the answer, unless it has given up."""
        done, self._waiting[index] = self._waiting[index], None
        if done is not None and self._response is not None:
            done(self._response)


class _LaterRead:
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


class SharedReads:
    """`storage.Records` for all connections of a gateway: reads are shared and paced, other methods are forwarded.

    Several callers may get the same `ReadResponse`; none may change it.
    """

    def __init__(self, records: Records, loop: asyncio.AbstractEventLoop) -> None:
        self._records = records
        self._loop = loop
        # Bound directly: a call in between would cost as much as all else that happens here.
        self.append = records.append
        self.read_ahead = records.read_ahead
        #: The reads of this turn by their fields, and the numbers of reads that storage was asked for and that were
        #: answered.
        self._turn: dict[tuple[object, ...], _SharedRead] = {}
        self._asked = 0
        self._answered = 0
        self._next_turn_due = False
        #: Reads that wait for their turn to begin, and those that wait for their turn to be answered.
        self._to_begin: deque[_LaterRead] = deque()
        self._to_deliver: deque[tuple[_SharedRead, int]] = deque()

    @property
    def revisions(self) -> Revisions | None:
        return self._records.revisions

    def read(self, request: ReadRequest, done: ReadDone) -> Callable[[], None]:
        if self._to_begin or not self._may_begin():
            later = _LaterRead(request, done)
            self._to_begin.append(later)
            return later.give_up
        return self._begin(request, done)

    def deliver_in_turn(self, read: _SharedRead, index: int) -> None:
        """Answer one callback of a read, now or when it is its turn."""
        if self._answered >= ANSWERS_A_TURN or self._to_deliver:
            self._to_deliver.append((read, index))
            return
        self._await_next_turn()
        self._answered += 1
        read.deliver(index)

    def _may_begin(self) -> bool:
        """Return whether storage may be asked now: few answers are left to deliver."""
        return (
            self._asked < ASKED_A_TURN and self._answered < ANSWERS_A_TURN and len(self._to_deliver) <= ANSWERS_A_TURN
        )

    def _await_next_turn(self) -> None:
        if not self._next_turn_due:
            self._next_turn_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn.clear()
        self._asked = self._answered = 0
        self._next_turn_due = False
        if not self._to_begin and not self._to_deliver:
            return
        self._await_next_turn()
        while self._to_begin and self._may_begin():
            later = self._to_begin.popleft()
            if later.done is not None:
                self._begin_later(later, later.done)
        while self._to_deliver and self._answered < ANSWERS_A_TURN:
            self._answered += 1
            read, index = self._to_deliver.popleft()
            read.deliver(index)

    def _begin_later(self, later: _LaterRead, done: ReadDone) -> None:
        """Begin a read of an earlier turn. The caller has returned, so report a failure in the answer and continue."""
        try:
            later.cancel = self._begin(later.request, done)
        except Exception:
            _log.exception("read failed", correlation_id=later.request.correlation_id)
            fault = ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR)
            done(ReadResponse([fault for _ in later.request.partitions]))

    def _begin(self, request: ReadRequest, done: ReadDone) -> Callable[[], None]:
        self._await_next_turn()
        if len(request.partitions) != 1:
            read = _SharedRead(self)
            give_up = read.join(done)
        else:
            (wanted,) = request.partitions
            key = (
                *(wanted.topic_partition, wanted.fetch_offset, wanted.max_bytes),
                *(wanted.leader_epoch, request.max_wait_ms, request.min_bytes, request.max_bytes),
                *(request.isolation_level, request.by_reference),
            )
            found = self._turn.get(key)
            if found is not None and found.left:
                return found.join(done)
            read = self._turn[key] = _SharedRead(self)
            give_up = read.join(done)
        self._asked += 1
        try:
            read.cancel = self._records.read(request, read.answered)
        except Exception:
            read.left = 0  # so that no other read joins it
            raise
        return give_up
