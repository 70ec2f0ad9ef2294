"""Good rows in a table of PostgreSQL, each once.

The steps of a batch; no row passes through Python, and a driver may die after any step:

1. a batch that `etl_batches` already has is done;
2. Spark's executors write the rows to a staging table of this attempt. Staging tables of earlier attempts are dropped,
   which ends the writes of an executor that outlived its driver;
3. the staged rows are counted. A task that Spark ran twice may have staged its rows twice. That attempt fails, to be
   made once more;
4. one transaction takes the batch's number in `etl_batches`, moves the staged rows to the table, and drops the staging
   table. Of two attempts that arrive here together, the second waits for the first and then changes nothing.

`mode: upsert` replaces the row of the same keys (ON CONFLICT); of several rows of a batch the last one counts
(upsert.py). A row with `_deleted` deletes the row of its keys. With `envelope: debezium` the rows are change
events (change_rows.py).

A row that does not fit becomes a dead letter of the stage `sink`, and its neighbours go in. The server refuses some for
their values (moves.py), with its reason; the others are found before:

    constraint, value   the server: a constraint, a trigger, or a value that a column does not take
    null_column         null in a NOT NULL column or in a key
    zero_byte           a text with U+0000, which PostgreSQL cannot store
    out_of_range        a date or time that it or JDBC's calendar does not have
    key_too_long        keys of more bytes than a unique index holds
    replayed            mode: upsert; a record that came back, in a table that cannot tell whether its row is later
"""

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from secrets import token_hex

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.config import PostgresSinkConfig
from spark_etl.decode import replayed
from spark_etl.errors import ConfigError, RunError
from spark_etl.kafka.ranges import Ranges
from spark_etl.sinks.dead_letters import DeadLetters
from spark_etl.sinks.postgres import batches, change_rows, moves
from spark_etl.sinks.postgres.columns import SESSION
from spark_etl.sinks.postgres.connection import Connection, Database, RowRefusedError
from spark_etl.sinks.postgres.table import Table, item, quoted_name, staged, unfit
from spark_etl.sinks.rows import DELETED, data_columns, misfits
from spark_etl.sinks.topics import observed_writes

CREATE_SECONDS = 30  # that another pipeline or a user may keep a table locked
_CREATING = "DO $$ BEGIN PERFORM pg_advisory_xact_lock(1702128752); END $$"  # two pipelines create in turn
#: The file may name the table with its schema or without.
_FULL_NAME = """
SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE pg_class.oid = to_regclass(?)"""
_DATABASE = "SELECT current_database() || ' ' || pg_postmaster_start_time()"  # of all servers, by any address


class StagingError(RunError):
    """A staging table has other rows than the batch."""

    transient = True


class AlteredError(RunError):
    """The table was altered during the run: it is compared again with the rows before the next try."""

    transient = True


@dataclass(frozen=True, slots=True)
class _Staged:
    """A staging table: its name, its rows, and the good rows that they are of, with messages of a change stream."""

    name: str
    rows: int
    read: int


