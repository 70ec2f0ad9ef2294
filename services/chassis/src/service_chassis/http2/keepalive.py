"""PING frames for a silent peer: one that has vanished is noticed within PING_AFTER_S + PING_PATIENCE_S.

A peer that has not sent its SETTINGS after PING_AFTER_S is dropped, however many bytes it has sent.
A peer that has a file to read before it could answer is left to TCP, which gives up a machine that has vanished after
some minutes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from service_chassis.http2.frames import PING, frame

if TYPE_CHECKING:
    from service_chassis.http2.connection import Connection

PING_AFTER_S: Final = 20.0
PING_PATIENCE_S: Final = 5.0


class Keepalive:
    """The timer of one connection. Any byte of the peer shows that it lives."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: Set by the connection when bytes have come.
        self.has_received = True
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._connection.loop.call_later(PING_AFTER_S, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        if not self._connection.settled.done():
            self._connection.abort("no SETTINGS in time")  # mutant: silent-newcomer-dropped
        elif self.has_received or self._connection.is_unread():  # mutant: slow-reader-of-a-file-kept
            self.has_received = False
            self.start()
        else:
            self._ask()

    def _ask(self) -> None:
        loop = self._connection.loop
        self._connection.write(frame(PING, 0, 0, b"millrace"))
        self._timer = loop.call_later(PING_PATIENCE_S, self._give_up, loop.time() + 2 * PING_PATIENCE_S)

    def _give_up(self, late_at: float) -> None:
        if self.has_received:
            self._check()
        elif self._connection.loop.time() >= late_at:  # mutant: own-standstill-forgiven
            self._ask()  # this process stood still: the answer may wait in its socket
        else:
            self._connection.abort("the peer does not answer")  # mutant: silent-peer-dropped
