"""The deletion of files and folders that were renamed, at a time when nobody can be reading them any more.

A thread deletes them when their delay is over. The next start finds by their names those that a stop left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from service_chassis import logs

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure

_log = logs.get(__name__)


class LaterDeletion:
    """The pending deletions, owned by their DataFolder. Nothing is deleted before `start`."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.TimerHandle] = set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to delete, from the event loop's timers."""
        self._loop = loop

    def stop(self) -> None:
        """Cancel the deletions that are not due yet."""
        self._loop = None
        for timer in self._waiting:
            timer.cancel()
        self._waiting.clear()

    def unlink(self, paths: list[str], delay_ms: int) -> None:
        """Delete files when the delay is over."""
        self._later(delay_ms, partial(self._unlink, paths))

    def remove_folder(self, path: str, delay_ms: int) -> None:
        """Remove a folder and everything in it when the delay is over."""
        self._later(delay_ms, partial(self._remove_folder, path))

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        if self._loop is None:
            return
        loop = self._loop

        def due() -> None:
            self._waiting.discard(timer)
            loop.run_in_executor(None, action)

        timer = loop.call_later(delay_ms / 1000, due)
        self._waiting.add(timer)

    def _unlink(self, paths: list[str]) -> None:
        for path in paths:
            try:
                self._files.unlink(path)
            except StorageFailure as error:
                _log.warning("file not deleted", path=path, reason=str(error))

    def _remove_folder(self, path: str) -> None:
        try:
            self._files.remove_tree(path)
        except StorageFailure as error:
            _log.warning("folder not deleted", path=path, reason=str(error))