class Postgres:
    """One table of a PostgreSQL database as a sink. `schema` is that of the good rows."""

    def __init__(
        self,
        session: SparkSession,
        config: PostgresSinkConfig,
        schema: StructType,
        pipeline: str,
        letters: DeadLetters,
    ) -> None:
        self._config = config
        self._database = Database(session, config.url, config.user, config.password, f"etl {pipeline}")
        self._events = config.envelope == "debezium"
        self._schema = change_rows.schema(config, schema) if self._events else schema
        self._letters = letters
        self._table: Table | None = None
        self._target = config.table
        self._held_by = ""  # the database
        self._pipeline = pipeline
        self._known = ""  # the application of the last batch that this run wrote or found
        self._lock: batches.RunLock | None = None  # of a run
        self._lake = ""  # the place of the pipeline's Delta table
        self.rows_read: int | None = None
        self.rows_written: int | None = None

    @property
    def name(self) -> str:
        return f"postgres:{self._database.address}/{self._config.table}"

    def ask(self) -> None:
        """Raise RunError if the database is away, OutputError if it refuses the login."""
        with self._database.connected():
            pass

    def check(self) -> None:
        """Create the table unless it exists; compare its columns with the rows.

        Raises RunError if the database is away, OutputError if it refuses, ConfigError if a column does not fit.
        """
        if DELETED in self._schema.names and self._config.mode != "upsert":
            raise ConfigError(f"sink {self._config.table}: deletions need `mode: upsert`")
        structured = "_key" in self._schema.names and isinstance(self._schema["_key"].dataType, StructType)
        if DELETED in self._schema.names and len(self._config.keys) > 1 and not structured and not self._events:
            raise ConfigError(f"sink {self._config.table}: deletions by several keys need `decode.key: json`")
        for name in [*self._columns(), *self._config.keys, *self._config.order_by]:
            if name not in self._schema.names:
                raise ConfigError(f"sink {self._config.table}: rows have no column {name}")
        rows = StructType([self._schema[name] for name in self._columns()])
        with self._database.connected() as connection:
            connection.execute(f"SET LOCAL lock_timeout = '{CREATE_SECONDS}s'")
            connection.execute(_CREATING)
            batches.create(connection)
            replays = replayed.COLUMN in self._schema.names
            kind = None if self._events else self._schema["_key"].dataType
            self._table = Table.checked(connection, self._config, rows, record_key=kind, replays=replays)
            self._target = connection.value(_FULL_NAME, self._table.name) or self._target
            self._held_by = connection.value(_DATABASE) or ""
            connection.commit()

    @property
    def place(self) -> tuple[str, str]:
        """The database and the table with its schema, once `check` has run: equal for each way to name them."""
        return self._held_by, self._target

    def claim(self, position: batches.Position) -> None:
        """Hold the table as the one run of its pipeline, until `release`. `check` must have run before.

        OutputError: another run writes to it, or it does not belong to the checkpoint.
        """
        assert self._table is not None
        self._lake = position.table
        self._lock = batches.RunLock(self._database, self._pipeline, self._target, self.name)
        self._lock.take()
        with self._database.connected() as connection:
            batches.check_belongs(connection, position, self._table.name, self._target, self.name)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def holds(self, batch: BatchPlace) -> bool:
        """Return whether the table has a batch. OutputError: it lacks one before, or has it with other records."""
        with self._database.connected() as connection:
            last = batches.held(connection, batch.pipeline, batch.query_id, self._target)
        self.rows_read = None
        self.rows_written = last.rows if last is not None and last.batch == batch.batch_id else None
        return batches.check_follows(last, batch, self.name, self._known == batch.app_id, self._lake)

    def has(self, batch: BatchPlace, begun: datetime, spans: Ranges) -> bool:  # noqa: ARG002
        """Return whether the table has a batch."""
        return self.holds(batch)

    def write(self, rows: DataFrame, batch: BatchPlace, begun_before: datetime | None) -> int:
        """Write the good rows of a batch; return the number of rows that did not fit and became dead letters."""
        table = self._table
        assert table is not None
        if self._lock is not None:
            self._lock.take()
        if self.holds(batch):
            self._known = batch.app_id
            return 0
        staging = self._new_staging(table, batch)
        given = Observation()  # with messages, which change_rows leaves out
        rows = rows.observe(given, F.count(F.lit(1)).alias("rows"))
        rows = change_rows.opened(rows, self._config) if self._events else rows
        judged = rows.withColumn("_unfit", unfit(table, DELETED in rows.columns))
        if begun_before is not None:
            judged = self._with_letters(judged, begun_before)
        counted = Observation()
        observed = judged.observe(
            counted,
            F.count(F.lit(1)).alias("rows"),
            F.count("_unfit").alias("unfit"),
        )
        with observed_writes(rows.sparkSession) if begun_before is not None else nullcontext():
            self._database.append(staged(observed.where("_unfit IS NULL"), table), staging)
        unfit_rows, read = int(counted.get["unfit"]), int(given.get["rows"])
        if unfit_rows:
            self._refuse(judged.where("_unfit IS NOT NULL"), begun_before)
        fitting = judged.where("_unfit IS NULL")
        staged_rows = _Staged(staging, int(counted.get["rows"]) - unfit_rows, read - unfit_rows)
        refused = self._commit(table, staged_rows, batch, fitting, begun_before)
        self._known = batch.app_id
        self.rows_read, self.rows_written = read, read - unfit_rows - refused
        return unfit_rows + refused

    def _with_letters(self, judged: DataFrame, begun: datetime) -> DataFrame:
        """Refuse the rows of which an earlier try made letters: the table may take them by now."""
        letters = F.broadcast(self._letters.of_sink(self.name, begun))
        before = F.when(
            F.col("of_topic").isNotNull(),
            F.struct(F.col("of_rule").alias("rule"), F.col("of_message").alias("message")),
        )
        refused = judged.join(letters, _same_row(judged), "left")
        unfit_ = F.coalesce(before, "_unfit")  # mutant: letters-stay-letters
        return refused.withColumn("_unfit", unfit_).drop(*letters.columns)

    def _columns(self) -> list[str]:
        return list(self._config.columns or data_columns(self._schema.names))

    def _new_staging(self, table: Table, batch: BatchPlace) -> str:
        """Create an empty staging table of this attempt, and drop those of earlier attempts."""
        owner = sha256(f"{batch.app_id} {self._config.table}".encode()).hexdigest()[:16]
        name = f"etl_staging_{owner}_{token_hex(6)}"
        with self._database.connected() as connection:
            for old in connection.column(
                "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE tablename LIKE ?"
                " AND schemaname = current_schema()",
                f"etl\\_staging\\_{owner}\\_%",
            ):
                connection.execute(f"DROP TABLE IF EXISTS {old}")
            connection.execute(f"CREATE UNLOGGED TABLE {name} ({table.staging_columns})")
            connection.commit()
        return name

    def _refuse(self, rows: DataFrame, begun_before: datetime | None) -> None:
        message = F.concat(F.lit(f"table {self._config.table} cannot hold the row: "), F.col("_unfit.message"))
        self._letters.write(misfits(rows, self.name, F.col("_unfit.rule"), message), begun_before)

    def _refuse_broken(self, rows: DataFrame, refused: list[moves.Refused], begun_before: datetime | None) -> None:
        """Write the letters of rows that the server refused."""
        found = [(each.topic, each.partition, each.offset, each.item, each.rule, each.reason) for each in refused]
        kinds = "of_topic string, of_partition int, of_offset bigint, of_item int, of_rule string, of_reason string"
        places = F.broadcast(rows.sparkSession.createDataFrame(found, kinds))
        broken = rows.join(places, _same_row(rows))
        message = F.concat(F.lit(f"table {self._config.table} refuses the row: "), F.col("of_reason"))
        self._letters.write(misfits(broken, self.name, F.col("of_rule"), message), begun_before)

    def _commit(
        self,
        table: Table,
        staging: _Staged,
        batch: BatchPlace,
        rows: DataFrame,
        begun_before: datetime | None,
    ) -> int:
        """Move the staged rows and note the batch's number, in one transaction; return the number of refused rows.

        A driver that dies after the letters of refused rows finds them at the next try, and commits then.
        """
        again = list((batch.commit or {}).get("created_again", ()))
        with self._database.connected() as connection:
            found = int(connection.value(f"SELECT count(*) FROM {staging.name}") or 0)
            if found != staging.rows:
                raise StagingError(f"{self._config.table}: {staging.rows} rows to write, {found} staged")
            try:
                if self._taken(connection, batch, staging.read):
                    moves.moved(connection, table, staging.name, again)
                self._check_unaltered(connection, table)
                connection.execute(f"DROP TABLE {staging.name}")
                connection.commit()
                return 0
            except RowRefusedError:
                connection.rollback()
            refused: list[moves.Refused] = []
            if self._taken(connection, batch, staging.read):
                refused = moves.moved_in_parts(connection, table, staging.name, again)
            self._check_unaltered(connection, table)
            connection.execute(f"DROP TABLE {staging.name}")
            if refused:
                batches.count_refused(connection, batch, self._target, len(refused))
                self._refuse_broken(rows, refused, begun_before)
            connection.commit()
            return len(refused)

    def _check_unaltered(self, connection: Connection, table: Table) -> None:
        """Raise AlteredError if a column is not as it was compared with the rows.

        Its own conversions would change values. Ask after the move, whose lock lets nobody alter the table.
        """
        if not table.is_as_checked(connection):  # mutant: altered-table-seen
            raise AlteredError(f"table {self._config.table} was altered during the run")

    def _taken(self, connection: Connection, batch: BatchPlace, rows: int) -> bool:
        """Begin the transaction of a batch; return False if the table has the batch."""
        connection.execute(SESSION)
        return batches.take(connection, batch, self._target, rows)


def _same_row(rows: DataFrame) -> list[Column]:
    """Return the conditions that a row is the one that the columns `of_…` name."""
    same = [F.col(f"_{name}") == F.col(f"of_{name}") for name in ("topic", "partition", "offset")]
    return [*same, item(rows) == F.col("of_item")]


def last_batch(session: SparkSession, config: PostgresSinkConfig, pipeline: str) -> batches.Held | None:
    """Return the last batch of the query that wrote a table last; None if no query of the pipeline did.

    Raises RunError if the database is away, OutputError if it refuses.
    """
    database = Database(session, config.url, config.user, config.password, f"etl {pipeline}")
    with database.connected() as connection:
        if connection.value("SELECT to_regclass(?)", batches.BATCHES) is None:
            return None
        batches.create(connection)
        connection.commit()
        target = connection.value(_FULL_NAME, quoted_name(config.table)) or config.table
        query = batches.newest_query(connection, pipeline, target)
        return batches.held(connection, pipeline, query, target) if query is not None else None
