"""Reads of many partitions, which are looked up a piece at a time, with turns for others between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker_contract.data import ReadRequest
from service_chassis import logs as service_logs
from service_chassis.shared_turns import SharedTurns

#: Partitions of one piece: a few tenths of a millisecond.
PIECE: Final = 100

_log = service_logs.get(__name__)


class _LongRead:
    """A read during the look-up of its partitions."""

    __slots__ = ("cancel", "correlation_id", "steps")

    def __init__(self, steps: Iterator[Callable[[], None] | None], correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.steps: Iterator[Callable[[], None] | None] | None = steps
        #: The function that gives the read up after the look-up.
        self.cancel: Callable[[], None] | None = None

    def give_up(self) -> None:
        self.steps = None
        if self.cancel is not None:
            self.cancel()

    def step(self) -> bool:
        """Look one piece up; return whether another is left."""
        if self.steps is None:
            return False
        try:
            self.cancel = next(self.steps)
        except StopIteration:
            self.steps = None
            return False
        return True


class LongReads:
    """All reads of many partitions that are not answered or parked yet. WaitingReads owns it."""

    def __init__(self, turns: SharedTurns) -> None:
        self._turns = turns
        self._reads: dict[_LongRead, None] = {}

    def read(self, request: ReadRequest, steps: Iterator[Callable[[], None] | None]) -> Callable[[], None]:
        """Take a step in each turn. The last one yields the function that gives the read up from then on.

        Returns the function that gives it up until then, and after.
        """
        read = _LongRead(steps, request.correlation_id)
        self._reads[read] = None
        self._turns.soon(partial(self._step, read))
        return read.give_up

    def _step(self, read: _LongRead) -> None:
        try:
            if read.step():
                self._turns.soon(partial(self._step, read))
                return
        except Exception:
            _log.exception("a long read failed", correlation_id=read.correlation_id)
        self._reads.pop(read, None)

    def finish(self) -> None:
        """Take all steps that are left, now."""
        reads, self._reads = self._reads, {}
        for read in reads:
            while read.step():
                pass
