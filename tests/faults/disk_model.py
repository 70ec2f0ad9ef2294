"""What a disk holds, and what of it a power cut leaves: files and folders that know which changes were synced.

Syncing a file makes its bytes and its size durable, syncing a folder its entries: a new file in a folder that was never
synced is gone after the cut, whatever was done to the file itself. POSIX promises no more, so nothing here does.

A cut without `chance` drops everything that was not synced. With one, what might have reached the disk by itself may be
there: of a file any of the unsynced writes, in parts of a sector (512 bytes), in any order; of a folder's changes the
first few, since file systems keep the order of those.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

SECTOR: Final = 512
_inodes = itertools.count(1)


class File:
    """Bytes as the running system sees them, and the changes that are not on the disk yet."""

    def __init__(self) -> None:
        self.inode = next(_inodes)
        self.content = bytearray()
        self._durable = bytearray()
        #: (position, bytes) of a write, (size, None) of a cut.
        self._unsynced: list[tuple[int, bytes | None]] = []

    def write(self, position: int, data: bytes) -> None:
        _apply(self.content, position, data)
        self._unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        _apply(self.content, size, None)
        self._unsynced.append((size, None))

    def sync(self) -> None:
        for position, data in self._unsynced:
            _apply(self._durable, position, data)
        self._unsynced.clear()

    def cut(self, chance: random.Random | None) -> None:
        if chance is not None:
            for position, data in self._unsynced:
                if chance.random() < 0.5:
                    continue
                if data is None or chance.random() < 0.5:
                    _apply(self._durable, position, data)
                else:
                    self._tear(position, data, chance)
        self._unsynced.clear()
        self.content = bytearray(self._durable)

    def _tear(self, position: int, data: bytes, chance: random.Random) -> None:
        """Some sectors of one write."""
        at = 0
        while at < len(data):
            length = min(len(data) - at, SECTOR - (position + at) % SECTOR)
            if chance.random() < 0.5:
                _apply(self._durable, position + at, data[at : at + length])
            at += length


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    """A write, which leaves a hole of zeros before it if need be, or a change of size."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


class Folder:
    def __init__(self) -> None:
        self.inode = next(_inodes)
        self.entries: dict[str, File | Folder] = {}
        self._durable: dict[str, File | Folder] = {}
        #: Each of them happens as a whole: names and what they stand for from now on (None: nothing).
        self._unsynced: list[dict[str, File | Folder | None]] = []

    def change(self, names: dict[str, File | Folder | None]) -> None:
        _rename(self.entries, names)
        self._unsynced.append(names)

    def sync(self) -> None:
        for names in self._unsynced:
            _rename(self._durable, names)
        self._unsynced.clear()

    def cut(self, chance: random.Random | None) -> None:
        """Of this folder and of all that is left below it."""
        if chance is not None:
            for names in self._unsynced[: chance.randint(0, len(self._unsynced))]:
                _rename(self._durable, names)
        self._unsynced.clear()
        self.entries = dict(self._durable)
        for node in self.entries.values():
            node.cut(chance)

    def sync_all(self) -> None:
        """This folder and everything below it, as a clean unmount does."""
        self.sync()
        for node in self.entries.values():
            if isinstance(node, Folder):
                node.sync_all()
            else:
                node.sync()


def _rename(entries: dict[str, File | Folder], names: dict[str, File | Folder | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """A tree of them. Paths are absolute; what is missing is a FileNotFoundError."""

    def __init__(self) -> None:
        self.root = Folder()

    def find(self, path: str) -> File | Folder:
        node: File | Folder = self.root
        for name in _names(path):
            if not isinstance(node, Folder):
                raise NotADirectoryError(20, "Not a directory", path)
            if name not in node.entries:
                raise FileNotFoundError(2, "No such file or directory", path)
            node = node.entries[name]
        return node

    def parent(self, path: str) -> tuple[Folder, str]:
        """The folder that holds a path's last name, and that name."""
        *above, name = _names(path)
        folder = self.find("/".join(above))
        if not isinstance(folder, Folder):
            raise NotADirectoryError(20, "Not a directory", path)
        return folder, name

    def add(self, path: str, node: File | Folder) -> None:
        folder, name = self.parent(path)
        folder.change({name: node})

    def remove(self, path: str) -> None:
        self.find(path)
        folder, name = self.parent(path)
        folder.change({name: None})

    def rename(self, old: str, new: str) -> None:
        node = self.find(old)
        source, old_name = self.parent(old)
        target, new_name = self.parent(new)
        if source is target:
            source.change({old_name: None, new_name: node})
        else:
            target.change({new_name: node})
            source.change({old_name: None})


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
