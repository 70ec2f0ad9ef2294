"""Whether one connection's socket is read: if and only if no reason to pause holds.

    pause(ORDER)   {ORDER}           the transport pauses
    pause(MEMORY)  {ORDER, MEMORY}
    resume(ORDER)  {MEMORY}          still paused
    resume(MEMORY) {}                the transport reads

The end of one reason never ends another's pause. Only this module calls the transport's `pause_reading` and
`resume_reading`.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Pause(Enum):
    """A reason not to read a connection, and the event that ends it."""

    #: A request waits for those before it: until their answers have left.
    ORDER = "order"
    #: A request waits because the client does not read its answers: until all of them were written.
    ANSWERS = "answers"
    #: An append waits for others on their way to storage: until the append window has room.
    WINDOW = "window"
    #: The memory for requests is spent: until some of it is free again.
    MEMORY = "memory"
    #: A long request waits for the steps of others: until its turn.
    LONG = "long"
    #: The client is throttled: until its throttle time is over.
    QUOTA = "quota"
    #: One read has filled the buffer: until other connections had their turn.
    TURN = "turn"
    #: The gateway stops: for good.
    FINISHING = "finishing"


class Transport(Protocol):
    """The part of `asyncio.Transport` that is used here."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ReadControl:
    """The set of reasons of one connection, which owns it. A transport reads from the start."""

    __slots__ = ("_transport", "closed", "reasons")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: The reasons not to read; changed here only.
        self.reasons: set[Pause] = set()
        #: Whether the connection has been closed; its transport is not called any more.
        self.closed = False

    def pause(self, reason: Pause) -> None:
        """Add a reason; no effect if it holds already."""
        if not self.reasons and not self.closed:
            self._transport.pause_reading()
        self.reasons.add(reason)

    def resume(self, reason: Pause) -> None:
        """Remove a reason; no effect if it does not hold."""
        if reason in self.reasons:
            self.reasons.remove(reason)
            if not self.reasons and not self.closed:  # mutant: all-reasons-to-pause
                self._transport.resume_reading()

    def close(self) -> None:
        """Call the transport no more: it is being closed."""
        self.closed = True
