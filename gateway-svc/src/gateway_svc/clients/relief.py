"""Relief for full memory: it closes the connections that hold the most bytes for longest without progress.

    memory of …    when                            closes connections
    requests       a connection waits for memory   that sent no byte for STALL_S, or whose request is held so long
    answers        three quarters are used         whose client has read no byte for STALL_S
                   more than the limit is used     however recently their clients have read
    old clients    a fetch waits for room          of old clients that have read no byte for STALL_S

The worst connection, with the greatest product of bytes and seconds, is closed first, until enough bytes are free.

One answer may be larger than the limit: without the connection that holds the most answers, the others must exceed it.
If every connection waits and no bytes come back, the connection that holds the most is closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from gateway_svc.errors import RequestRefused
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.request_memory import RequestMemory, Share

#: Seconds without progress after which a connection may be closed for the sake of others.
STALL_S: Final = 2.0
#: The part of the memory that is freed at once, at least.
_PART: Final = 16


class Holder(Protocol):
    """A connection that holds memory."""

    def stalled(self, now: float) -> tuple[int, float, Share]:
        """Return the bytes of requests that have not started, for how long they have stalled, and their share."""
        ...

    def unread(self, now: float) -> tuple[int, float]:
        """Return the bytes of answers that wait for the client, and the seconds since it last read some."""
        ...

    def close_refused(self, refusal: RequestRefused) -> None: ...


class OldAnswers(Protocol):
    """The answers of old clients (`fetching/shown_answers.py`)."""

    @property
    def missing(self) -> int:
        """Bytes to free for the fetches that wait, 0 if none does."""
        ...

    @property
    def readers(self) -> Iterable[object]:
        """The connections that have such answers."""
        ...


class Relief:
    """The relief of one gateway's memory. The gateway owns it."""

    def __init__(self, requests: RequestMemory, answers: MemoryBudget, old_answers: OldAnswers) -> None:
        self._requests = requests
        self._answers = answers
        self._old_answers = old_answers
        #: `RequestMemory.release_count` at the last check; -1 if no connection waited then.
        self._releases_seen = -1

    def relieve(self, holders: Iterable[Holder], now: float) -> None:
        """Close connections if memory is short. Called once a second."""
        if self._requests.is_waited_for:  # mutant: relief-when-waited-for
            self._relieve_requests(list(holders), now)
        self._releases_seen = self._requests.release_count if self._requests.is_waited_for else -1
        if self._answers.used > self._answers.limit * 3 // 4:
            self.relieve_answers(holders, now)
        missing = self._old_answers.missing
        if missing:  # mutant: relief-of-old-clients
            readers = set(self._old_answers.readers)
            unread = [(holder, *holder.unread(now)) for holder in holders if holder in readers]
            found = [(held * seconds, held, holder) for holder, held, seconds in unread if held and seconds >= STALL_S]
            _close(found, missing, "memory_unread", "the memory for answers of old clients is full")

    def _relieve_requests(self, holders: list[Holder], now: float) -> None:
        memory = self._requests
        starved = memory.starved_shares
        found = []
        for holder in holders:
            held, seconds, share = holder.stalled(now)
            if held and seconds >= STALL_S and (starved is None or share in starved):
                found.append((held * seconds, held, holder))
        if not found and memory.release_count == self._releases_seen and starved is None:
            held, holder = max(((each.stalled(now)[0], each) for each in holders), key=lambda pair: pair[0])
            found = [(0.0, held, holder)] if held else []
        _close(found, memory.limit // _PART, "memory_stalled", "the memory for requests is full")

    def relieve_answers(self, holders: Iterable[Holder], now: float) -> None:
        """Close connections whose clients do not read, until at most three quarters of the memory are used."""
        answers = self._answers
        unread = [(holder, *holder.unread(now)) for holder in holders]
        largest = max([held for _, held, _ in unread], default=0)
        least_s = 0.0 if answers.used - largest > answers.limit else STALL_S
        found = [
            (held * (seconds + 0.001), held, holder) for holder, held, seconds in unread if held and seconds >= least_s
        ]
        _close(found, answers.used - answers.limit * 3 // 4, "memory_unread", "the memory for answers is full")


def _close(found: list[tuple[float, int, Holder]], wanted: int, reason: str, detail: str) -> None:
    """Close the worst until they have held the bytes that are wanted."""
    for _, held, holder in sorted(found, key=lambda each: each[0], reverse=True):
        if wanted <= 0:
            return
        wanted -= held
        holder.close_refused(RequestRefused(reason, detail))
