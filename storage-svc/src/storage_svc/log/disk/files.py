"""The file layer: every system call of the log package, and the border where OSError becomes StorageFailure.

Writes are positioned (`pwritev`): a write that fails half-way leaves nothing once the file is cut back to the position
it started from. Small state files are replaced as a whole: write `<name>.tmp`, sync it, rename it over the old one,
sync the folder. Tests pass a subclass that counts calls or makes them fail, or a disk that exists in memory only and
forgets unsynced bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl  # past the file layer: it is the file layer
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from storage_svc.log.disk.sync_queue import SyncQueue
from storage_svc.log.errors import DataFolderInUse, DiskFull, NotNow, NotThere, StorageFailure

Buffer = bytes | memoryview

#: A small file has this after its name until it is whole.
TEMPORARY_SUFFIX: Final = ".tmp"

_IOV_MAX: Final = 1024
#: Most bytes of one write of several parts. For a larger one Linux takes larger blocks of memory. Where a virtual
#: machine gives free memory back to its host, these come from the host again: 1.3 ms a megabyte instead of 0.25.
_WRITE: Final = 1 << 20
_MAP_READ: Final = 256 << 10
#: The least part of a file that Linux reads ahead.
_READ_AHEAD: Final = 128 << 10
#: Most small files are shorter: one call reads them.
_READ: Final = 4096
#: Descriptors that are kept for the moment when the system allows no others.
_SPARE_DESCRIPTORS: Final = 16
_KINDS: Final[dict[int | None, type[StorageFailure]]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), DiskFull),
    errno.ENOENT: NotThere,
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR), NotNow),
}
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def _translated(error: OSError, action: str) -> StorageFailure:
    kind = _KINDS.get(error.errno, StorageFailure)
    return kind(f"cannot {action}: {error.strerror or error}")


def _cut(parts: list[Buffer]) -> Iterator[list[Buffer]]:
    """Yield the parts in groups of at most `_IOV_MAX`, and of at most `_WRITE` bytes unless one part has more."""
    begin = size = 0
    for at, part in enumerate(parts):
        size += len(part)
        if at - begin == _IOV_MAX or (size > _WRITE and at > begin):
            yield parts[begin:at]
            begin, size = at, len(part)
    yield parts[begin:]


class _border:  # noqa: N801 (a start enters it a hundred thousand times: a generator costs three times as much)
    """Translates every OSError of an action."""

    __slots__ = ("_action",)

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise _translated(error, self._action) from error


def _listed(entry: os.DirEntry[str]) -> tuple[str, bool, int]:
    """Return (name, is a folder, size); the size is 0 for a folder and for a link that leads nowhere."""
    if entry.is_dir():
        return entry.name, True, 0
    try:
        return entry.name, False, entry.stat().st_size
    except FileNotFoundError:
        return entry.name, False, 0


@contextmanager
def _sync_border(action: str) -> Iterator[None]:
    """Translate every failure of a sync into a StorageFailure that is no Refused.

    The system marks pages that it could not write as clean, for any reason: repeating the sync proves nothing.
    """
    try:
        yield
    except OSError as error:
        raise StorageFailure(f"cannot {action}: {error.strerror or error}") from error


class Files:
    """Real files. Paths and descriptors belong to the callers; only the spare descriptors belong to this object."""

    #: Whether records get no more of the disk: it is full, and what is left belongs to deletions (SpaceReserve).
    keeps_space = False
    #: Descriptors without a use, which `_open` gives up when the system allows no more; None before `reserve`.
    _spare: list[int] | None = None

    def reserve(self) -> None:
        """Keep some descriptors in reserve: a new segment or a sync needs one when connections hold all others."""
        if self._spare is None:
            self._spare = []
        self._fill_reserve()

    def give_back_reserve(self) -> None:
        """Close the descriptors in reserve."""
        spare, self._spare = self._spare, None
        for descriptor in spare or ():
            os.close(descriptor)

    def __del__(self) -> None:
        """Close the descriptors of a folder that was never closed."""
        self.give_back_reserve()

    def _fill_reserve(self) -> None:
        spare = self._spare
        if spare is not None and len(spare) < _SPARE_DESCRIPTORS:
            with suppress(OSError):
                while len(spare) < _SPARE_DESCRIPTORS:
                    spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _open(self, path: str, flags: int) -> int:
        """Open a file, with a descriptor of the reserve when there is no other."""
        spare = self._spare
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not spare:
                raise
        with suppress(IndexError):  # another thread was faster
            os.close(spare.pop())
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def _close(self, descriptor: int) -> None:
        os.close(descriptor)
        self._fill_reserve()

    def open(self, path: str, *, create: bool) -> int:
        """Return a descriptor for reading and writing."""
        with _border(f"open {path}"):
            return self._open(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        with _border("close a file"):
            self._close(descriptor)

    def append(self, descriptor: int, parts: list[Buffer], position: int, size: int) -> None:
        """Write all parts, `size` bytes together, at `position`: one system call unless there is very much.

        Raises:
            DiskFull, StorageFailure: some of the bytes may have been written; cut the file back to `position`.
        """
        try:
            if size <= _WRITE and len(parts) <= _IOV_MAX:
                written = os.pwritev(descriptor, parts, position)
                if written != size:
                    self._append_rest(descriptor, parts, position, written)
                return
            for some in _cut(parts):
                written = os.pwritev(descriptor, some, position)
                length = sum(map(len, some))
                if written != length:
                    self._append_rest(descriptor, some, position, written)
                position += length
        except OSError as error:
            raise _translated(error, "write to a file") from error

    def _append_rest(self, descriptor: int, parts: list[Buffer], position: int, written: int) -> None:
        """Continue after a short write: write the bytes from `written` on until all are there or the system reports an
        error.
        """
        rest = memoryview(b"".join(parts))[written:]
        position += written
        while rest:
            written = os.pwrite(descriptor, rest, position)
            if written == 0:
                raise OSError(errno.EIO, "nothing was written")
            rest = rest[written:]
            position += written

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        """Return `length` bytes at `position`, fewer only at the end of the file."""
        try:
            data = os.pread(descriptor, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length and (data := os.pread(descriptor, length - got, position + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise _translated(error, "read a file") from error

    def is_resident(self, descriptor: int, length: int, position: int) -> bool:
        """Return whether a read would find these bytes in memory, as far as the system reports it.

        It checks one byte in each part that the kernel reads ahead, and the last one.
        """
        last = position + length - 1
        scratch = bytearray(1)
        for at in (*range(position, last, _READ_AHEAD), last):
            try:
                os.preadv(descriptor, [scratch], at, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError:  # this file system does not tell
                return True
        return True

    def warm(self, descriptor: int, length: int, position: int) -> None:
        """Read bytes, fewer only at the end of the file, and drop them: the system keeps them in memory for a while."""
        scratch = memoryview(bytearray(min(length, _MAP_READ)))
        end = position + length
        with _border("read a file"):
            while position < end and (got := os.preadv(descriptor, (scratch[: end - position],), position)):
                position += got

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file to this size."""
        with _border("truncate a file"):
            os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Bring the file's bytes and size to the disk."""
        with _sync_border("sync a file"):
            os.fdatasync(descriptor)

    def sync_queue(self) -> SyncQueue | None:
        """Return a queue for `sync_queued`, closed by the caller; None where the system has none."""
        try:
            return SyncQueue()
        except OSError:
            return None

    def sync_queued(self, queue: SyncQueue, descriptors: Sequence[int]) -> list[StorageFailure | None]:
        """Sync all of the files together; return for each the failure, or None."""
        with _sync_border("sync files"):
            outcomes = queue.sync(descriptors)
        return [None if error is None else StorageFailure(f"cannot sync a file: {error}") for error in outcomes]

    def sync_path(self, path: str) -> None:
        """Sync a folder (its entries) or a file that is not open.

        Raises:
            NotThere: there is none of this name.
            Refused: it cannot be opened now; nothing is lost.
            StorageFailure: it is not synced, and a later sync proves nothing.
        """
        with _border(f"sync {path}"):
            descriptor = self._open(path, os.O_RDONLY)
        self._sync_opened(descriptor, path)

    def _sync_opened(self, descriptor: int, path: str) -> None:
        try:
            with _sync_border(f"sync {path}"):
                os.fsync(descriptor)
        finally:
            self._close(descriptor)

    def status(self, descriptor: int) -> os.stat_result:
        """Return the status of an open file."""
        with _border("inspect a file"):
            return os.fstat(descriptor)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        with _border(f"inspect {path}"):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Return when the file was last changed, in milliseconds since 1970."""
        with _border(f"inspect {path}"):
            # wall clock: the age of a segment, which outlives the process
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Make the file count as changed at that time."""
        with _border(f"date {path}"):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def free_bytes(self, path: str) -> int:
        """Return the space left for us on the file system that holds the path."""
        with _border(f"inspect the file system of {path}"):
            disk = os.statvfs(path)
            return disk.f_bavail * disk.f_frsize

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this path."""
        return os.path.exists(path)

    def entries(self, path: str) -> list[tuple[str, bool, int]]:
        """Return (name, is a folder, size) of everything in a folder, in name order."""
        with _border(f"list {path}"), os.scandir(path) as found:
            return sorted(map(_listed, found))

    def make_folder(self, path: str) -> None:
        """Make the folder and those above it, as far as they are missing."""
        with _border(f"create {path}"):
            os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder; a file of the new name is replaced."""
        with _border(f"rename {old}"):
            os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove the file; it need not exist."""
        with _border(f"delete {path}"):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything in it."""
        with _border(f"delete {path}"):
            shutil.rmtree(path)

    def read_file(self, path: str) -> bytes | None:
        """Return the whole file, or None if it does not exist."""
        with _border(f"read {path}"):
            try:
                descriptor = self._open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                data = os.read(descriptor, _READ)
                if len(data) < _READ:
                    return data
                with open(descriptor, "rb", closefd=False) as rest:
                    return data + rest.read()
            finally:
                self._close(descriptor)

    def system_run(self) -> str | None:
        """Return an id of the system's present run, which ends with the system; None if it has none."""
        try:
            data = self.read_file(_BOOT_ID)
        except StorageFailure:
            return None
        return data.decode("ascii", "replace").strip() if data else None

    def map_opened(self, descriptor: int, size: int) -> bytes | mmap.mmap:
        """Return the first `size` bytes of an open file, which has as many, mapped for reading."""
        with _border("map a file"):
            return mmap.mmap(descriptor, size, prot=mmap.PROT_READ) if size else b""

    def map_file(self, path: str) -> bytes | mmap.mmap | None:
        """Return the whole file mapped for reading, or None if it does not exist. When it is cut, the pages after the
        cut must not be looked at any more.

        It is read once first: a page that the disk cannot read is an error here, and the end of the process later.
        """
        with _border(f"map {path}"):
            try:
                descriptor = self._open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                size = os.fstat(descriptor).st_size
                scratch = bytearray(min(size, _MAP_READ))
                position = 0
                while position < size and (read := os.preadv(descriptor, [scratch], position)):
                    position += read
                return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) if size else b""
            finally:
                self._close(descriptor)

    def write_file(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Replace the file in place, by default without a sync: for content that can be rebuilt and is checked when
        read.
        """
        with _border(f"write {path}"), open(path, "wb", opener=self._open) as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the file as a whole: even a crash leaves the old content or the new one; with `sync` the new one from
        then on.
        """
        temporary = path + TEMPORARY_SUFFIX
        self.write_file(temporary, data, sync=sync)  # mutant: checkpoint-synced
        self.rename(temporary, path)
        if sync:
            self.sync_path(os.path.dirname(path))

    def lock(self, path: str) -> int:
        """Return a descriptor that holds an exclusive lock on the file until `unlock`.

        Raises:
            DataFolderInUse: another process holds it.
        """
        descriptor = self.open(path, create=True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # mutant: data-folder-locked
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                folder = os.path.dirname(path)
                raise DataFolderInUse(f"data folder {folder} is in use by another process") from error
            raise _translated(error, f"lock {path}") from error
        return descriptor

    def unlock(self, descriptor: int) -> None:
        """Give up the lock and close its descriptor. A fork of the process that still has a copy does not keep it."""
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # mutant: fork-unlocks-folder
        self.close(descriptor)
