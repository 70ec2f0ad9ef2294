"""Delta Lake's own classes in the JVM, by py4j; the Python package delta-spark is not needed.

Delta's transaction is its internal API (OptimisticTransaction, DeltaOperations, actions). It is used because it alone
lets a caller see the written files before the commit. All of it that this package uses is in this module.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_etl.errors import OutputError, RunError
from spark_etl.reasons import reason

_PACKAGE = "org.apache.spark.sql.delta"
CONFLICTS = (  # another commit changed what this one had read: the same work on the new version may succeed
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
)


class Delta:
    """Delta's log of one table folder."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session = session
        self.path = path
        self._jvm: Any = session._jvm
        with self._named():
            self._log: Any = getattr(self._jvm, f"{_PACKAGE}.DeltaLog").forTable(session._jsparkSession, path)

    def snapshot(self) -> Any:
        """Return the newest version of the table, read from the log now. RunError: the log cannot be read."""
        with self._named():
            return self._log.update(False, self._none(), self._none())

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the table in a failure to read its log: the JVM's own says which byte was wrong, of no file."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            raise RunError(f"{self.path}: the log of the table cannot be read: {reason(error)}") from error

    def exists(self) -> bool:
        return self.version() >= 0

    def version(self) -> int:
        """Return the newest version of the table; -1 if there is none."""
        return int(self.snapshot().version())

    def files(self) -> int:
        """Return the number of data files of the newest version."""
        return int(self.snapshot().numOfFiles())

    def forget(self) -> None:
        """Drop the JVM's memory of this table, after its folder was repaired."""
        delta_log = getattr(self._jvm, f"{_PACKAGE}.DeltaLog")
        delta_log.invalidateCache(self.session._jsparkSession, self._log.dataPath())
        with self._named():
            self._log = delta_log.forTable(self.session._jsparkSession, self.path)

    def schema(self) -> StructType:
        """Return the columns of the newest version. OutputError: there is no table, or no longer."""
        return self.described()[1]

    def described(self) -> tuple[str, StructType]:
        """Return the id that the table got at its creation, and its columns. OutputError: there is no table."""
        snapshot = self.snapshot()
        if int(snapshot.version()) < 0:
            raise OutputError(f"{self.path}: there is no table")
        with self._named():
            metadata = snapshot.metadata()
            return str(metadata.id()), StructType.fromJson(json.loads(metadata.schemaString()))

    def partition_by(self) -> list[str]:
        with self._named():
            return list(self.snapshot().metadata().getPartitionColumns())

    def version_of(self, app_id: str) -> int:
        """Return the newest txnVersion of an application; -1 if it has never written here."""
        with self._named():
            found = self.snapshot().transactions().get(app_id)
        return int(found.get()) if found.isDefined() else -1

    def transaction(self) -> "Transaction":
        return Transaction(self._jvm, self._log.startTransaction(self._none(), self._none()))

    def create(self, schema: StructType, partition_by: Iterable[str], properties: Mapping[str, str]) -> int:
        """Commit an empty table, and return its version."""
        actions = self._jvm.org.apache.spark.sql.delta.actions
        metadata = actions.Metadata(
            str(uuid4()),
            None,
            None,
            actions.Format("parquet", _map(self._jvm, {})),
            schema.json(),
            _sequence(self._jvm, partition_by),
            _map(self._jvm, properties),
            self._some(self._jvm.java.lang.System.currentTimeMillis()),
        )
        return self.transaction().commit_table(metadata)

    def properties(self) -> dict[str, str]:
        """Return the properties that the table has of its own."""
        converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        with self._named():
            return dict(converters.asJava(self.snapshot().metadata().configuration()))

    def change(self, schema: StructType, properties: Mapping[str, str]) -> int:
        """Commit columns and properties, and return the version."""
        old = self.snapshot().metadata()
        actions = self._jvm.org.apache.spark.sql.delta.actions
        metadata = actions.Metadata(
            old.id(),
            old.name(),
            old.description(),
            old.format(),
            schema.json(),
            old.partitionColumns(),
            _map(self._jvm, properties),
            old.createdTime(),
        )
        return self.transaction().commit_schema(metadata)

    def merge(self, source: DataFrame, condition: str) -> Any:
        """Return Delta's builder of a MERGE of `source` (alias s) into the table (alias t)."""
        table = self._jvm.io.delta.tables.DeltaTable.forPath(source.sparkSession._jsparkSession, self.path)
        return table.alias("t").merge(source.alias("s")._jdf, condition)

    def user_metadata(self, version: int) -> dict[str, Any] | None:
        """Return the JSON object that a version's commit carries, with the commit's time as `committed_ms`.

        None: the commit carries none, or its entry is gone.
        """
        for line in self._entry(version, 2):
            info = json.loads(line).get("commitInfo")
            if info is not None:
                with suppress(ValueError):
                    document = json.loads(info.get("userMetadata") or "null")
                    return {**document, "committed_ms": info["timestamp"]} if isinstance(document, dict) else None
        return None

    def added(self, version: int) -> DataFrame:
        """Return the rows of the files that a version's commit added."""
        actions = getattr(getattr(self._jvm, f"{_PACKAGE}.actions.Action$"), "MODULE$")
        files = [actions.fromJson(line) for line in self._entry(version) if "add" in json.loads(line)]
        frame = self._log.createDataFrame(self.snapshot(), _sequence(self._jvm, files), False, self._none())
        return DataFrame(frame, self.session)

    def _entry(self, version: int, lines_max: int | None = None) -> list[str]:
        """Return the first lines of a version's entry in the log; none if the entry is gone."""
        names = getattr(getattr(self._jvm, f"{_PACKAGE}.util.FileNames$"), "MODULE$")
        entry = names.unsafeDeltaFile(self._log.logPath(), version)
        try:
            lines = self._log.store().read(entry, self._log.newDeltaHadoopConf())
        except Py4JJavaError as error:
            if "FileNotFoundException" in str(error.java_exception.getClass().getName()):
                return []
            raise
        count = int(lines.size()) if lines_max is None else min(int(lines.size()), lines_max)
        return [str(lines.apply(number)) for number in range(count)]

    def has_entry(self, version: int) -> bool:
        names = getattr(getattr(self._jvm, f"{_PACKAGE}.util.FileNames$"), "MODULE$")
        entry = names.unsafeDeltaFile(self._log.logPath(), version)
        return bool(entry.getFileSystem(self._log.newDeltaHadoopConf()).exists(entry))

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()

    def _some(self, value: Any) -> Any:
        return self._jvm.scala.Option.apply(value)


