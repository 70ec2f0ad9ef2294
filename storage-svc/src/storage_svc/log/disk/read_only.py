"""The file layer for programs that only read a stopped volume, which may be mounted read-only."""

from __future__ import annotations

import fcntl  # past the file layer: reads a stopped folder
import os
from collections.abc import Iterator
from contextlib import contextmanager

from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DataFolderError, DataFolderInUse, StorageFailure


class ReadOnlyFiles(Files):
    """A file layer that opens files for reading; its users call none of the methods that write by name."""

    def open(self, path: str, *, create: bool) -> int:  # noqa: ARG002 (nothing is created)
        """Return a descriptor for reading only."""
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageFailure(f"cannot open {path}: {error.strerror}") from error


@contextmanager
def stopped_volume(root: str) -> Iterator[None]:
    """Keep brokers from using the data folder during the block.

    Raises:
        DataFolderInUse: a broker uses it.
        DataFolderError: it is no data folder.
    """
    if not os.path.exists(f"{root}/{checkpoints.META_PROPERTIES}"):
        raise DataFolderError(f"{root} is not a data folder: it has no {checkpoints.META_PROPERTIES}")
    try:
        descriptor = os.open(f"{root}/{checkpoints.LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy without the lock file, which no broker can be using
        yield
        return
    except OSError as error:
        raise DataFolderError(f"cannot open {root}/{checkpoints.LOCK}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise DataFolderInUse(f"data folder {root} is in use by another process") from error
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork of the process does not keep it
        os.close(descriptor)
