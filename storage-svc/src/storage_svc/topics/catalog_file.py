"""The catalog's file: all that must survive a restart and is in no log. SQLite on the volume.

    topics          name, 16-byte id, partition count
    topic_configs   a topic's own settings, as Kafka names and writes them
    group_configs   a group's, whether or not the group exists
    broker_configs  a broker's, altered at run time; see broker_settings for the names of brokers
    client_metrics  a subscription's to metrics of clients
    acls, quotas    access rules and client quotas (catalog_access.py)
    credentials, secrets, user_revisions   users (catalog_users.py)
    deletions       ids of deleted and half-made topics whose directories may be there
    gateways        gateway name -> node id, for ever; ids start at 1
    counters        next_producer_id, next_node_id, user_revision, rules_lease_ms

Every change is one transaction and durable when the call returns (WAL, synchronous=FULL). A damaged file is refused at
its opening: its contents do not show the losses. Without a file, all but the settings of topics, groups, brokers and
subscriptions, users, access rules, quotas, gateway ids and unfinished deletions is found again in the logs. The log
folder's lock keeps other processes away.

Each call waits for the disk: while storage serves, the thread of `catalog.Catalog` calls, and nobody else. Any thread
may call; one transaction is over before the next begins.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from broker_contract.acls import Binding
from broker_contract.quotas import Entity
from protocol_lib.scram import ScramCredential, ScramMechanism

from storage_svc.topics import catalog_access, catalog_users

FILE_NAME: Final = "catalog.sqlite"
_SCHEMA_VERSION: Final = 7
_GROUP_CONFIGS: Final = """
CREATE TABLE group_configs (group_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
                            PRIMARY KEY (group_id, name)) WITHOUT ROWID;
"""
_BROKER_CONFIGS: Final = """
CREATE TABLE broker_configs (broker TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
                             PRIMARY KEY (broker, name)) WITHOUT ROWID;
"""
_CLIENT_METRICS: Final = """
CREATE TABLE client_metrics (subscription TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
                             PRIMARY KEY (subscription, name)) WITHOUT ROWID;
