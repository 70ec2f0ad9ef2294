"""Good rows in a table of PostgreSQL, each once.

The steps of a batch; no row passes through Python, and a driver may die after any step:

1. a batch that `etl_batches` already has is done;
2. Spark's executors write the rows to a staging table of this attempt; staging tables of earlier attempts are dropped,
   which ends the writes of an executor that outlived its driver;
3. the staged rows are counted: a task that Spark ran twice may have staged its rows twice, and that attempt fails, to
   be made once more;
4. one transaction takes the batch's number in `etl_batches`, moves the staged rows to the table, and drops the staging
   table. Of two attempts that arrive here together, the second waits for the first and then changes nothing.

`mode: upsert` replaces the row of the same keys (ON CONFLICT); of several rows of a batch the one with the highest
offset counts. A row with `_deleted` deletes the row of its keys.

A row that no column of the table can hold becomes a dead letter of the stage `sink`: rule `null_column` (null in a NOT
NULL column or in a key), `zero_byte` (a text with U+0000, which PostgreSQL cannot store), `out_of_range` (a date or
time that it or JDBC's calendar does not have) or `key_too_long` (keys of more bytes than a unique index holds).
"""

from datetime import datetime
from hashlib import sha256
from secrets import token_hex

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl.config import PostgresSinkConfig
from spark_etl.errors import ConfigError, RunError
from spark_etl.run.batches import BatchPlace
from spark_etl.sinks.dead_letters import DeadLetters
from spark_etl.sinks.postgres_connection import Database
from spark_etl.sinks.postgres_table import Table, staged, unfit
from spark_etl.sinks.rows import DELETED, misfits

BATCHES = "etl_batches"
CREATE_SECONDS = 30  # that another pipeline or a user may keep a table locked
_CREATING = "DO $$ BEGIN PERFORM pg_advisory_xact_lock(1702128752); END $$"  # two pipelines create in turn
_CREATE_BATCHES = f"""
CREATE TABLE IF NOT EXISTS {BATCHES} (
  app_id text NOT NULL, target text NOT NULL, batch bigint NOT NULL, rows bigint NOT NULL,
  committed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (app_id, target))"""
#: The file may name the table with its schema or without.
_FULL_NAME = """
SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE pg_class.oid = to_regclass(?)"""
_TAKE_BATCH = f"""
INSERT INTO {BATCHES} AS held (app_id, target, batch, rows) VALUES (?, ?, ?, ?)
ON CONFLICT (app_id, target) DO UPDATE SET batch = EXCLUDED.batch, rows = EXCLUDED.rows, committed = now()
WHERE held.batch < EXCLUDED.batch"""


class StagingError(RunError):
    """A staging table has other rows than the batch."""

    transient = True


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
        self._schema = schema
        self._letters = letters
        self._table: Table | None = None
        self._target = config.table

    @property
    def name(self) -> str:
        return f"postgres:{self._database.address}/{self._config.table}"

    def check(self) -> None:
        """Create the table unless it exists; compare its columns with the rows.

        Raises RunError if the database is away, OutputError if it refuses, ConfigError if a column does not fit.
        """
        if DELETED in self._schema.names and self._config.mode != "upsert":
            raise ConfigError(f"sink {self._config.table}: deletions need `mode: upsert`")
        structured = "_key" in self._schema.names and isinstance(self._schema["_key"].dataType, StructType)
        if DELETED in self._schema.names and len(self._config.keys) > 1 and not structured:
            raise ConfigError(f"sink {self._config.table}: deletions by several keys need `decode.key: json`")
        for name in self._columns():
            if name not in self._schema.names:
                raise ConfigError(f"sink {self._config.table}: rows have no column {name}")
        rows = StructType([self._schema[name] for name in self._columns()])
        with self._database.connected() as connection:
            connection.execute(f"SET LOCAL lock_timeout = '{CREATE_SECONDS}s'")
            connection.execute(_CREATING)
            connection.execute(_CREATE_BATCHES)
            self._table = Table.checked(connection, self._config, rows, record_key=self._schema["_key"].dataType)
            self._target = connection.value(_FULL_NAME, self._table.name) or self._target
            connection.commit()

    def write(self, rows: DataFrame, batch: BatchPlace, begun_before: datetime | None) -> int:
        """Write the good rows of a batch; return the number of rows that did not fit and became dead letters."""
        table = self._table
        assert table is not None
        if self._holds(batch):
            return 0
        staging = self._new_staging(table, batch)
        judged = rows.withColumn("_unfit", unfit(table, DELETED in rows.columns))
        counted = Observation()
        observed = judged.observe(
            counted,
            F.count(F.lit(1)).alias("rows"),
            F.count("_unfit").alias("unfit"),
        )
        self._database.append(staged(observed.where("_unfit IS NULL"), table), staging)
        unfit_rows = int(counted.get["unfit"])
        if unfit_rows:
            self._refuse(judged.where("_unfit IS NOT NULL"), begun_before)
        self._commit(table, staging, batch, int(counted.get["rows"]) - unfit_rows)
        return unfit_rows

    def _columns(self) -> list[str]:
        return list(self._config.columns or (name for name in self._schema.names if not name.startswith("_")))

    def _holds(self, batch: BatchPlace) -> bool:
        with self._database.connected() as connection:
            held = connection.value(
                f"SELECT batch FROM {BATCHES} WHERE app_id = ? AND target = ?", batch.app_id, self._target
            )
        return held is not None and int(held) >= batch.batch_id

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

    def _commit(self, table: Table, staging: str, batch: BatchPlace, expected: int) -> None:
        """Move the staged rows and note the batch's number, in one transaction."""
        with self._database.connected() as connection:
            found = int(connection.value(f"SELECT count(*) FROM {staging}") or 0)
            if found != expected:
                raise StagingError(f"{self._config.table}: {expected} rows to write, {found} staged")
            taken = connection.execute(_TAKE_BATCH, batch.app_id, self._target, batch.batch_id, expected)
            if taken:
                for statement in table.moves(staging):
                    connection.execute(statement)
            connection.execute(f"DROP TABLE {staging}")
            connection.commit()
