"""PING frames for a silent peer: one that has vanished is noticed within 25 s.

The timer looks every CHECK_S. A peer that has sent nothing for SILENT_CHECKS looks is asked, and dropped at the next
one. So is one that has not sent its SETTINGS by then, however many bytes it has sent.
A peer that has a file to read before it could answer is left to TCP. That gives up a machine that has vanished after
some minutes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from service_chassis.http2.frames import PING, frame

if TYPE_CHECKING:
    from service_chassis.http2.connection import Connection

CHECK_S: Final = 4.0
SILENT_CHECKS: Final = 4


class Keepalive:
    """The timer of one connection. Any byte of the peer shows that it lives."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: Set by the connection when bytes have come.
        self.has_received = True
        #: Looks since the last bytes, and since the start while the peer has not greeted.
        self._silent = self._strange = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = self._connection.loop
        self._due = loop.time() + CHECK_S
        self._timer = loop.call_at(self._due, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        connection = self._connection
        self._strange += not connection.settled.done()
        if self.has_received or connection.is_unread():
            self.has_received = False
            self._silent = 0
        elif connection.loop.time() < self._due + CHECK_S:  # mutant: own-standstill-forgiven
            self._silent += 1  # else this process stood still: bytes may wait in its socket
        if self._strange > SILENT_CHECKS:
            connection.abort("no SETTINGS in time")  # mutant: silent-newcomer-dropped
        elif self._silent > SILENT_CHECKS:
            connection.abort("the peer does not answer")  # mutant: silent-peer-dropped
        else:
            self.start()
            if self._silent == SILENT_CHECKS:
                connection.write(frame(PING, 0, 0, b"millrace"))
