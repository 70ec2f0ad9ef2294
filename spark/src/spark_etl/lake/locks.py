"""Locks of a local table folder, and of a local checkpoint.

    CHECKPOINT.run.lock      held as long as a pipeline runs, or `replay-dlq` writes to its sinks
    CHECKPOINT.replay.lock   held as long as `replay-dlq` works: two of them would both bring back a letter
    ROOT/_etl/driver.lock    held as long as a pipeline runs: one driver for one folder
    ROOT/_etl/command.lock   held as long as `compact` or `backfill` runs: one of them at a time
    ROOT/_etl/commit.lock    held for one commit, by the pipeline, `compact` and `backfill` in turn

Delta Lake looks for a log entry of the same version and then renames its own into place. On a local disk, two processes
could do so at once, and one commit would replace the other. On an object store or HDFS no lock is possible.

Each lock is two. The Python process holds the file itself (flock). Its JVM, which writes, holds NAME.jvm (a record lock
of POSIX): a JVM that outlives a killed driver still excludes the next driver.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from pyspark.sql import SparkSession

from spark_etl.errors import OutputError
from spark_etl.run import notes

DRIVER_WAIT_SECONDS = 30.0  # the JVM of a killed driver ends within a few seconds
COMMIT_WAIT_SECONDS = 3600.0  # a backfill holds the lock while it rewrites files
POLL_SECONDS = 0.02


class FileLock:
    """A lock of this process and of its JVM on one name."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        self._jvm: Any = session._jvm
        self._path = path
        self._held: list[IO[bytes] | Any] = []

    def take(self, wait_seconds: float) -> bool:
        """Take the lock within a time; return whether it is held now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + wait_seconds
        while not self._try():
            if time.monotonic() >= end:
                self.release()
                return False
            time.sleep(POLL_SECONDS)
        return True

    def release(self) -> None:
        while self._held:
            self._held.pop().close()

    def _try(self) -> bool:
        if not self._held:
            file = self._path.open("wb")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return False
            self._held.append(file)
        jvm_file = self._jvm.java.io.RandomAccessFile(f"{self._path}.jvm", "rw")
        if jvm_file.getChannel().tryLock() is None:
            jvm_file.close()
            return False
        self._held.append(jvm_file)
        return True


@contextmanager
def driver_lock(session: SparkSession, root: Path) -> Iterator[None]:
    """Hold the folder as its one driver."""
    refusal = f"{root}: another driver writes here; stop the pipeline's other run first"
    with _held(FileLock(session, root / "_etl" / "driver.lock"), refusal):
        yield


@contextmanager
def checkpoint_lock(session: SparkSession, location: str, use: Literal["run", "replay"]) -> Iterator[None]:
    """Hold a local checkpoint for the one run, or the one replay. A new start renames the folder, but not the lock."""
    path = notes.local_path(location)
    if path is None:
        yield
        return
    lock = FileLock(session, path.with_name(f"{path.name}.{use}.lock"))
    with _held(lock, f"{path}: another {use} uses this checkpoint; stop it first"):
        yield


@contextmanager
def _held(lock: FileLock, refusal: str) -> Iterator[None]:
    if not lock.take(DRIVER_WAIT_SECONDS):
        raise OutputError(refusal)
    try:
        yield
    finally:
        lock.release()


class CommitLock:
    """The lock of one commit."""

    def __init__(self, session: SparkSession, root: Path) -> None:
        self._root = root
        self._lock = FileLock(session, root / "_etl" / "commit.lock")

    def take(self) -> None:
        if not self._lock.take(COMMIT_WAIT_SECONDS):
            raise OutputError(f"{self._root}: another commit has not ended within {COMMIT_WAIT_SECONDS:.0f} s")

    def release(self) -> None:
        self._lock.release()
