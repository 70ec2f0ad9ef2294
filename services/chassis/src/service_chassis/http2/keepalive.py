"""PING frames for a silent peer: one that has vanished is noticed within PING_AFTER_S + PING_PATIENCE_S."""

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
        if self.has_received:
            self.has_received = False
            self.start()
        else:
            self._connection.write(frame(PING, 0, 0, b"millrace"))
            self._timer = self._connection.loop.call_later(PING_PATIENCE_S, self._give_up)

    def _give_up(self) -> None:
        if self.has_received:
            self._check()
        else:
            self._connection.abort("the peer does not answer")  # mutant: silent-peer-dropped
