"""A Delta Lake table that one pipeline writes, a batch at a time and each batch once.

    with LakeTable.opened(session, sink, schema_of_good_rows) as table:      # ConfigError before anything is read
        if not table.holds(app_id, batch_id):
            table.write(rows, app_id, batch_id, accept)

The order of a batch. A driver may die after any step, and the next try of the batch ends in the same state:

1. the data files are written (Delta's own writer, with statistics): no reader counts them;
2. `accept` compares the number of rows written with the expected one, and returns the commit's metadata;
3. the data files are synced, then one log entry names them together with (app_id, batch_id): the batch counts;
4. the log entry is synced. The caller may commit its offsets.

(app_id, batch_id) are Delta's txnAppId and txnVersion, which survive compaction. The metadata is a JSON object in the
commit's userMetadata: {"operation": "batch", …}. A commit by a command carries the last batch's as {"last": {…}}.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

from spark_etl.checkpoint import notes
from spark_etl.config.sinks import DeltaSinkConfig
from spark_etl.errors import ConfigError, OutputError
from spark_etl.lake import changes, choice, columns, widening
from spark_etl.lake.delta import Delta, is_conflict
from spark_etl.lake.folder import Folder

BATCH = "batch"
#: The record of a row. The time tells a topic from one that was created again.
PLACE = ("_topic", "_partition", "_offset", "_timestamp")
CONFLICT_TRIES = 5
#: Tasks of a core that write a partitioned batch. A folder is written by one task, and folders differ in size. More
#: than WRITING_TASKS_MAX are not made unless the session asks for them: each one delays a small batch by milliseconds.
WRITING_TASKS_OF_CORE = 4
WRITING_TASKS_MAX = 32
NUMBER_OF_STATISTICS = "delta.dataSkippingNumIndexedCols"
STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"  # which comes before the number
STATISTICS_MAX = 32  # Delta's default
WITH_STATISTICS = (*columns.ORDERED, StringType)
STATISTICS = "spark.databricks.delta.stats.collect"
PROPERTIES = {
    # Every commit lists the log's folder; at a commit every 10 s, 30 days (Delta's default) would be 260,000 entries.
    "delta.logRetentionDuration": "interval 7 days",
}

Accept = Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: the version of the table, the rows read from the batch, the data files written (0: unknown)."""

    version: int
    rows: int
    files: int


