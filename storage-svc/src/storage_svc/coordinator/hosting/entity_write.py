"""One batch of an entity's records on its way to the log."""

from __future__ import annotations

from collections.abc import Callable

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

log = service_logs.get(__name__)


class EntityWrite:
    """One write of a group, or of a transactional id. Owned by the performer of its outcomes."""

    __slots__ = ("_waiting", "error")

    def __init__(self) -> None:
        #: The error for members; NONE once the records are durable, None before the write has ended.
        self.error: ErrorCode | None = None
        self._waiting: list[Callable[[ErrorCode], None]] = []

    def when_ended(self, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` with the error once the write has ended; at once if it has."""
        if self.error is None:
            self._waiting.append(done)
        else:
            done(self.error)

    def end(self, error: ErrorCode) -> None:
        self.error = error
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            try:
                done(error)
            except Exception:  # of one caller; the others wait for theirs
                log.exception("after a write")
