"""Forks of a program that runs a broker: the child keeps nothing of the broker open.

A lock of flock and a listening port belong to the open file, which a fork shares. A child that lives longer than the
broker would keep the data folder locked and the port listening. The child therefore replaces its copies by /dev/null.
The numbers stay in use, because the copied objects still believe that they are theirs.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection

__all__ = ["disown"]

_DESCRIPTORS = "/proc/self/fd"


def disown(folders: Collection[str], ports: Collection[int], descriptors: Collection[int]) -> None:
    """Replace by /dev/null: files and Unix sockets in `folders`, sockets of a local TCP port, and `descriptors`.

    Linux lists a process's descriptors. Other systems replace only those in `descriptors`.
    """
    prefixes = tuple(os.path.realpath(folder) + "/" for folder in folders)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in (*descriptors, *_found(prefixes, ports)):
            os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)


def _found(prefixes: tuple[str, ...], ports: Collection[int]) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(_DESCRIPTORS):
            with contextlib.suppress(OSError):  # that of the listing itself
                target = os.readlink(f"{_DESCRIPTORS}/{name}")
                if target.startswith(prefixes) or (
                    target.startswith("socket:") and _is_ours(int(name), prefixes, ports)
                ):
                    found.append(int(name))
    return found


def _is_ours(descriptor: int, prefixes: tuple[str, ...], ports: Collection[int]) -> bool:
    of_process = socket.socket(fileno=descriptor)
    try:
        name = of_process.getsockname()
        if of_process.family == socket.AF_UNIX:
            return isinstance(name, str) and name.startswith(prefixes)
        is_tcp = of_process.family in (socket.AF_INET, socket.AF_INET6) and of_process.type == socket.SOCK_STREAM
        return is_tcp and name[1] in ports
    finally:
        of_process.detach()
