"""A file that keeps a little space for the moment when the disk is full.

Nothing frees a full disk but deletions, and a deletion has to be written down first: in the catalog, in a checkpoint.
Those writes use the space of this file then. The file comes back once the disk has space again.
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

_log = logs.get(__name__)


class SpaceReserve:
    """The reserve of one data folder, owned by its CheckpointStore. Any thread may call it."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def keep(self) -> None:
        """Make the file if there is none and the disk has plenty of space."""
        try:
            if self._files.exists(self._path):
                return
            if self._files.free_bytes(self._path.rpartition("/")[0]) >= _PLENTY * RESERVE_BYTES:
                # Random bytes: some file systems store zeros without using space.
                self._files.write_file(self._path, secrets.token_bytes(RESERVE_BYTES))
        except StorageFailure as error:
            _log.warning("no space kept in reserve", path=self._path, reason=str(error))
            self.give_up()

    def give_up(self) -> bool:
        """Free the space of the file; return whether there was one."""
        try:
            if not self._files.exists(self._path):
                return False
            self._files.unlink(self._path)  # mutant: space-given-back
        except StorageFailure as error:
            _log.warning("reserve of space not freed", path=self._path, reason=str(error))
            return False
        _log.warning("disk full: the reserve of space is used", path=self._path)
        return True
