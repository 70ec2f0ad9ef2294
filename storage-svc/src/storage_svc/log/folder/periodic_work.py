"""Work that is repeated at fixed intervals on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from service_chassis import logs

from storage_svc.log.errors import StorageFailure

_log = logs.get(__name__)


class PeriodicWork:
    """Actions with a timer each, owned by the object whose actions they are."""

    def __init__(self) -> None:
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def every(self, loop: asyncio.AbstractEventLoop, name: str, interval_ms: int, action: Callable[[], None]) -> None:
        """Call the action after every interval until `stop`. A StorageFailure of it is logged under this name."""

        def due() -> None:
            try:
                action()
            except StorageFailure as error:
                _log.error("periodic work failed", work=name, reason=str(error))
            self.every(loop, name, interval_ms, action)

        self._timers[name] = loop.call_later(interval_ms / 1000, due)

    def stop(self) -> None:
        """Cancel every timer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