"""
_ACCESS, _USERS, _REVISIONS = catalog_access.TABLES, catalog_users.TABLES, catalog_users.REVISIONS
_SCHEMA: Final = f"""
BEGIN;
CREATE TABLE topics (name TEXT PRIMARY KEY, id BLOB NOT NULL UNIQUE, partition_count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE topic_configs (topic TEXT NOT NULL REFERENCES topics(name) ON DELETE CASCADE, name TEXT NOT NULL,
                            value TEXT NOT NULL, PRIMARY KEY (topic, name)) WITHOUT ROWID;
{_GROUP_CONFIGS.strip()}
{_BROKER_CONFIGS.strip()}
{_CLIENT_METRICS.strip()}
{_ACCESS.strip()}
{_USERS.strip()}
CREATE TABLE deletions (id BLOB PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE gateways (name TEXT PRIMARY KEY, node_id INTEGER NOT NULL UNIQUE) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('next_producer_id', 0), ('next_node_id', 1);
{_REVISIONS.strip()}
PRAGMA user_version = {_SCHEMA_VERSION};
COMMIT;
"""
#: The tables that a file of an older version lacks.
_UPGRADES: Final = {
    1: _GROUP_CONFIGS + _BROKER_CONFIGS + _CLIENT_METRICS + _ACCESS + _USERS + _REVISIONS,
    2: _BROKER_CONFIGS + _CLIENT_METRICS + _ACCESS + _USERS + _REVISIONS,
    3: _CLIENT_METRICS + _ACCESS + _USERS + _REVISIONS,
    4: _ACCESS + _USERS + _REVISIONS,
    5: _USERS + _REVISIONS,
    6: _REVISIONS,
}

_WHAT_TO_DO: Final = (
    f"put a copy of it back, or move {FILE_NAME}, {FILE_NAME}-wal and {FILE_NAME}-shm away, as `millrace storage"
    " rebuild-catalog DIR` does: the topics are created again from their folders, with every record, without the"
    " settings of topics, groups and brokers, users, access rules and quotas"
)


class CatalogError(Exception):
    """The catalog cannot be read or written, and why: a full disk, a damaged or a newer file."""


class DamagedCatalog(CatalogError):  # noqa: N818 (reads as what happened)
    """The file differs from the one that was written, and how to go on."""


class CatalogFull(CatalogError):  # noqa: N818 (reads as what happened)
    """The disk has no space for a change."""


@dataclass(frozen=True, slots=True)
class CatalogTopic:
    name: str
    id: bytes
    partition_count: int
    #: The configs set for this topic; all others follow the broker.
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogContents:
    """All that a start reads."""

    #: All topics, sorted by name.
    topics: list[CatalogTopic] = field(default_factory=list)
    #: Ids of deleted and half-made topics whose directories may still exist -> name.
    deletions: Mapping[bytes, str] = field(default_factory=dict)
    #: The configs set for each group; groups without any are left out.
    group_configs: Mapping[str, dict[str, str]] = field(default_factory=dict)
    #: The configs set for each broker; brokers without any are left out.
    broker_configs: Mapping[str, dict[str, str]] = field(default_factory=dict)
    #: The configs set for each subscription to clients' metrics.
    client_metrics: Mapping[str, dict[str, str]] = field(default_factory=dict)
    #: Gateway name -> node id.
    gateways: Mapping[str, int] = field(default_factory=dict)
    acls: list[Binding] = field(default_factory=list)
    #: The values set for each entity; entities without any are left out.
    quotas: Mapping[Entity, dict[str, float]] = field(default_factory=dict)
    #: The credentials of each user, by mechanism.
    credentials: Mapping[str, Mapping[ScramMechanism, ScramCredential]] = field(default_factory=dict, repr=False)
    #: The secret that the made-up credentials of other names come from.
    users_secret: bytes = field(default=b"", repr=False)
    #: The number of each user's last change, and the latest number, which a user that was deleted may have had.
    user_revisions: Mapping[str, int] = field(default_factory=dict)
    users_revision: int = 0
    #: The longest time in milliseconds for which a gateway obeys access rules without an answer; 0 without gateways.
    rules_lease_ms: int = 0


class CatalogFile:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        #: Whether changes are being made in one transaction.
        self._together = False
        #: Frees space that is kept for deletions on a full disk; returns whether there was any.
        self.use_reserve: Callable[[], bool] = lambda: False

    @classmethod
    def open(cls, data_dir: Path) -> Self:
        """Open the catalog, and make it if there is none.

        Raises:
            CatalogError: it is damaged, or the disk refused.
        """
        path = data_dir / FILE_NAME
        with _translated(path):
            _keep_private(path)  # mutant: catalog-private
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with _translated(path):
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("PRAGMA foreign_keys=ON")
                (fault,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if fault != "ok":
                    raise _damaged(path, fault)
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version == 0:
                    connection.executescript(_SCHEMA)
                elif version in _UPGRADES:
                    connection.executescript(
                        f"BEGIN; {_UPGRADES[version]} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;"
                    )
                elif version != _SCHEMA_VERSION:
                    raise CatalogError(f"{path} has format {version}; this program knows format {_SCHEMA_VERSION}")
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    def close(self) -> None:
        self._connection.close()

    def read(self) -> CatalogContents:
        """Return all that is stored, but the counters.

        Raises:
            CatalogError: it cannot be read.
        """
        with self._lock, _translated():
            execute = self._connection.execute
            configs = self._configs("SELECT topic, name, value FROM topic_configs")
            rows = execute("SELECT name, id, partition_count FROM topics ORDER BY name")
            return CatalogContents(
                [CatalogTopic(name, topic_id, count, configs.get(name, {})) for name, topic_id, count in rows],
                dict(execute("SELECT id, name FROM deletions")),
                self._configs("SELECT group_id, name, value FROM group_configs"),
                self._configs("SELECT broker, name, value FROM broker_configs"),
                self._configs("SELECT subscription, name, value FROM client_metrics"),
                dict(execute("SELECT name, node_id FROM gateways")),
                catalog_access.read_acls(self._connection),
                catalog_access.read_quotas(self._connection),
                catalog_users.read_credentials(self._connection),
                catalog_users.read_secret(self._connection),
                catalog_users.read_revisions(self._connection),
                self._counter("user_revision"),
                self._counter("rules_lease_ms"),
            )

    def _counter(self, name: str) -> int:
        return next((n for (n,) in self._connection.execute("SELECT value FROM counters WHERE name = ?", (name,))), 0)

    def _configs(self, query: str) -> dict[str, dict[str, str]]:
        """Return the rows of (owner, name, value) by owner."""
        configs: dict[str, dict[str, str]] = {}
        for owner, name, value in self._connection.execute(query):
            configs.setdefault(owner, {})[name] = value
        return configs

    def make(self, changes: Sequence[Callable[[], object]]) -> list[object]:
        """Make several changes, in order, with one sync; return the result of each, or the exception.

        Each is a call of a method of this object. If they cannot be made together, each is made for itself: one that is
        refused leaves the others.
        """
        if len(changes) > 1:
            with contextlib.suppress(Exception), self._lock:
                return self._make_together(changes)
        return [_outcome(change) for change in changes]

    def _make_together(self, changes: Sequence[Callable[[], object]]) -> list[object]:
        with self._transaction():
            self._together = True
            try:
                return [change() for change in changes]
            finally:
                self._together = False

    def begin_topics(self, names: Mapping[bytes, str]) -> None:
        """Note topics that are about to be made, by id. Until `add_topics` a start treats them as deleted ones."""
        with self._transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO deletions VALUES (?, ?)", names.items())

    def add_topics(self, topics: Collection[CatalogTopic]) -> None:
        """Add topics, all or none. A row of such a name, left by a creation that failed, becomes a deletion."""
        with self._transaction() as connection:
            self._remove(connection, [topic.name for topic in topics])
            self._forget(connection, [topic.id for topic in topics])
            connection.executemany(
                "INSERT INTO topics VALUES (?, ?, ?)",
                [(topic.name, topic.id, topic.partition_count) for topic in topics],
            )
            connection.executemany(
                "INSERT INTO topic_configs VALUES (?, ?, ?)",
                [(topic.name, name, value) for topic in topics for name, value in topic.configs.items()],
            )

    def set_partition_counts(self, counts: Mapping[str, int]) -> None:
        """Set the numbers of partitions of these topics, all or none."""
        with self._transaction() as connection:
            rows = [(count, name) for name, count in counts.items()]
            connection.executemany("UPDATE topics SET partition_count = ? WHERE name = ?", rows)

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Set these configs and no others for the topic."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM topic_configs WHERE topic = ?", (name,))
            connection.executemany(
                "INSERT INTO topic_configs VALUES (?, ?, ?)", [(name, key, value) for key, value in configs.items()]
            )

    def set_broker_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Set these configs and no others for each of these brokers."""
        with self._transaction() as connection:
            for broker, own in configs.items():
                connection.execute("DELETE FROM broker_configs WHERE broker = ?", (broker,))
                connection.executemany(
                    "INSERT INTO broker_configs VALUES (?, ?, ?)", [(broker, key, value) for key, value in own.items()]
                )

    def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Set these configs and no others for the group."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM group_configs WHERE group_id = ?", (group_id,))
            connection.executemany(
                "INSERT INTO group_configs VALUES (?, ?, ?)", [(group_id, key, value) for key, value in configs.items()]
            )

    def set_client_metrics(self, subscription: str, configs: Mapping[str, str]) -> None:
        """Set these configs and no others for the subscription."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM client_metrics WHERE subscription = ?", (subscription,))
            connection.executemany(
                "INSERT INTO client_metrics VALUES (?, ?, ?)",
                [(subscription, key, value) for key, value in configs.items()],
            )

    def change_acls(self, added: Collection[Binding], removed: Collection[Binding]) -> None:
        """Remove and add these rows, all or none."""
        with self._transaction() as connection:
            catalog_access.change_acls(connection, added, removed)

    def set_quotas(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        """Set these values and no others for each of these entities, all or none."""
        with self._transaction() as connection:
            catalog_access.set_quotas(connection, quotas)

    def set_credentials(self, credentials: Mapping[tuple[str, int], ScramCredential | None]) -> int:
        """Set these credentials, by user and mechanism, and delete those that are None; all or none.

        Returns the revision that the users have from now on.
        """
        with self._transaction() as connection:
            revision = self._take(connection, "user_revision", 1) + 1
            catalog_users.set_credentials(connection, credentials, revision)
        return revision

    def remove_topics(self, names: Collection[str]) -> None:
        """Remove topics, all or none; their ids stay among the deletions until `forget_deletions`."""
        self._delete(lambda connection: self._remove(connection, names))

    def _delete(self, change: Callable[[sqlite3.Connection], object]) -> None:
        """Note a deletion; on a full disk, which only deletions free, with the space in reserve."""
        try:
            with self._transaction() as connection:
                change(connection)
        except CatalogFull:
            if not self.use_reserve():
                raise
            with self._transaction() as connection:
                change(connection)

    def forget_deletions(self, topic_ids: Collection[bytes]) -> None:
        self._delete(lambda connection: self._forget(connection, topic_ids))

    def allocate_producer_ids(self, count: int) -> range:
        """Allocate producer ids that were never used and never will be again."""
        with self._transaction() as connection:
            first = self._take(connection, "next_producer_id", count)
        return range(first, first + count)

    def skip_producer_ids(self, end: int) -> None:
        """Allocate no id below `end` any more."""
        if end > self.next_producer_id():
            with self._transaction() as connection:
                connection.execute("UPDATE counters SET value = ? WHERE name = 'next_producer_id'", (end,))

    def next_producer_id(self) -> int:
        """Return the first id of the next block: every lower one was allocated."""
        with self._lock, _translated():
            row = self._connection.execute("SELECT value FROM counters WHERE name = 'next_producer_id'").fetchone()
            return int(row[0])

    def add_gateway(self, name: str) -> int:
        """Return a new node id for a gateway name that has none."""
        with self._transaction() as connection:
            node_id = self._take(connection, "next_node_id", 1)
            connection.execute("INSERT INTO gateways VALUES (?, ?)", (name, node_id))
        return node_id

    def extend_rules_lease(self, lease_ms: int) -> None:
        """Note that gateways obey access rules without an answer for so long, unless a longer time is noted."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO counters VALUES ('rules_lease_ms', ?) "
                "ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
                (lease_ms,),
            )

    @staticmethod
    def _remove(connection: sqlite3.Connection, names: Collection[str]) -> None:
        rows = [(name,) for name in names]
        connection.executemany("INSERT OR IGNORE INTO deletions SELECT id, name FROM topics WHERE name = ?", rows)
        connection.executemany("DELETE FROM topics WHERE name = ?", rows)

    @staticmethod
    def _forget(connection: sqlite3.Connection, topic_ids: Collection[bytes]) -> None:
        connection.executemany("DELETE FROM deletions WHERE id = ?", [(topic_id,) for topic_id in topic_ids])

    @staticmethod
    def _take(connection: sqlite3.Connection, counter: str, count: int) -> int:
        row = connection.execute(
            "UPDATE counters SET value = value + ? WHERE name = ? RETURNING value", (count, counter)
        ).fetchone()
        return int(row[0]) - count

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Make the changes inside durable, all or none; among changes that are made together, with those."""
        with self._lock:
            if self._together:
                yield self._connection
                return
            with _translated():
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:  # a full disk has ended it already
                        self._connection.execute("ROLLBACK")
                    raise


def _outcome(change: Callable[[], object]) -> object:
    try:
        return change()
    except Exception as error:  # of one change; the others are to be made
        return error


def _keep_private(path: Path) -> None:
    """Let nobody else read the file, which has credentials. SQLite gives its other files the mode of this one."""
    os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
    with contextlib.suppress(PermissionError):  # a volume that belongs to another user, and lets us write
        path.chmod(0o600)


@contextlib.contextmanager
def _translated(path: Path | str = FILE_NAME) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        # Errors of sqlite3 itself (a closed connection) have no code.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise _damaged(path, str(error)) from error
        full = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
        raise (CatalogFull if full else CatalogError)(f"catalog: {error}") from error
    except OSError as error:
        raise CatalogError(f"catalog: {error}") from error


def _damaged(path: Path | str, fault: str) -> DamagedCatalog:
    return DamagedCatalog(f"{path} is damaged ({' '.join(fault.split())}): {_WHAT_TO_DO}")
