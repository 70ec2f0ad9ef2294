"""A file that keeps a little space for the moment when the disk is full.

Nothing frees a full disk but deletions, and a deletion has to be written down first: in the catalog, in a checkpoint.
Those writes use the space of this file then. Records get none of it (`Files.keeps_space`): producers try again and
again, and would use it up before the next deletion. The file comes back once the disk has space again.

    1 MiB           the reserve
    empty           it is in use, also after a start
    none            the disk never had plenty of space
"""

from __future__ import annotations

import secrets
from typing import Final

from service_chassis import logs

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure

RESERVE_BYTES: Final = 1 << 20
#: The free space, in units of the reserve, below which none is made.
_PLENTY: Final = 8
#: The free space, in units of the reserve, from which on one that was used comes back.
_ENOUGH: Final = 2

_log = logs.get(__name__)


class SpaceReserve:
    """The reserve of one data folder, owned by its CheckpointStore. Any thread may call it."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def begin(self) -> None:
        """Keep records from the last space of the disk if an earlier process has used the reserve."""
        try:
            self._files.keeps_space = self._size() == 0  # mutant: reserve-used-before
        except StorageFailure as error:
            _log.warning("reserve of space unknown", path=self._path, reason=str(error))

    def _size(self) -> int | None:
        return self._files.size(self._path) if self._files.exists(self._path) else None

    def keep(self) -> None:
        """Make the file if there is none, or an empty one, and the disk has space for it."""
        try:
            if self._size():
                return
            least = _ENOUGH if self._files.keeps_space else _PLENTY
            if self._files.free_bytes(self._path.rpartition("/")[0]) < least * RESERVE_BYTES:
                return
        except StorageFailure as error:
            _log.warning("no space kept in reserve", path=self._path, reason=str(error))
            return
        try:
            # Random bytes: some file systems store zeros without using space.
            self._files.write_file(self._path, secrets.token_bytes(RESERVE_BYTES))
            self._files.keeps_space = False
        except StorageFailure as error:
            _log.warning("no space kept in reserve", path=self._path, reason=str(error))
            self._empty()

    def give_up(self) -> bool:
        """Free the space of the file; return whether there was any."""
        try:
            if not self._size():
                return False
        except StorageFailure as error:
            _log.warning("reserve of space unknown", path=self._path, reason=str(error))
            return False
        if not self._empty():
            return False
        self._files.keeps_space = True  # mutant: reserve-for-deletions
        _log.warning("disk full: the reserve of space is used", path=self._path)
        return True

    def _empty(self) -> bool:
        try:
            self._files.write_file(self._path, b"")  # mutant: space-given-back
        except StorageFailure as error:
            _log.warning("reserve of space not freed", path=self._path, reason=str(error))
            return False
        return True
