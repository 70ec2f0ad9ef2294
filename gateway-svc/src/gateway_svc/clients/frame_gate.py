"""Whether the next request of a connection may start, and the reason for which it is held if not.

A complete frame starts when none of these holds it back:

    QUOTA      the client is throttled (`Connection.mute`)
    ANSWERS    the client does not read its answers (`answer_writer`)
    ORDER      requests before it are in service, and it may not overlap with them (`pipeline`)
    WINDOW     too many appends are on their way to storage (`append_window`)
    LONG       it is long, or of a client that has not logged in, and others of its kind have their turn
               (`shared_turns`)

The connection is not read while a frame is held (`read_control`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from service_chassis.shared_turns import SharedTurns, shared_turns, stranger_turns

from gateway_svc.clients.answer_writer import AnswerWriter
from gateway_svc.clients.pipeline import APPEND, Pipeline
from gateway_svc.clients.read_control import Pause, ReadControl
from gateway_svc.clients.resources import Requests
from gateway_svc.storage.append_window import AppendWindow

#: Bytes of a request from which decoding it takes a third of a millisecond or more. Records take no decoding, so
#: appends of any length start at once.
LONG_BYTES: Final = 8 * 1024


class FrameGate:
    """The gate before one connection's requests. The connection owns it."""

    __slots__ = (
        "_long_bytes",
        "_loop",
        "_pipeline",
        "_reading",
        "_start_held",
        "_window",
        "_writer",
        "held_for",
        "held_since",
        "is_muted",
    )

    def __init__(
        self,
        pipeline: Pipeline,
        reading: ReadControl,
        writer: AnswerWriter,
        window: AppendWindow | None,
        loop: asyncio.AbstractEventLoop,
        start_held: Callable[[], None],
    ) -> None:
        """Hold nothing. `start_held` is called when the reason for which a frame is held may have ended."""
        self._pipeline = pipeline
        self._reading = reading
        self._writer = writer
        self._window = window
        self._loop = loop
        self._start_held = start_held
        #: Bytes above which a frame, of an append excepted, waits for its turn.
        self._long_bytes = LONG_BYTES
        #: Whether the client is throttled. Its connection pauses reading, too.
        self.is_muted = False
        #: The reason why the first held frame may not start, for which reading is paused; None without held frames.
        self.held_for: Pause | None = None
        #: The event loop's time at which it began to wait.
        self.held_since = 0.0

    def serve(self, *, is_login: bool) -> None:
        """Hold frames back as those of a client from now on, or of a stranger (`is_login`): each waits for its turn."""
        self._long_bytes = -1 if is_login else LONG_BYTES  # mutant: strangers-wait

    def _turns(self) -> SharedTurns:
        return stranger_turns(self._loop) if self._long_bytes < 0 else shared_turns(self._loop)

    @property
    def bytes_in_service(self) -> int:
        """Bytes of the requests that have started and are not answered."""
        return self._pipeline.size

    def may_start(self, requests: Requests, store: bytes | bytearray, begin: int, size: int) -> bool:
        """Return whether the frame of `size` bytes at `begin` may start; if not, pause the reading until it may."""
        if size <= self._long_bytes and not self._pipeline.order and not (self.is_muted or self._writer.busy):
            window = self._window  # most requests need no more
            if window is None or not window.full:
                return True
        reason = self._reason_to_hold(requests, store, begin, size)
        if reason is None:
            return True
        if reason is not self.held_for:
            if reason is not Pause.QUOTA:  # whose pause is that of `Throttle`
                self._reading.pause(reason)
            self.end_hold()
            self.held_for = reason
            self.held_since = self._loop.time()
            if reason is Pause.LONG:
                self._turns().start_soon(self._start_held)
        return False

    def _reason_to_hold(self, requests: Requests, store: bytes | bytearray, begin: int, size: int) -> Pause | None:
        """Return why a frame may not start, or None if it may."""
        if self.is_muted:
            return Pause.QUOTA  # mutant: muted-frames-held
        if self._writer.busy:
            return Pause.ANSWERS
        pipeline, window = self._pipeline, self._window
        is_window_full = window is not None and window.full
        kind = requests.kind(store, begin)
        if not pipeline.admits(kind):
            return Pause.ORDER
        if kind is not APPEND:
            # mutant: long-requests-wait
            return None if size <= self._long_bytes or self._turns().admits() else Pause.LONG
        if window is None or not is_window_full or window.admits(size):
            return None
        window.wait(self, self._start_held)
        return Pause.WINDOW

    def end_hold(self) -> None:
        """Read again, as far as the reason for which a frame was held is concerned: none is held any more."""
        if self.held_for is not None:
            reason, self.held_for = self.held_for, None
            if reason is not Pause.QUOTA:
                self._reading.resume(reason)

    def close(self) -> None:
        """Wait for nothing any more: the connection is closed."""
        if self._window is not None:
            self._window.forget(self)
        del self._start_held, self._writer  # both refer to the connection
