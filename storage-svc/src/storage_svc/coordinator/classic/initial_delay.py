"""The delay before an empty group's first rebalance ends: members that start together get one generation, not many.

It lasts `group.initial.rebalance.delay.ms`, and as long again whenever a new member came during it. In all it lasts no
longer than the members' rebalance timeout. With a delay of 3 s and a timeout of 10 s: the first member comes at 0 s,
others at 1 s and 4 s, and the generation begins at 9 s. With one more at 7 s it begins at 10 s.
"""

from __future__ import annotations


class InitialDelay:
    """The delay of one group, which owns it."""

    __slots__ = ("_delay_ms", "_has_newcomer", "_remaining_ms")

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        #: The time by which the delay may still grow; None when there is no delay now.
        self._remaining_ms: int | None = None
        #: A member came since the timer was set.
        self._has_newcomer = False

    @property
    def is_running(self) -> bool:
        return self._remaining_ms is not None

    def begin(self, rebalance_timeout_ms: int) -> int:
        """Begin the delay, and return the first wait, in milliseconds."""
        self._remaining_ms = max(rebalance_timeout_ms - self._delay_ms, 0)
        self._has_newcomer = False
        return self._delay_ms

    def note_newcomer(self) -> None:
        self._has_newcomer = self.is_running

    def extend(self) -> int | None:
        """Return the next wait, in milliseconds; None when the delay is over, or there was none."""
        if not self._remaining_ms or not self._has_newcomer:
            return None
        wait_ms = min(self._delay_ms, self._remaining_ms)
        self._remaining_ms -= wait_ms  # mutant: initial-delay-bounded
        self._has_newcomer = False
        return wait_ms

    def end(self) -> None:
        self._remaining_ms = None
