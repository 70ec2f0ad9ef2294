"""The deletion of files and folders that were renamed, once no reader can have them open.

A thread deletes them when their delay is over. The next start finds by their names those that a stop left.
"""

from __future__ import annotations

import asyncio
import os.path
from dataclasses import dataclass, field

from service_chassis import logs

from storage_svc.log.disk.files import Files
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import StorageFailure

_log = logs.get(__name__)


@dataclass(slots=True, eq=False)
class _Pending:
    """Files or a folder to be deleted."""

    paths: list[str]
    #: The folders of the files; None where the path itself is a folder.
    folders: frozenset[str] | None
    #: Those of the folders that got other names.
    renamed: set[str] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None


class LaterDeletion:
    """The pending deletions, owned by their DataFolder. Nothing is deleted before `start`."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting_files: set[_Pending] = set()
        self._waiting_folders: set[_Pending] = set()
        self._threads = Threads("deletion", 1)
        self._deleting: set[asyncio.Future[None]] = set()
        self._stopping = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to delete, from the event loop's timers."""
        self._loop = loop

    async def stop(self) -> None:
        """Cancel the deletions that are not due yet, and wait for the one that is under way."""
        self._loop = None
        for waiting in (self._waiting_files, self._waiting_folders):
            for pending in waiting:
                if pending.timer is not None:
                    pending.timer.cancel()
            waiting.clear()
        self._stopping = True
        await asyncio.gather(*self._deleting)

    def unlink(self, paths: list[str], delay_ms: int) -> None:
        """Delete files when the delay is over."""
        self._later(delay_ms, _Pending(paths, frozenset(map(os.path.dirname, paths))))

    def remove_folder(self, path: str, delay_ms: int) -> None:
        """Remove a folder and everything in it when the delay is over."""
        self._later(delay_ms, _Pending([path], None))

    def forget_files(self, folder: str) -> None:
        """Do not unlink files in this folder: it has another name now, and the old one may be another topic's soon."""
        for pending in self._waiting_files:
            if folder in (pending.folders or ()):
                pending.renamed.add(folder)

    def _later(self, delay_ms: int, pending: _Pending) -> None:
        if self._loop is None:
            return
        loop = self._loop
        waiting = self._waiting_folders if pending.folders is None else self._waiting_files

        def due() -> None:
            deleted = self._threads.run(self._delete, pending)
            self._deleting.add(deleted)
            deleted.add_done_callback(lambda _: waiting.discard(pending))
            deleted.add_done_callback(self._deleting.discard)

        waiting.add(pending)
        pending.timer = loop.call_later(delay_ms / 1000, due)

    def _delete(self, pending: _Pending) -> None:
        while pending.paths and not self._stopping:
            path = pending.paths.pop(0)
            try:
                if pending.folders is None:
                    self._files.remove_tree(path)
                elif os.path.dirname(path) not in pending.renamed:
                    self._files.unlink(path)
            except StorageFailure as error:
                _log.warning("deleted files are still there", path=path, reason=str(error))
