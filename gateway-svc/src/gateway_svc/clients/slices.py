"""Records that the system moves into an answer: ranges of storage's files, or bytes that storage sends over a lane.

A slice names (path, inode, position, length). The file is opened below the data folder only, never through a link,
and kept open for the next fetch. A file whose inode is not the slice's is another file under an old name and is not
used. `sweep` closes files that were not used for a while, and deleted ones, so that a deleted segment's space is free.
"""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from broker_contract.data import Slice

from gateway_svc.errors import SliceGone
from gateway_svc.storage.protocols import LaneAnswer

#: Most segment files kept open, unless an eighth of the limit of open files is less.
OPEN_FILES_MAX = 512
#: A file that was not read for this long is closed.
UNUSED_CLOSE_S = 15.0
#: Seconds for which records are read by value after a slice that could not be read.
GONE_PAUSE_S = 1.0
#: Slices below this are read into memory: copying 64 KiB costs less than a sendfile call and its wait.
SENDFILE_MIN_BYTES = 65_536


def open_files_max() -> int:
    """Return how many segment files a gateway keeps open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else min(OPEN_FILES_MAX, soft // 8)


class OpenFile:
    """A segment file; it is closed when it has left the cache and the last answer that uses it was sent."""

    __slots__ = ("cached", "descriptor", "last_used", "users")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 0
        self.cached = True
        self.last_used = 0.0

    def fileno(self) -> int:
        return self.descriptor

    def release(self) -> None:
        self.users -= 1
        self._close_if_done()

    def uncache(self) -> None:
        self.cached = False
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self.cached and self.users == 0 and self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class FileRange:
    """`length` bytes at `position` of an open file, to be sent to a client; `release` it when sent or dropped."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
        file.users += 1

    def __len__(self) -> int:
        return self.length

    def release(self) -> None:
        self.file.release()


class LaneRange:
    """The next `length` bytes of a lane's answer, to be sent to a client; `release` it when sent or dropped."""

    __slots__ = ("answer", "length")

    def __init__(self, answer: LaneAnswer, length: int) -> None:
        self.answer = answer
        self.length = length
        answer.users += 1

    def __len__(self) -> int:
        return self.length

    def release(self) -> None:
        self.answer.users -= 1
        if not self.answer.users:
            self.answer.release()


#: A piece of an answer.
Part = bytes | memoryview | FileRange | LaneRange


#: The kinds whose bytes the system moves: they take no memory here.
MOVED: Final = frozenset((FileRange, LaneRange))


class SliceSource(Protocol):
    """A source of the bytes of slices."""

    def parts(self, slices: Sequence[Slice], now: float) -> list[Part]:
        """Return the slices' bytes, in order. `now`: the event loop's time.

        Raises:
            SliceGone: one of them cannot be read; nothing is held then.
        """
        ...


class LaneSlices:
    """The slices that a lane's answer was asked for. All of them are to be taken, in order."""

    __slots__ = ("_answer",)

    def __init__(self, answer: LaneAnswer) -> None:
        self._answer = answer

    def parts(self, slices: Sequence[Slice], now: float) -> list[Part]:  # noqa: ARG002
        return [LaneRange(self._answer, piece.length) for piece in slices]


class RecordParts:
    """The records field of one partition of a fetch answer, when it is more than one run of bytes."""

    __slots__ = ("length", "parts")

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.length = sum(map(len, parts))

    def __len__(self) -> int:
        return self.length


class SliceFiles:
    """Open files below one data folder, least recently used first."""

    __slots__ = ("_data_dir", "_directory", "_files", "_latest", "_most", "_pause_until")

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._most = open_files_max()
        #: The folder's descriptor, or -1 before the first use: storage may have yet to make the folder.
        self._directory = -1
        self._pause_until = float("-inf")
        self._files: OrderedDict[tuple[str, int], OpenFile] = OrderedDict()
        #: The slice that was read last, and its bytes: many consumers of one partition are sent the same.
        self._latest: tuple[Slice | None, bytes] = None, b""

    def __len__(self) -> int:
        return len(self._files)

    def usable(self, now: float) -> bool:
        """Return whether to ask for slices: not for a while after one could not be read, which costs a second read.

        `now`: the event loop's time.
        """
        return now >= self._pause_until

    def parts(self, slices: Sequence[Slice], now: float) -> list[Part]:
        """Return the slices' bytes, in order: small ones read, large ones as ranges of open files.

        Raises:
            SliceGone: one of them cannot be read; nothing is held then.
        """
        parts: list[Part] = []
        try:
            for piece in slices:
                file = self._file(piece)
                file.last_used = now
                if piece.length >= SENDFILE_MIN_BYTES:
                    parts.append(FileRange(file, piece.position, piece.length))
                    continue
                latest, data = self._latest
                if piece is not latest and piece != latest:
                    data = os.pread(file.descriptor, piece.length, piece.position)
                    if len(data) != piece.length:
                        raise SliceGone(f"{piece.path} ends before {piece.position + piece.length}")
                    self._latest = piece, data
                parts.append(data)
        except (OSError, SliceGone) as error:
            for part in parts:
                if type(part) is FileRange:
                    part.release()
            raise self._gone(error, now) from error
        return parts

    def _gone(self, error: OSError | SliceGone, now: float) -> SliceGone:
        """Return the exception to raise; no slices are asked for during GONE_PAUSE_S."""
        self._pause_until = now + GONE_PAUSE_S
        return error if isinstance(error, SliceGone) else SliceGone(f"{error.strerror}")

    def _file(self, piece: Slice) -> OpenFile:
        key = (piece.path, piece.file_id)
        file = self._files.get(key)
        if file is not None:
            self._files.move_to_end(key)
            return file
        if any(name in ("", ".", "..") for name in piece.path.split("/")):
            raise SliceGone(f"{piece.path!r} is not a file of the data folder")
        if self._directory < 0:
            self._directory = os.open(self._data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        descriptor = os.open(piece.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)
        if os.fstat(descriptor).st_ino != piece.file_id:
            os.close(descriptor)
            raise SliceGone(f"{piece.path} is another file by now")
        file = self._files[key] = OpenFile(descriptor)
        if len(self._files) > self._most:
            self._files.popitem(last=False)[1].uncache()
        return file

    def sweep(self, now: float) -> None:
        """Close files that were not used for a while, and deleted ones."""
        self._latest = None, b""
        for key, file in list(self._files.items()):
            if now - file.last_used > UNUSED_CLOSE_S or _is_gone(file.descriptor):
                del self._files[key]
                file.uncache()

    def close(self) -> None:
        for file in self._files.values():
            file.uncache()
        self._files.clear()
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


def _is_gone(descriptor: int) -> bool:
    """Return whether the file was deleted, also on a network volume (ESTALE)."""
    try:
        return os.fstat(descriptor).st_nlink == 0
    except OSError:
        return True
