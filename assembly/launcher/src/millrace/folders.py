"""Temporary folders of the launcher: the default data folder, and the folder of Unix sockets."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

__all__ = ["STORAGE_SOCKET", "private_folder"]

#: The socket's name inside its folder.
STORAGE_SOCKET = "storage.sock"
#: Longest path of a Unix socket (sockaddr_un: 108 bytes with the final zero), less the socket's own name.
_SOCKET_DIR_LENGTH_MAX = 107 - len("/" + STORAGE_SOCKET)


@contextlib.contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """Create a temporary folder that no other user can enter, and remove it at the end.

    Its path is short enough for a Unix socket. Only the process that made it removes it, not a fork that ends first.
    """
    owner_pid = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    if len(os.fsencode(folder)) > _SOCKET_DIR_LENGTH_MAX:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield folder
    finally:
        if os.getpid() == owner_pid:
            rmtree(folder, ignore_errors=True)
