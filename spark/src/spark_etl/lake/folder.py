"""The folder of a table: local, or on HDFS, with the same locks of drivers and commands.

HDFS keeps all that it has acknowledged, and Delta's log store for it excludes a second commit of a version: syncs and
the lock of a commit are for local folders only. Other file systems are refused (config/places.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_etl.errors import OutputError
from spark_etl.lake import durable
from spark_etl.lake.delta import CommitObserver, Delta
from spark_etl.lake.locks import CommitLock, Lock, driver_lock, lock_at

_OURS = "_etl"


class Folder:
    """The place of a table. `root` is None on HDFS."""

    def __init__(self, session: SparkSession, root: Path | None, delta: Delta) -> None:
        self._session = session
        self._delta = delta
        self.root = root
        self._driver: Lock | None = None  # held by this driver, if it is the one

    def check_empty_or_table(self) -> None:
        """Refuse a local folder that has files of another kind: readers would mix them with the table's."""
        root = self.root
        if root is None or not root.exists() or (root / durable.LOG).exists():
            return
        if (root / _OURS / "manifest").exists():
            raise OutputError(f"{root}: Parquet files of an earlier release; move the folder away and read again")
        if any(entry.name != _OURS for entry in root.iterdir()):
            raise OutputError(f"{root}: the folder has files and is not a Delta table")

    @contextmanager
    def driven(self) -> Iterator[list[str]]:
        """Hold the folder as its one driver. Repair the damage of a power cut, and give the removed names."""
        with driver_lock(self._session, self._delta.path) as self._driver:
            try:
                yield self._repaired() if self.root is not None else []
            finally:
                self._driver = None

    def _repaired(self) -> list[str]:
        with self.commit_turn():
            removed = durable.repair(self.root) if self.root is not None else []
        if removed:
            self._delta.forget()
        return removed

    def _check_driver(self) -> None:
        """Raise OutputError if this driver has lost the folder to another one."""
        if self._driver is not None:
            self._driver.check()

    @contextmanager
    def commit_turn(self) -> Iterator[None]:
        """Exclude every other commit to a local folder."""
        if self.root is None:
            yield
            return
        lock = CommitLock(self._session, self.root)
        lock.take()
        try:
            yield
        finally:
            lock.release()

    def committed(self, commit: Callable[[], int]) -> int:
        """Make a commit in its turn, sync its log entry, and return its version."""
        with self.commit_turn():
            self._check_driver()
            version = commit()
            if self.root is not None:
                # the entry before it may be of a process that was killed before it could sync
                durable.sync_log(self.root, max(version - 1, 0), version)
            return version

    def sync_files(self, names: Iterable[str]) -> None:
        if self.root is not None:
            durable.sync_files(self.root, names)

    def discard(self, names: Iterable[str]) -> None:
        if self.root is not None:
            durable.discard(self.root, names)

    @contextmanager
    def commanded(self, *, as_driver: bool) -> Iterator[None]:
        """Hold the folder for one command; with `as_driver`, no pipeline may run at the same time."""
        place = self._delta.path
        lock = lock_at(self._session, f"{place}/{_OURS}/command.lock")
        if not lock.take(0.0):
            raise OutputError(f"{place}: another command works on this table")
        try:
            with driver_lock(self._session, place) if as_driver else nullcontext():
                yield
        finally:
            lock.release()

    @contextmanager
    def command(
        self,
        session: SparkSession,
        metadata: Callable[[], Mapping[str, Any]],
        dumped: Callable[[Mapping[str, Any]], str],
        *,
        lock_first: bool = False,
    ) -> Iterator[None]:
        """Let a command of Delta's run as a commit of ours: files synced, then `metadata` asked, in its turn.

        With `lock_first` no other commit can come between its reading and its commit.
        """
        root = self.root
        lock = None if root is None else CommitLock(self._session, root)
        since = 0.0 if root is None else durable.clock(root)
        key = "spark.databricks.delta.commitInfo.userMetadata"
        lost: list[OutputError] = []  # what the JVM would hide in a failure of its own

        def before() -> None:
            if lock is not None and root is not None:
                durable.sync_files(root, durable.new_files(root, since))
                if not lock_first:
                    lock.take()
            try:
                self._check_driver()
            except OutputError as error:
                lost.append(error)
                raise
            session.conf.set(key, dumped(metadata()))

        def after() -> None:
            if lock is not None and root is not None:
                newest = self._delta.version()
                durable.sync_log(root, max(newest - 1, 0), newest)
                if not lock_first:
                    lock.release()

        def given_up() -> None:
            if lock is not None and not lock_first:
                lock.release()

        try:
            if lock_first and lock is not None:
                lock.take()
            with CommitObserver(before, after, given_up).installed(session):
                yield
        except Exception:
            if lost:
                raise lost[0] from None
            raise
        finally:
            if lock is not None:
                lock.release()
            session.conf.unset(key)