class LakeTable:
    """The table of one `delta` sink. Use it only inside `opened()` or `existing()`."""

    def __init__(self, session: SparkSession, config: DeltaSinkConfig) -> None:
        self._session = session
        self.config = config
        self.location = notes.absolute(config.path)
        self.delta = Delta(session, self.location)
        self.folder = Folder(session, notes.local_path(config.path), self.delta)
        self._versions: dict[str, int] = {}
        self._schema = self._wanted = StructType()  # of the table as this driver knows it, and of the pipeline
        self._id = ""  # of the table
        self._new = False  # whether this driver made the table
        self.repaired: list[str] = []
        self.use_codec(session)

    @classmethod
    @contextmanager
    def opened(cls, session: SparkSession, config: DeltaSinkConfig, rows: StructType) -> Iterator["LakeTable"]:
        """Open the table as its one writer; create it, or add new columns to it.

        `rows` is the schema of the rows that `write` will get. Raise ConfigError if they do not fit the table, or if
        Delta's statistics are off; OutputError if another driver writes here or the folder is of another kind.
        """
        if session.conf.get(STATISTICS, "true") != "true":
            raise ConfigError(f"{STATISTICS} must be true: a batch is checked against the rows that its files count")
        table = cls(session, config)
        table.folder.check_empty_or_table()
        with table.folder.driven() as table.repaired:
            table._prepare(choice.target(config, rows))
            yield table

    @classmethod
    def existing(cls, session: SparkSession, config: DeltaSinkConfig) -> "LakeTable":
        """Return the table for a command next to a running pipeline. Raise OutputError if there is none."""
        table = cls(session, config)
        if not table.delta.exists():
            raise OutputError(f"{table.location}: there is no table")
        return table

    def use_codec(self, session: SparkSession) -> None:
        """Let a session write files as the sink says: tables of a run may differ."""
        session.conf.set("spark.sql.parquet.compression.codec", self.config.compression)

    def held(self, app_id: str) -> int:
        """Return the newest batch of an application in the table, -1 without one."""
        if self.folder.root is None:
            return self.delta.version_of(app_id)
        if app_id not in self._versions:
            # To know it, Delta computes the state of the whole log. A driver that made the table, and holds the
            # folder's lock since then, has written every batch.
            self._versions[app_id] = -1 if self._new else self.delta.version_of(app_id)
        return self._versions[app_id]

    def holds(self, app_id: str, version: int) -> bool:
        """Return whether a batch, or a later one of the same application, is in the table."""
        return self.held(app_id) >= version

    def write(self, rows: DataFrame, app_id: str, version: int, accept: Accept) -> Commit:
        """Write what the table takes of a batch's good rows, and commit it, durable when this returns.

        `accept` gets the number of rows taken; it raises to give the batch up.
        """
        for session in (self._session, rows.sparkSession):
            self.use_codec(session)
        rows = choice.chosen(self.config, rows)
        if self.holds(app_id, version):
            raise OutputError(f"{self.location}: batch {version} of {app_id} is there already")
        write = self._merge if self.config.mode == "upsert" else self._append
        commit = write(rows, app_id, version, accept)
        self._versions[app_id] = version
        return commit

    def last_metadata(self) -> Mapping[str, Any] | None:
        """Return the metadata that `accept` returned for the newest batch; None if the log remembers none."""
        carried: Mapping[str, Any] | None = None
        version = self.delta.version()
        while version >= 0 and self.delta.has_entry(version):
            document = self.delta.user_metadata(version) or {}
            if document.get("operation") == BATCH:
                return document
            if carried is None:
                carried = document.get("last")
            version -= 1
        return carried

    def rows_of(self, query_id: str, batch_id: int) -> DataFrame | None:
        """Return the rows of a batch as its commit wrote them; None if they are not in the log, or were merged."""
        if self.config.mode != "append":
            return None
        version = self.delta.version()
        while version >= 0 and self.delta.has_entry(version):
            document = self.delta.user_metadata(version) or {}
            if document.get("operation") == BATCH:
                same = (document.get("query"), document.get("batch")) == (query_id, batch_id)
                return self.delta.added(version) if same else None
            version -= 1
        return None

    def among(self, rows: DataFrame, condition: str, how: Literal["left_semi", "left_anti"]) -> DataFrame:
        """Return the rows whose records are in the table (`left_semi`) or are not (`left_anti`).

        `condition` is an SQL condition that holds for the table's rows of all these records.
        """
        places = [f"{name} AS known{name}" for name in PLACE]
        known = rows.sparkSession.read.format("delta").load(self.location).where(condition).selectExpr(*places)
        same = F.lit(True)
        for name in PLACE:
            same = same & F.col(name).eqNullSafe(F.col(f"known{name}"))
        return rows.join(known, same, how)

    def check(self, wanted: StructType) -> StructType:
        """Return the table's schema with the additions of the pipeline's. Raise ConfigError if they do not fit."""
        present, partition_by = self.delta.partition_by(), list(self.config.partition_by)
        if present != partition_by:
            raise ConfigError(
                f"sinks.delta {self.location}: the table is partitioned by {present}, the pipeline says {partition_by}"
            )
        try:
            return columns.merged(self.delta.schema(), wanted, widen="numbers" in self.config.widen)
        except ConfigError as error:
            raise ConfigError(f"sinks.delta {self.location}: {error}") from None

    def _prepare(self, wanted: StructType) -> None:
        partition_by = list(self.config.partition_by)
        for name in [*partition_by, *self.config.keys, *self.config.order_by]:
            if name not in wanted.names:
                raise ConfigError(f"sinks.delta {self.location}: no column {name!r} to partition, merge or order by")
        if not self.delta.exists():
            properties = {**PROPERTIES, **self._statistics(wanted)}
            self.folder.committed(lambda: self.delta.create(wanted, partition_by, properties))
            self._new = True
        else:
            old, new = self.delta.schema(), self.check(wanted)
            properties = self._properties(old, new)
            if widening.is_needed(old, new):
                self._rewrite(new)
            if (new, properties) != (self.delta.schema(), self.delta.properties()):
                self.folder.committed(lambda: self.delta.change(new, properties))
        self._wanted, (self._id, self._schema) = wanted, self.delta.described()

    def _statistics(self, schema: StructType) -> dict[str, str]:
        """Return the properties that say of which columns the table has statistics."""
        given = self.config.statistics
        if isinstance(given, int):
            return {NUMBER_OF_STATISTICS: str(given)}
        own = StructType([field for field in schema.fields if field.name not in self.config.partition_by])
        if given is None:
            keys = {*self.config.keys, *self.config.order_by}
            of_keys = [field for field in own.fields if field.name in keys]
            cheap = columns.with_statistics(own)
            kept = cheap[:STATISTICS_MAX] + columns.with_statistics(StructType(of_keys), WITH_STATISTICS)
            kept = list(dict.fromkeys(kept))
        else:
            kept = []
            for name in given:
                if name not in own.names:
                    raise ConfigError(f"sinks.delta {self.location}: no column {name!r} to have statistics of")
                found = columns.with_statistics(StructType([own[name]]), WITH_STATISTICS)
                if not found:
                    kind = own[name].dataType.simpleString()
                    raise ConfigError(f"sinks.delta {self.location}: Delta has no statistics of {name!r}, a {kind}")
                kept += found
        return {STATISTICS_COLUMNS: ",".join(kept)} if kept else {NUMBER_OF_STATISTICS: "0"}

    def _properties(self, old: StructType, new: StructType) -> dict[str, str]:
        """Return the table's properties. They stay without `statistics`, but our choice extends to added columns."""
        present = self.delta.properties()
        own = {name: present[name] for name in (NUMBER_OF_STATISTICS, STATISTICS_COLUMNS) if name in present}
        if self.config.statistics is None and own != self._statistics(old):
            return present
        others = {name: value for name, value in present.items() if name not in own}
        return {**others, **self._statistics(new)}

    def _rewrite(self, new: StructType) -> None:
        """Write all rows again with other types. The commit carries the last batch's metadata."""
        partition_by = self.delta.partition_by()
        self.use_codec(self._session)
        try:
            rows = widening.widened(self._session.read.format("delta").load(self.location), new)
        except ConfigError as error:
            raise ConfigError(f"sinks.delta {self.location}: {error}") from None
        if partition_by:
            rows = rows.repartition(_writing_tasks(self._session), *partition_by)
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        carried = {"operation": "widen", "last": self.last_metadata()}
        with self.folder.command(self._session, lambda: carried, dumped, lock_first=True):
            writer.partitionBy(*partition_by).save(self.location)

    def _columns(self) -> StructType:
        """Return the table's columns; raise an EtlError if another writer exchanged it or them so that rows do not fit.

        Ask after the transaction has begun: its commit fails after a later change.
        """
        table, schema = self.delta.described()
        if table != self._id:  # mutant: same-table
            raise OutputError(f"{self.location}: another table has come into its place during the run")
        if schema != self._schema:
            if self.check(self._wanted) != schema:
                raise ConfigError(f"sinks.delta {self.location}: another writer removed columns during the run")
            self._schema = schema
        return schema

    def _append(self, rows: DataFrame, app_id: str, version: int, accept: Accept) -> Commit:
        transaction = self.delta.transaction()
        fitted = rows.select(*columns.fitted(self._columns(), rows.schema))
        if self.config.partition_by:
            tasks = _writing_tasks(rows.sparkSession)
            fitted = fitted.repartition(tasks, *self.config.partition_by)  # one file for each folder and batch
        if self.folder.root is None and transaction.version_of(app_id) >= version:
            raise OutputError(f"{self.location}: another driver has written batch {version} of {app_id}")
        files = transaction.write(fitted)
        names = [file["path"] for file in files]
        written = sum(int(file["stats"]["numRecords"]) for file in files)
        try:
            metadata = dumped({**accept(written), "operation": BATCH})
        except BaseException:
            self.folder.discard(names)
            raise
        self.folder.sync_files(names)
        committed = self.folder.committed(lambda: transaction.commit(app_id, version, metadata))
        return Commit(committed, written, len(files))

    def _merge(self, rows: DataFrame, app_id: str, version: int, accept: Accept) -> Commit:
        schema = self._columns()
        with changes.collapsed(rows, self.config, schema, accept) as (source, count, accepted):
            metadata = {**accepted, "operation": BATCH}
            for attempt in range(1, CONFLICT_TRIES + 1):
                try:
                    self._merge_once(source, app_id, version, metadata, schema)
                    break
                except Py4JJavaError as error:
                    if attempt == CONFLICT_TRIES or not is_conflict(error):
                        raise
        return Commit(self.delta.version(), count, 0)

    def _merge_once(
        self, source: DataFrame, app_id: str, version: int, metadata: Mapping[str, Any], schema: StructType
    ) -> None:
        session = source.sparkSession
        mark = {"txnAppId": app_id, "txnVersion": str(version)}
        for key, value in mark.items():
            session.conf.set(f"spark.databricks.delta.write.{key}", value)
        try:
            with self.folder.command(session, lambda: metadata, dumped):
                builder = self.delta.merge(source, changes.same_key(self.config.keys))
                again = metadata.get("created_again", ())
                changes.with_actions(builder, schema, self.config, again).execute()
        finally:
            for key in mark:
                session.conf.unset(f"spark.databricks.delta.write.{key}")


def _writing_tasks(session: SparkSession) -> int:
    chosen = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    return max(chosen, min(WRITING_TASKS_OF_CORE * session.sparkContext.defaultParallelism, WRITING_TASKS_MAX))


def dumped(metadata: Mapping[str, Any]) -> str:
    return json.dumps(metadata, sort_keys=True, separators=(",", ":"))
