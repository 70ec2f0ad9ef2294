"""Locks of a table's folder, and of a checkpoint.

    CHECKPOINT.run.lock      held as long as a pipeline runs, or `replay-dlq` writes to its sinks
    CHECKPOINT.replay.lock   held as long as `replay-dlq` works: two of them would both bring back a letter
    ROOT/_etl/driver.lock    held as long as a pipeline runs: one driver for one folder
    ROOT/_etl/command.lock   held as long as `compact` or `backfill` runs: one of them at a time
    ROOT/_etl/commit.lock    held for one commit, by the pipeline, `compact` and `backfill` in turn

Delta Lake looks for a log entry of the same version and then renames its own into place. On a local disk, two processes
could do so at once, and one commit would replace the other. On HDFS such a rename fails, without a commit.lock.

A lock of a local disk is two. The Python process holds the file itself (flock). Its JVM, which writes, holds NAME.jvm
(a record lock of POSIX): a JVM that outlives a killed driver still excludes the next driver. On HDFS the JVM holds the
file open for writing. The name node gives this lease to one client. Another one gets it a minute after the holder died
or stood still. So a driver asks before each commit whether it still has its locks.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_etl.checkpoint import notes
from spark_etl.errors import OutputError
from spark_etl.reasons import reason

DRIVER_WAIT_SECONDS = 30.0  # the JVM of a killed driver ends within a few seconds
COMMIT_WAIT_SECONDS = 3600.0  # a backfill holds the lock while it rewrites files
POLL_SECONDS = 0.02
LEASE_WAIT_SECONDS = 90.0  # a name node waits 60 s for a client that was killed (LEASE_SOFTLIMIT_PERIOD)
LEASE_POLL_SECONDS = 1.0
#: Exceptions of a name node while another client has the lease, or while it takes the lease from a dead one.
_LEASED = ("AlreadyBeingCreatedException", "RecoveryInProgressException")


class Lock(Protocol):
    def take(self, wait_seconds: float) -> bool:
        """Take the lock within a time; return whether it is held now."""
        ...

    def check(self) -> None:
        """Raise OutputError if the lock is not held any more."""

    def release(self) -> None: ...


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

    def check(self) -> None:
        """Do nothing: a lock of a local disk lasts as long as its process."""

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


class LeaseLock:
    """A file of HDFS that this JVM holds open for writing."""

    def __init__(self, session: SparkSession, location: str) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._lost = False
        self._path = jvm.org.apache.hadoop.fs.Path(location)
        self._files = self._path.getFileSystem(session._jsc.hadoopConfiguration())
        self._held: Any = None

    def take(self, wait_seconds: float) -> bool:
        """Take the lock within a time; return whether it is held now."""
        end = time.monotonic() + wait_seconds
        while not self._try():
            if time.monotonic() >= end:
                return False
            time.sleep(min(LEASE_POLL_SECONDS, wait_seconds))
        return True

    def check(self) -> None:
        """Raise OutputError if the name node does not confirm the lease. The stream is of no use after that."""
        hdfs: Any = self._jvm.org.apache.hadoop.hdfs.client
        asks = getattr(hdfs, "HdfsDataOutputStream$SyncFlag").UPDATE_LENGTH
        try:
            self._held.hsync(self._jvm.java.util.EnumSet.of(asks))  # mutant: lease-checked
        except Py4JJavaError as error:
            self._lost = True
            raise OutputError(
                f"{self._path.toString()}: this driver has lost its lock, as after a standstill of a minute."
                f" Another one may write here: {reason(error)}"
            ) from error

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            with suppress(Py4JJavaError) if self._lost else nullcontext():
                held.close()

    def _try(self) -> bool:
        try:
            if not self._files.exists(self._path):
                self._files.create(self._path, False).close()
            self._held = self._files.append(self._path)  # mutant: one-run-on-hdfs
        except Py4JJavaError as error:
            if not _is_leased(error):
                raise
            return False
        return True


def _is_leased(error: Py4JJavaError) -> bool:
    """Return whether another client has the lease, or has just made the file."""
    text = str(error.java_exception.toString())
    return any(name in text for name in (*_LEASED, "FileAlreadyExistsException"))


def lock_at(session: SparkSession, location: str) -> Lock:
    """Return the lock of a location: a local path, or a URL of HDFS."""
    path = notes.local_path(location)
    return FileLock(session, path) if path is not None else LeaseLock(session, location)


@contextmanager
def driver_lock(session: SparkSession, root: str) -> Iterator[Lock]:
    """Hold the folder as its one driver."""
    refusal = f"{root}: another driver writes here; stop the pipeline's other run first"
    with _held(lock_at(session, f"{root}/_etl/driver.lock"), refusal) as lock:
        yield lock


@contextmanager
def checkpoint_lock(session: SparkSession, location: str, use: Literal["run", "replay"]) -> Iterator[Lock]:
    """Hold a checkpoint for the one run, or the one replay. A new start renames the folder, but not the lock."""
    place = notes.absolute(location)
    lock = lock_at(session, f"{place}.{use}.lock")
    with _held(lock, f"{place}: another {use} uses this checkpoint; stop it first"):
        yield lock


@contextmanager
def _held(lock: Lock, refusal: str) -> Iterator[Lock]:
    if not lock.take(LEASE_WAIT_SECONDS if isinstance(lock, LeaseLock) else DRIVER_WAIT_SECONDS):
        raise OutputError(refusal)
    try:
        yield lock
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