class Transaction:
    """One transaction of Delta's: files first, commit last."""

    def __init__(self, jvm: Any, transaction: Any) -> None:
        self._jvm = jvm
        self._transaction = transaction
        self._actions: Any = _sequence(jvm, [])

    def version_of(self, app_id: str) -> int:
        """Return an application's newest txnVersion. The commit fails if another one of that application came first."""
        return int(self._transaction.txnVersion(app_id))

    def write(self, rows: DataFrame) -> list[dict[str, Any]]:
        """Write the rows' files with statistics, and return each one as the log will name it, its path decoded."""
        self._actions = self._transaction.writeFiles(rows._jdf)
        added = [json.loads(self._actions.apply(number).json())["add"] for number in range(self._actions.size())]
        return [{**file, "path": unquote(file["path"]), "stats": json.loads(file["stats"])} for file in added]

    def commit(self, app_id: str, version: int, user_metadata: str) -> int:
        """Commit the files under an application's version, and return the version of the table."""
        some = self._jvm.scala.Option.apply
        none = self._jvm.scala.Option.empty()
        now = self._jvm.java.lang.System.currentTimeMillis()
        mark = self._jvm.org.apache.spark.sql.delta.actions.SetTransaction(app_id, version, some(now))
        operation = getattr(self._jvm, f"{_PACKAGE}.DeltaOperations$Write")
        append = self._jvm.org.apache.spark.sql.SaveMode.Append
        write = operation(append, none, none, some(user_metadata))
        return int(self._transaction.commit(self._actions.appended(mark), write, _map(self._jvm, {})))

    def commit_table(self, metadata: Any) -> int:
        """Commit a new table, and return its version. Delta computes no state for it, which took four Spark jobs."""
        created = getattr(self._jvm, f"{_PACKAGE}.DeltaOperations$CreateTable")
        self._transaction.updateMetadata(metadata, False)
        operation = created(metadata, False, False, self._jvm.scala.Option.empty())
        return int(self._transaction.commit(self._actions, operation, _map(self._jvm, {})))

    def commit_schema(self, metadata: Any) -> int:
        manual = getattr(getattr(self._jvm, f"{_PACKAGE}.DeltaOperations$ManualUpdate$"), "MODULE$")
        self._transaction.updateMetadata(metadata, False)
        return int(self._transaction.commit(self._actions, manual, _map(self._jvm, {})))


class CommitObserver:
    """Delta's TransactionExecutionObserver: calls `before` when a command's files are written, `after` when it is
    committed, and `given_up` when it failed. Python implements the interface; py4j calls it in the command's thread.
    """

    def __init__(self, before: Callable[[], None], after: Callable[[], None], given_up: Callable[[], None]) -> None:
        self._before = before
        self._after = after
        self._given_up = given_up

    @contextmanager
    def installed(self, session: SparkSession) -> Iterator[None]:
        """Observe every transaction that this thread begins."""
        jvm: Any = session._jvm
        ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]
        observers = getattr(getattr(jvm, f"{_PACKAGE}.TransactionExecutionObserver$"), "MODULE$")
        earlier = observers.getObserver()
        observers.setObserver(self)
        try:
            yield
        finally:
            observers.setObserver(earlier)

    def startingTransaction(self, start: JavaObject) -> Any:  # noqa: N802
        return start.apply()

    def preparingCommit(self, prepare: JavaObject) -> Any:  # noqa: N802
        self._before()
        return prepare.apply()

    def beginDoCommit(self) -> None:  # noqa: N802
        pass

    def beginBackfill(self) -> None:  # noqa: N802
        pass

    def beginPostCommit(self) -> None:  # noqa: N802
        pass

    def transactionCommitted(self) -> None:  # noqa: N802
        self._after()

    def transactionAborted(self) -> None:  # noqa: N802
        self._given_up()

    def createChild(self) -> "CommitObserver":  # noqa: N802
        return self

    def advanceToNextThreadObserver(self) -> None:  # noqa: N802
        pass

    class Java:
        implements = ["org.apache.spark.sql.delta.TransactionExecutionObserver"]  # noqa: RUF012  (py4j reads a list)


def is_conflict(error: Py4JJavaError) -> bool:
    return any(name in str(error.java_exception.getClass().getName()) for name in CONFLICTS)


def _sequence(jvm: Any, items: Iterable[Any]) -> Any:
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    return converters.asScala(jvm.java.util.ArrayList(list(items))).toSeq()


def _map(jvm: Any, items: Mapping[str, str]) -> Any:
    return jvm.PythonUtils.toScalaMap(dict(items))
