"""The time for which a throttled client is not served (KIP-219).

The answer tells the client to wait (`Call.throttle`). The connection is not read meanwhile, and requests that have
arrived are held, so a client that does not wait gains nothing. A request that has arrived in part has that much longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway_svc.clients.frame_gate import FrameGate
from gateway_svc.clients.frame_reader import FrameReader
from gateway_svc.clients.read_control import Pause, ReadControl


class Throttle:
    """The throttle of one connection, which owns it, from the first time on that its client is throttled."""

    __slots__ = ("_frames", "_gate", "_loop", "_reading", "_start_held", "_timer", "_until")

    def __init__(
        self,
        gate: FrameGate,
        frames: FrameReader,
        reading: ReadControl,
        loop: asyncio.AbstractEventLoop,
        start_held: Callable[[], None],
    ) -> None:
        """Begin without a throttle. `start_held` starts the held frames that may start."""
        self._gate = gate
        self._frames = frames
        self._reading = reading
        self._loop = loop
        self._start_held = start_held
        #: The event loop's time until which the client is throttled.
        self._until = 0.0
        #: The end of that time; None while the client is not throttled.
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def mute(self, milliseconds: int) -> None:
        """Start no request for so long from now on, and read none."""
        now = self._loop.time()
        until = max(self._until, now + milliseconds / 1000)
        self._frames.extend(until - max(self._until, now))
        self._until = until
        if self._timer is None:
            self._gate.is_muted = True
            self._reading.pause(Pause.QUOTA)
            self._timer = self._loop.call_at(until, self._end)

    def _end(self) -> None:
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._end)
            return
        self._timer = None
        self._gate.is_muted = False
        if self._gate.held_for is Pause.QUOTA:
            self._start_held()
        if self._timer is None:  # else a request that has started was throttled again
            self._reading.resume(Pause.QUOTA)

    def close(self) -> None:
        """Forget the connection: it is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        del self._gate, self._frames, self._start_held
