"""A model of a disk and of power cuts: files and folders that know which of their changes were synced.

Syncing a file makes its bytes and its size durable, syncing a folder its entries. A new file in a folder that was never
synced is gone after the cut, even if the file itself was synced. POSIX promises no more, so the model does not either.
A `Leaves` decides which unsynced changes survive a cut.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Final, Protocol

SECTOR: Final = 512
_numbers = itertools.count(1)

Names = dict[str, "File | Folder | None"]


class Leaves(Protocol):
    """The unsynced changes that survive a cut, because they reached the disk by themselves."""

    def of_writes(self, changes: list[tuple[int, int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
        """Yield the surviving changes of a file as (position, bytes); None instead of bytes cuts the file there."""

    def of_entries(self, changes: list[tuple[int, Names]]) -> Iterator[Names]:
        """Yield the changes of a folder's entries that survive."""


class Nothing:
    """Everything that was not synced is gone."""

    def of_writes(self, changes: list[tuple[int, int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
        return iter(())

    def of_entries(self, changes: list[tuple[int, Names]]) -> Iterator[Names]:
        return iter(())


class Earliest:
    """Changes reach the disk in the order in which they were made: all before one, and sectors of that one."""

    def __init__(self, disk: Disk, chance: random.Random) -> None:
        numbers = sorted(disk.unsynced())
        self._end = chance.choice(numbers) if numbers else 0
        self._chance = chance

    def of_writes(self, changes: list[tuple[int, int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
        for number, position, data in changes:
            if number < self._end:
                yield position, data
            elif number == self._end and data is not None:
                yield from (part for part in _sectors(position, data) if self._chance.random() < 0.5)

    def of_entries(self, changes: list[tuple[int, Names]]) -> Iterator[Names]:
        return (names for number, names in changes if number < self._end)


class Any:
    """Any of the writes, in parts of a sector, in any order; of a folder's changes the first few, as journals do.

    A sector reaches the disk as the page cache has it: a later write to it does not get there without the earlier ones.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def of_writes(self, changes: list[tuple[int, int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
        lost: set[int] = set()
        for _, position, data in changes:
            kept = self._chance.randrange(4)
            if data is None:
                if kept > 1:
                    yield position, None
                continue
            for at, part in _sectors(position, data):
                if kept == 0 or (kept == 1 and self._chance.random() < 0.5):
                    lost.add(at // SECTOR)
                if at // SECTOR not in lost:
                    yield at, part

    def of_entries(self, changes: list[tuple[int, Names]]) -> Iterator[Names]:
        return (names for _, names in changes[: self._chance.randint(0, len(changes))])


def _sectors(position: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split one write into parts that lie in one sector each."""
    at = 0
    while at < len(data):
        length = min(len(data) - at, SECTOR - (position + at) % SECTOR)
        yield position + at, data[at : at + length]
        at += length


class File:
    """Bytes as the running system sees them, and the changes that are not on the disk yet."""

    def __init__(self) -> None:
        self.inode = next(_numbers)
        self.content = bytearray()
        self._durable = bytearray()
        self.unsynced: list[tuple[int, int, bytes | None]] = []

    def write(self, position: int, data: bytes) -> None:
        _apply(self.content, position, data)
        self.unsynced.append((next(_numbers), position, data))

    def truncate(self, size: int) -> None:
        _apply(self.content, size, None)
        self.unsynced.append((next(_numbers), size, None))

    def sync(self) -> None:
        for _, position, data in self.unsynced:
            _apply(self._durable, position, data)
        self.unsynced.clear()

    def cut(self, leaves: Leaves) -> None:
        for position, data in leaves.of_writes(self.unsynced):
            _apply(self._durable, position, data)
        self.unsynced.clear()
        self.content = bytearray(self._durable)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    """Write to `content`, after a hole of zeros if need be, or cut it where there are no bytes."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


class Folder:
    def __init__(self) -> None:
        self.inode = next(_numbers)
        self.entries: dict[str, File | Folder] = {}
        self._durable: dict[str, File | Folder] = {}
        #: Changes that happen as a whole: names, each with its new file or folder (None: removed).
        self.unsynced: list[tuple[int, Names]] = []

    def change(self, names: Names) -> None:
        _rename(self.entries, names)
        self.unsynced.append((next(_numbers), names))

    def sync(self) -> None:
        for _, names in self.unsynced:
            _rename(self._durable, names)
        self.unsynced.clear()

    def cut(self, leaves: Leaves) -> None:
        """Cut the power of this folder and of everything that is left in it."""
        for names in leaves.of_entries(self.unsynced):
            _rename(self._durable, names)
        self.unsynced.clear()
        self.entries = dict(self._durable)
        for node in self.entries.values():
            node.cut(leaves)


def _rename(entries: dict[str, File | Folder], names: Names) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """A tree of folders and files. Paths are absolute; a missing one is a FileNotFoundError."""

    def __init__(self) -> None:
        self.root = Folder()

    def unsynced(self) -> list[int]:
        """Return the numbers of all changes that a cut may undo."""

        def numbers(node: File | Folder) -> Iterator[int]:
            yield from (change[0] for change in node.unsynced)
            if isinstance(node, Folder):
                for each in node.entries.values():
                    yield from numbers(each)

        return list(numbers(self.root))

    def find(self, path: str) -> File | Folder:
        node: File | Folder = self.root
        for name in _names(path):
            if not isinstance(node, Folder):
                raise NotADirectoryError(20, "Not a directory", path)
            if name not in node.entries:
                raise FileNotFoundError(2, "No such file or directory", path)
            node = node.entries[name]
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        """Return the folder that holds a path's last name, and that name."""
        *above, name = _names(path)
        folder = self.find("/".join(above))
        if not isinstance(folder, Folder):
            raise NotADirectoryError(20, "Not a directory", path)
        return folder, name

    def add(self, path: str, node: File | Folder) -> None:
        folder, name = self._parent(path)
        folder.change({name: node})

    def remove(self, path: str) -> None:
        self.find(path)
        folder, name = self._parent(path)
        folder.change({name: None})

    def rename(self, old: str, new: str) -> None:
        node = self.find(old)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if source is target:
            source.change({old_name: None, new_name: node})
        else:
            target.change({new_name: node})
            source.change({old_name: None})


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
