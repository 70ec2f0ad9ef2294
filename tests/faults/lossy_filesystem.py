"""A file system (FUSE) that keeps unsynced changes in memory only, and loses them when its power is cut.

    python lossy_filesystem.py FOLDER      mounts on FOLDER, until it is killed

It puts the model of the simulated disk under real system calls, so that SQLite and memory maps use it as well.
Making the folder `.power-cut` cuts the power: every later change fails with EIO. Once the file system is unmounted,
everything that was not synced is dropped, and it is mounted again.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

import mfusepy
from faults.disk_model import Disk, File, Folder, Nothing

CUT = "/.power-cut"


class LossyFileSystem(mfusepy.Operations):  # type: ignore[misc]
    """The file system. Methods are the system calls; `descriptor` or `fh` stands for an open file."""

    use_ns = True

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._off = False
        self._open: dict[int, File] = {}
        self._numbers = itertools.count(1)

    def _powered(self) -> None:
        if self._off:
            raise mfusepy.FuseOSError(errno.EIO)

    def _find(self, path: str) -> File | Folder:
        try:
            return self._disk.find(path)
        except OSError as error:
            raise mfusepy.FuseOSError(error.errno) from error

    def _file(self, path: str, descriptor: int | None) -> File:
        file = self._open[descriptor] if descriptor in self._open else self._find(path)
        assert isinstance(file, File)
        return file

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._open[fh] if fh in self._open else self._find(path)
        is_folder = isinstance(node, Folder)
        now = time.time_ns()  # wall clock: times of files
        return {
            "st_mode": stat.S_IFDIR | 0o755 if is_folder else stat.S_IFREG | 0o644,
            "st_nlink": 2 if is_folder else 1,
            "st_ino": node.inode,
            "st_size": 0 if isinstance(node, Folder) else len(node.content),
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
            **dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), now),
        }

    def readdir(self, path: str, fh: int) -> Iterator[str]:
        folder = self._find(path)
        assert isinstance(folder, Folder)
        return iter([".", "..", *folder.entries])

    def mkdir(self, path: str, mode: int) -> None:
        if path == CUT:
            self._off = True
            return
        self._powered()
        self._disk.add(path, Folder())

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        self._powered()
        self._disk.add(path, File())
        return self.open(path, 0)

    def open(self, path: str, flags: int) -> int:
        number = next(self._numbers)
        self._open[number] = self._file(path, None)
        return number

    def release(self, path: str, fh: int) -> None:
        self._open.pop(fh, None)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._file(path, fh).content[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._powered()
        self._file(path, fh).write(offset, bytes(data))
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        self._powered()
        self._file(path, fh).truncate(length)

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        self._powered()
        self._file(path, fh).sync()

    def fsyncdir(self, path: str, datasync: int, fh: int) -> None:
        self._powered()
        self._find(path).sync()

    def unlink(self, path: str) -> None:
        self._powered()
        self._disk.remove(path)

    rmdir = unlink

    def rename(self, old: str, new: str) -> None:
        self._powered()
        self._disk.rename(old, new)

    def chmod(self, path: str, mode: int) -> None:
        """Ignore permissions."""

    def chown(self, path: str, uid: int, gid: int) -> None:
        """Ignore owners."""

    def utimens(self, path: str, times: object = None) -> None:
        """Ignore times."""

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 20, "f_bfree": 1 << 19, "f_bavail": 1 << 19}


def main(folder: str) -> None:
    disk = Disk()
    while True:
        mfusepy.FUSE(LossyFileSystem(disk), folder, foreground=True, nothreads=True, big_writes=True, fsname="lossy")
        disk.root.cut(Nothing())
        print("cut", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
