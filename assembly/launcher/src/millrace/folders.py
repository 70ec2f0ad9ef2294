"""Temporary folders of the launcher: the Unix sockets, and the data of a broker without a data folder.

A folder's lock is held by the process that made it and by the services to which it passes the descriptor. When all of
them are gone without removing the folder (kill -9), the next start on the machine removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

#: The socket's name inside its folder.
STORAGE_SOCKET = "storage.sock"
#: The name of a temporary data folder inside its folder.
DATA_DIR = "data"
_PREFIX = "millrace-"
_LOCK = "lock"
#: Seconds after which an empty folder without a lock is no longer being made.
_BIRTH_S = 60.0
#: Longest path of a Unix socket (sockaddr_un: 108 bytes with the final zero), less the socket's own name.
_SOCKET_DIR_LENGTH_MAX = 107 - len("/" + STORAGE_SOCKET)


@contextlib.contextmanager
def private_folder() -> Iterator[tuple[Path, int]]:
    """Create a temporary folder that no other user can enter, and remove it at the end.

    Yield the folder and the descriptor of its lock. The path is short enough for a Unix socket. Only the process that
    made the folder removes it, not a fork that ends first.
    """
    remove_abandoned()
    owner_pid = os.getpid()
    folder, lock = _created()
    try:
        yield folder, lock
    finally:
        if os.getpid() == owner_pid:
            rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)  # a fork that goes on has the descriptor too
        os.close(lock)


def remove_abandoned() -> None:
    """Remove folders that launchers of this user left when they were killed."""
    for parent in _parents():
        with contextlib.suppress(OSError):
            for entry in os.scandir(parent):
                if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                    _remove_if_abandoned(Path(entry.path))


def _parents() -> set[str]:
    return {tempfile.gettempdir(), "/tmp"}


def _created() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        if len(os.fsencode(folder)) > _SOCKET_DIR_LENGTH_MAX:
            folder.rmdir()
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(folder / _LOCK)
        except OSError:  # a launcher that started at the same moment found the lock free
            os.close(lock)
            continue
        return folder, lock


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder whose lock nobody holds. One without a lock is being made, was never finished, or is not ours."""
    try:
        status = folder.lstat()
    except OSError:  # its launcher has just removed it
        return
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
        return
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        if time.time() - status.st_mtime > _BIRTH_S:  # wall clock: the age of a folder, which outlives the process
            with contextlib.suppress(OSError):  # not empty: not ours
                folder.rmdir()
        return
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # mutant: running-launcher-folder
        rmtree(folder, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(lock)
