"""The turns of old clients' fetches: their answers hold SHOWN_BYTES_MAX together, and over that they wait.

A fetch takes its turn before its records are read by value and converted. One turn is under way at a time. It may show
as many bytes as the answers before it leave: those that are not complete yet, and those that their clients have not
read. While others wait it may show no more than its share of them, so that small fetches do not wait long behind large
ones. A fetch that still waits for room after WAIT_S has no records; its client asks again. While fetches wait for room,
connections whose clients do not read are closed (clients/relief.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from gateway_svc.fetching.value_reads import WAIT_S

#: Most bytes of all answers with converted records, and of one.
SHOWN_BYTES_MAX: Final = 64 * 1024 * 1024
#: Bytes that must be left for a turn to begin.
ROOM_MIN: Final = 8 * 1024 * 1024
#: Bytes that a turn may show however many wait: an answer with fewer records costs more than it lets others gain.
_SHARE_MIN: Final = 1024 * 1024
#: Seconds between two looks for room while fetches wait.
_LOOK_S: Final = 0.02


class Reader(Protocol):
    """The connection of an old client."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not read."""
        ...


class _Turn:
    """One fetch that waits for its turn or has it."""

    __slots__ = ("begin", "expire", "timer")

    def __init__(self, begin: Callable[[int], None], expire: Callable[[], None]) -> None:
        self.begin: Callable[[int], None] | None = begin
        self.expire = expire
        self.timer: asyncio.TimerHandle | None = None


class ShownAnswers:
    """The turns of one gateway, which owns it and uses it from its event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[_Turn] = deque()
        self._is_running = False
        self._look: asyncio.TimerHandle | None = None
        #: Bytes of answers that are not complete yet, by their fetch. A fetch that is given up is released, with them.
        self._kept: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        #: The connections that were sent answers, until they have read them.
        self._readers: dict[Reader, None] = {}

    @property
    def held(self) -> int:
        """Bytes of all these answers."""
        for reader in [each for each in self._readers if not each.unsent_bytes]:
            del self._readers[reader]
        return sum(self._kept.values()) + sum(reader.unsent_bytes for reader in self._readers)

    @property
    def missing(self) -> int:
        """Bytes to free until a quarter of all is left, 0 if no fetch waits for room."""
        return 0 if self._look is None else max(0, self.held - SHOWN_BYTES_MAX * 3 // 4)

    @property
    def readers(self) -> Iterable[Reader]:
        """The connections that have not read their answers."""
        return self._readers

    def take(self, begin: Callable[[int], None], expire: Callable[[], None]) -> Callable[[], None]:
        """Call `begin` with the bytes that may be shown, now or later, or `expire`. Return a function to give up.

        `end` must follow `begin`.
        """
        turn = _Turn(begin, expire)
        self._waiting.append(turn)
        self._begin_next()
        if turn.begin is not None:
            turn.timer = self._loop.call_later(WAIT_S, self._expire, turn)
        return lambda: self._give_up(turn)

    def end(self) -> None:
        """End the turn: the bytes that were shown are kept, or sent."""
        self._is_running = False
        self._begin_next()

    def keep(self, fetch: object, size: int) -> None:
        """Count bytes of an answer that is not complete."""
        self._kept[fetch] = size

    def sent(self, fetch: object, reader: Reader) -> None:
        """Count no bytes of this fetch any more, but those that its connection has not read yet."""
        self._kept.pop(fetch, None)
        self._readers[reader] = None  # mutant: shown-answers-counted

    def _begin_next(self) -> None:
        while self._waiting and not self._is_running:
            turn = self._waiting[0]
            if turn.begin is None:
                self._waiting.popleft()
                continue
            room = SHOWN_BYTES_MAX - self.held
            if room < ROOM_MIN:
                if self._look is None:
                    self._look = self._loop.call_later(_LOOK_S, self._look_again)
                return
            self._waiting.popleft()
            begin, turn.begin = turn.begin, None
            if turn.timer is not None:
                turn.timer.cancel()
            self._is_running = True
            begin(max(_SHARE_MIN, room // (1 + len(self._waiting))))  # mutant: share-of-those-who-wait

    def _look_again(self) -> None:
        self._look = None
        self._begin_next()

    def _expire(self, turn: _Turn) -> None:
        if turn.begin is None:
            return
        if self._look is None:  # it waits for those before it, not for room
            turn.timer = self._loop.call_later(WAIT_S, self._expire, turn)
            return
        turn.begin = None
        turn.expire()

    def _give_up(self, turn: _Turn) -> None:
        turn.begin = None
        if turn.timer is not None:
            turn.timer.cancel()

    def close(self) -> None:
        """Let no turn begin any more."""
        for turn in self._waiting:
            self._give_up(turn)
        if self._look is not None:
            self._look.cancel()
