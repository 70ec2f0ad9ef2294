"""The file layer of the log package on a disk in memory (disk_model.py): its power can be cut at any call.

    disk = SimulatedDisk()
    disk.cut_at = disk.changes + 7        # the seventh change from here is not carried out any more: PowerCut
    …
    disk.restart(Nothing())               # unsynced changes are lost

After the cut every call fails, as for a process that is gone. `fault` is asked before every call that reaches the disk:
it may raise an OSError (EIO, ENOSPC), or take its time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from faults.disk_model import Disk, File, Folder, Leaves
from storage_svc.log.disk.files import Buffer, Files, _border
from storage_svc.log.disk.sync_queue import SyncQueue
from storage_svc.log.errors import DataFolderInUse, StorageFailure


class PowerCut(BaseException):
    """Nothing that runs sees this machine again. No handler of errors may take it for one of them."""


class SimulatedQueue(SyncQueue):
    """None of the kernel's: the disk does the work."""

    def __init__(self) -> None:
        pass

    def close(self) -> None:
        pass


class SimulatedDisk(Files):
    def __init__(self) -> None:
        self.disk = Disk()
        #: The number of writes, cuts, syncs, renames, creations and deletions so far.
        self.changes = 0
        self.cut_at: int | None = None
        self.fault: Callable[[str, str], None] = lambda call, path: None
        #: Each change as (call, path); filled when it is a list.
        self.journal: list[tuple[str, str]] | None = None
        self.bytes_max: int | None = None
        self._off = False
        self._open: dict[int, tuple[File, str]] = {}
        self._locked: dict[int, File] = {}
        self._next = 3
        self._now_ms = 1_700_000_000_000
        self._runs = 1

    # -- power --------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        self._off = True

    def restart(self, leaves: Leaves | None) -> None:
        """Turn the power on after a cut. None: only the process died, and the disk has everything."""
        if leaves is not None:
            self.disk.root.cut(leaves)
            self._runs += 1
        self._off = False
        self.cut_at = None
        self._open.clear()
        self._locked.clear()

    @property
    def powered(self) -> bool:
        return not self._off

    def _powered(self) -> None:
        if self._off:
            raise PowerCut

    def _change(self, call: str, path: str) -> None:
        self._powered()
        if self.cut_at is not None and self.changes >= self.cut_at:
            self._off = True
            raise PowerCut
        self.changes += 1
        if self.journal is not None:
            self.journal.append((call, path))
        self.fault(call, path)

    # -- Files --------------------------------------------------------------------------------------------------------

    def _file(self, path: str) -> File:
        node = self.disk.find(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(21, "Is a directory", path)
        return node

    def open(self, path: str, *, create: bool) -> int:
        self._powered()
        with _border(f"open {path}"):
            try:
                file = self._file(path)
            except FileNotFoundError:
                if not create:
                    raise
                self._change("create", path)
                file = File()
                self.disk.add(path, file)
        self._next += 1
        self._open[self._next] = file, path
        return self._next

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        self._locked.pop(descriptor, None)

    def append(self, descriptor: int, parts: list[Buffer], position: int, size: int) -> None:
        file, path = self._open[descriptor]
        data = b"".join(parts)
        assert len(data) == size, "the size announced is not the size written"
        with _border(f"write {path}"):
            self._change("write", path)
            if self.bytes_max is not None and (room := self.bytes_max - self.used_bytes()) < size:
                if room > 0:
                    file.write(position, data[:room])
                raise OSError(28, "No space left on device")
            file.write(position, data)

    def used_bytes(self) -> int:
        def used(node: File | Folder) -> int:
            return sum(map(used, node.entries.values())) if isinstance(node, Folder) else len(node.content)

        return used(self.disk.root)

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        self._powered()
        file, path = self._open[descriptor]
        with _border(f"read {path}"):
            self.fault("read", path)
        return bytes(file.content[position : position + length])

    def warm(self, descriptor: int, length: int, position: int) -> None:
        self.read(descriptor, length, position)

    def is_resident(self, descriptor: int, length: int, position: int) -> bool:
        self._powered()
        return True

    def truncate(self, descriptor: int, size: int) -> None:
        file, path = self._open[descriptor]
        with _border(f"truncate {path}"):
            self._change("truncate", path)
            file.truncate(size)

    def sync(self, descriptor: int) -> None:
        file, path = self._open[descriptor]
        with _border(f"sync {path}"):
            self._change("sync", path)
            file.sync()

    def sync_queue(self) -> SyncQueue:
        return SimulatedQueue()

    def sync_queued(self, queue: SyncQueue, descriptors: Sequence[int]) -> list[StorageFailure | None]:
        def outcome(descriptor: int) -> StorageFailure | None:
            try:
                self.sync(descriptor)
            except StorageFailure as error:
                return error
            return None

        return [outcome(descriptor) for descriptor in descriptors]

    def sync_path(self, path: str) -> None:
        with _border(f"sync {path}"):
            self._change("sync", path)
            self.disk.find(path).sync()

    def status(self, descriptor: int) -> os.stat_result:
        self._powered()
        file, _ = self._open[descriptor]
        return os.stat_result((0o100644, file.inode, 1, 1, 0, 0, len(file.content), 0, 0, 0))

    def size(self, path: str) -> int:
        self._powered()
        with _border(f"inspect {path}"):
            return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        self._powered()
        with _border(f"inspect {path}"):
            self.disk.find(path)
        return self._now_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._powered()

    def free_bytes(self, path: str) -> int:
        return 1 << 40 if self.bytes_max is None else self.bytes_max - self.used_bytes()

    def reserve(self) -> None:
        """Reserve nothing: simulated files have no limit."""

    def give_back_reserve(self) -> None:
        """Give back nothing."""

    def exists(self, path: str) -> bool:
        self._powered()
        try:
            self.disk.find(path)
        except OSError:
            return False
        return True

    def entries(self, path: str) -> list[tuple[str, bool, int]]:
        self._powered()
        with _border(f"list {path}"):
            folder = self.disk.find(path)
            assert isinstance(folder, Folder)
            return sorted(
                (name, isinstance(node, Folder), 0 if isinstance(node, Folder) else len(node.content))
                for name, node in folder.entries.items()
            )

    def make_folder(self, path: str) -> None:
        with _border(f"create {path}"):
            parts = path.strip("/").split("/")
            for count in range(1, len(parts) + 1):
                above = "/" + "/".join(parts[:count])
                if not self.exists(above):
                    self._change("create", above)
                    self.disk.add(above, Folder())

    def rename(self, old: str, new: str) -> None:
        with _border(f"rename {old}"):
            self._change("rename", old)
            self.disk.rename(old, new)

    def unlink(self, path: str) -> None:
        self._powered()
        if self.exists(path):
            with _border(f"delete {path}"):
                self._file(path)
                self._change("unlink", path)
                self.disk.remove(path)

    def remove_tree(self, path: str) -> None:
        for name, is_folder, _ in self.entries(path):
            if is_folder:
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        with _border(f"delete {path}"):
            self._change("unlink", path)
            self.disk.remove(path)

    def read_file(self, path: str) -> bytes | None:
        self._powered()
        with _border(f"read {path}"):
            self.fault("read", path)
            try:
                return bytes(self._file(path).content)
            except FileNotFoundError:
                return None

    def system_run(self) -> str:
        return f"run {self._runs}"

    def map_opened(self, descriptor: int, size: int) -> bytes:
        return self.read(descriptor, size, 0)

    def map_file(self, path: str) -> bytes | None:
        return self.read_file(path)

    def write_file(self, path: str, data: bytes, *, sync: bool = False) -> None:
        descriptor = self.open(path, create=True)
        self.truncate(descriptor, 0)
        self.append(descriptor, [data], 0, len(data))
        if sync:
            self.sync(descriptor)
        self.close(descriptor)

    def lock(self, path: str) -> int:
        descriptor = self.open(path, create=True)
        file, _ = self._open[descriptor]
        if file in self._locked.values():
            raise DataFolderInUse(f"{path} is locked")
        self._locked[descriptor] = file
        return descriptor

    def unlock(self, descriptor: int) -> None:
        self.close(descriptor)
