"""Requests of one connection that wait for their answers, in the order the client sent them.

Kafka answers a connection strictly in request order and works on one of its requests at a time. Here requests start
early where a client cannot notice:

    APPEND     any number at once; storage keeps their order
    READ       after all answers before it were sent: it finds the records of appends before it. Appends may follow it
    CONTROL    alone: after all answers before it were sent, and before any request after it starts

So a commit and the leave that follows it, or a create and the produce that follows it, never overtake each other on
their separate ways to storage.

    order:  [append 1: answered] [append 2: waiting] [append 3: answered]     sent: append 1; then 2 and 3 in one write
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from gateway_svc.clients.slices import FileRange, LaneRange, Part

#: Requests of one connection in service at once; librdkafka keeps 1,000,000 at most, Java 5, Kafka itself serves 1.
IN_FLIGHT_MAX = 1024
#: Request bytes of one connection in service at once (one larger request is served alone).
IN_FLIGHT_BYTES_MAX = 64 * 1024 * 1024


class Kind(Enum):
    """Rules by which a request shares its connection with the requests around it."""

    #: A request that starts while other appends, or a read before them, are in service.
    APPEND = "append"
    #: A request that starts when all answers before it were sent. Its answer may be large, and may wait long.
    READ = "read"
    #: A request that starts when all answers before it were sent; no other starts before its own answer was sent.
    CONTROL = "control"


# An attribute of an Enum class costs as much as a call: each is looked up once.
APPEND: Final = Kind.APPEND
READ: Final = Kind.READ
CONTROL: Final = Kind.CONTROL


class Pending:
    """The position of one request, or of a run of requests of one kind, in the order of answers."""

    __slots__ = ("abandon", "count", "kind", "may_park", "parts", "size")

    def __init__(self, kind: Kind, size: int, *, may_park: bool = False, count: int = 1) -> None:
        self.kind = kind
        #: Number of requests in the run.
        self.count = count
        #: Whether its answer may take minutes: an orderly stop does not wait for it.
        self.may_park = may_park
        #: Bytes of the request, held until it is answered.
        self.size = size
        #: The encoded answer, empty for a request without one (acks=0); None before it is known.
        self.parts: Sequence[Part] | None = None
        #: The function that ends the work on the request when its client is gone; None if it cannot be ended.
        self.abandon: Callable[[], None] | None = None

    def lose(self) -> None:
        """End the work on the request if possible: the client is gone."""
        if self.abandon is not None:
            self.abandon()


class Pipeline:
    """The order of one connection's requests. Owned by its connection."""

    __slots__ = ("_bytes", "_control", "_is_blocked", "closed", "order", "requests")

    def __init__(self) -> None:
        #: The requests whose answers have not left; changed here only.
        self.order: deque[Pending] = deque()
        #: Number of requests in service; changed here only.
        self.requests = 0
        self._bytes = 0
        self._control = False
        self._is_blocked = False
        self.closed = False

    @property
    def size(self) -> int:
        """Bytes of the requests whose answers have not left."""
        return self._bytes

    def admits(self, kind: Kind) -> bool:
        """Return whether a request of this kind may start now."""
        if not self.order:
            return True
        if self._control or self._is_blocked or kind is not APPEND:  # mutant: read-after-appends
            return False
        return self.requests < IN_FLIGHT_MAX and self._bytes < IN_FLIGHT_BYTES_MAX

    def block(self) -> None:
        """Admit no request until `unblock`: none may overtake the one opened last, which still waits."""
        self._is_blocked = True

    def unblock(self) -> None:
        """Admit requests again. The caller then has the connection start those that it holds."""
        self._is_blocked = False

    def open(self, pending: Pending) -> None:
        """Add a request after all others."""
        self.order.append(pending)
        self.requests += pending.count
        self._bytes += pending.size
        if pending.kind is CONTROL:
            self._control = True

    def answer(self, pending: Pending, parts: Sequence[Part]) -> bool:
        """Set the answer to a request, which leaves after all before it; return whether `take` returns it now.

        Not to be called after `close`.
        """
        pending.parts = parts
        return self.order[0] is pending

    def take(self) -> list[Part]:
        """Remove and return the answers that may leave now, in order."""
        taken: list[Part] = []
        order = self.order
        while order and (parts := order[0].parts) is not None:
            pending = order.popleft()
            self.requests -= pending.count
            self._bytes -= pending.size
            if pending.kind is CONTROL:
                self._control = False
            taken += parts
        return taken

    def only_parked(self) -> bool:
        """Return whether all unanswered requests are ones that may take minutes."""
        return all(pending.may_park for pending in self.unanswered())

    def any_parked(self) -> bool:
        """Return whether an unanswered request may take minutes."""
        return any(pending.may_park for pending in self.unanswered())

    def only_abandonable(self) -> bool:
        """Return whether the work on all unanswered requests ends with their client."""
        return all(pending.may_park or pending.abandon is not None for pending in self.unanswered())

    def can_be_lost(self) -> bool:
        """Return whether the work on the request in service ends with its client."""
        return bool(self.order) and self.order[0].abandon is not None

    def unanswered(self) -> list[Pending]:
        return [pending for pending in self.order if pending.parts is None]

    def check_invariants(self) -> None:
        """Assert that the counts are those of the order, and that no request overlaps with a control request."""
        if self.closed:
            assert not self.order
            return
        kinds = [pending.kind for pending in self.order]
        assert self.requests == sum(pending.count for pending in self.order)
        assert self._bytes == sum(pending.size for pending in self.order)
        assert READ not in kinds[1:]
        assert self._control == (CONTROL in kinds)
        assert not self._control or len(kinds) == 1
        assert not self._is_blocked or kinds, "nothing would unblock it"

    def close(self) -> None:
        """Abandon unanswered requests and drop answers that were not sent: the client is gone."""
        self.closed = True
        while self.order:
            pending = self.order.popleft()
            if pending.parts is not None:
                release(pending.parts)
            else:
                pending.lose()


def release(parts: Iterable[Part]) -> None:
    """Release the files and lanes of an answer that is not sent."""
    for part in parts:
        if isinstance(part, (FileRange, LaneRange)):
            part.release()
