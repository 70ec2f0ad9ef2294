"""The table `etl_batches` of a database: the last batch of each query in each table, and the lock of a run.

Invariant: a batch is in a PostgreSQL output exactly once, and none before it is missing.

A row has the batch's number and its rows. As JSON, `place` has what `recover` needs: offsets, the cluster, topic ids.
The row changes in the transaction that moves the batch's rows. `check_belongs` refuses another checkpoint, an older
one, and a database that was restored, before any record is read. `check_follows` refuses a batch if the one before is
missing, or if the table has other records under its number.

A run holds an advisory lock of its session for each table, so that two runs at once do not write. A restart of the
server ends the lock; the next batch takes it again.
"""

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.errors import OutputError
from spark_etl.sinks.postgres.connection import Connection, Database

BATCHES = "etl_batches"
RUN_WAIT_SECONDS = 30.0  # the JVM of a killed driver ends within a few seconds
POLL_SECONDS = 0.2
_CREATE = (
    f"""
CREATE TABLE IF NOT EXISTS {BATCHES} (
  app_id text NOT NULL, target text NOT NULL, batch bigint NOT NULL, rows bigint NOT NULL,
  committed timestamptz NOT NULL DEFAULT now(), place text, PRIMARY KEY (app_id, target))""",
    # made by an earlier build
    f"ALTER TABLE {BATCHES} ADD COLUMN IF NOT EXISTS place text",
)
_HAS_PLACE = f"SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('{BATCHES}') AND attname = 'place'"
_TAKE = f"""
INSERT INTO {BATCHES} AS held (app_id, target, batch, rows, place) VALUES (?, ?, ?, ?, NULLIF(?, ''))
ON CONFLICT (app_id, target) DO UPDATE
SET batch = EXCLUDED.batch, rows = EXCLUDED.rows, committed = now(), place = EXCLUDED.place
WHERE held.batch < EXCLUDED.batch"""
_HELD = f"""
SELECT batch, place, extract(epoch FROM committed) * 1000, rows FROM {BATCHES} WHERE app_id = ? AND target = ?"""
#: Queries have a UUID of Spark's, replays have another form.
_QUERIES = f"""
SELECT app_id FROM {BATCHES} WHERE target = ? AND app_id LIKE ? AND length(app_id) = ?
ORDER BY committed DESC LIMIT 1"""
_UUID = 36
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(?, 0))"


@dataclass(frozen=True, slots=True)
class Held:
    """The last batch of a query in a table; `place` is empty if an earlier build wrote it."""

    query: str
    batch: int
    place: Mapping[str, Any]
    committed_ms: int
    rows: int = 0  # good ones of the batch, without those that became dead letters


@dataclass(frozen=True, slots=True)
class Position:
    """A checkpoint, for the comparison with an output."""

    pipeline: str
    query: str | None  # None: new
    before: Collection[str] = ()  # queries that it replaced
    planned: int = -1  # the last batch that Spark has planned
    finished: int = -1  # the last batch that every output had
    outputs: Collection[str] = ()  # names of these outputs
    table: str = ""  # the place of the pipeline's Delta table, if it has one


def create(connection: Connection) -> None:
    if connection.value(_HAS_PLACE) is None:  # no lock on the table for its sake
        for statement in _CREATE:
            connection.execute(statement)


def application(pipeline: str, query: str) -> str:
    return BatchPlace.of(pipeline, query, 0).app_id


def held(connection: Connection, pipeline: str, query: str, target: str) -> Held | None:
    found = connection.rows(_HELD, application(pipeline, query), target)
    if not found:
        return None
    batch, place, committed, rows = found[0]
    return Held(query, int(batch or 0), json.loads(place or "{}"), int(float(committed or 0)), int(rows or 0))


def newest_query(connection: Connection, pipeline: str, target: str) -> str | None:
    """Return the query of a pipeline that wrote a table last; None if none did."""
    prefix = application(pipeline, "")
    escaped = prefix.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    found = connection.value(_QUERIES, target, f"{escaped}%", len(prefix) + _UUID)
    return found.removeprefix(prefix) if found is not None else None


def check_belongs(connection: Connection, position: Position, table: str, target: str, output: str) -> None:
    """Raise OutputError if the table has batches of another checkpoint, or lacks some of this one."""
    newest = newest_query(connection, position.pipeline, target)
    own = held(connection, position.pipeline, position.query, target) if position.query is not None else None
    known = {position.query, *position.before}
    if newest is not None and newest not in known:
        if connection.value(f"SELECT 1 FROM {table} LIMIT 1") is None:
            return  # nothing can be doubled
        raise OutputError(
            f"{output} was written with another checkpoint (query {newest}, now {position.query or 'a new one'}): its"
            " rows would be written again. Use that checkpoint, write it again with `recover`, or empty the table"
        )
    if own is not None and own.batch > position.planned:
        raise OutputError(
            f"{output} has batch {own.batch}, and the checkpoint is older: batch {position.planned} is its last one."
            " Use the newer checkpoint, or move this one away and write it again with `recover`"
        )
    had = position.finished if output in position.outputs else -1
    if had > (own.batch if own is not None else -1):
        raise OutputError(_missing(output, own, had, position.table))


def check_follows(last: Held | None, place: BatchPlace, output: str, known: bool, table: str = "") -> bool:
    """Return whether the table has a batch. OutputError: it lacks one before, or has other records as this one.

    `known`: whether this run has written to the table before. `table`: the place of the pipeline's Delta table, if any.
    """
    if last is None:
        if known:
            raise OutputError(_missing(output, None, place.batch_id - 1, table))
        return False  # an output that is new to the pipeline
    if last.batch < place.batch_id - 1:  # mutant: missing-batch-refused
        raise OutputError(_missing(output, last, place.batch_id - 1, table))
    end, now = last.place.get("end"), (place.commit or {}).get("end")
    if last.batch == place.batch_id and None not in (end, now) and end != now:
        raise OutputError(
            f"{output} has batch {place.batch_id} with other records (to {end}, now {now}): another run wrote it from a"
            " copy of this checkpoint. Use the copy, or move this checkpoint away and write it again with `recover`"
        )
    return last.batch >= place.batch_id


def take(connection: Connection, place: BatchPlace, target: str, rows: int) -> bool:
    """Note a batch in the transaction of its rows; return False if the table has it."""
    document = json.dumps(place.commit, sort_keys=True) if place.commit is not None else ""
    return connection.execute(_TAKE, place.app_id, target, place.batch_id, rows, document) > 0


def count_refused(connection: Connection, place: BatchPlace, target: str, rows: int) -> None:
    """Take the rows that the table refused from the number of a batch's rows, in the same transaction."""
    statement = f"UPDATE {BATCHES} SET rows = rows - ? WHERE app_id = ? AND target = ?"
    connection.execute(statement, rows, place.app_id, target)


def _missing(output: str, last: Held | None, wanted: int, table: str) -> str:
    """Return the refusal. `recover` goes on after the last batch of a Delta table, which has the missing ones."""
    where = "no batch of this checkpoint" if last is None else f"batch {last.batch} as its last one"
    way = "move the checkpoint away and write it again with `recover`"
    if table:
        way = f"run once without this sink, copy the rows of {table} to a new table, and name that one in the sink"
    return (
        f"{output} has {where}, and batch {wanted} is missing: the database was restored, or this output was left out"
        f" for a while. Restore a newer state; or {way}"
    )


class RunLock:
    """The lock of the one run of a pipeline that writes to a table. Durations are in seconds."""

    def __init__(self, database: Database, pipeline: str, target: str, output: str) -> None:
        self._database = database
        self._name = f"{application(pipeline, 'run')} {target}"
        self._output = output
        self._connection: Connection | None = None

    def take(self) -> None:
        """Take the lock within RUN_WAIT_SECONDS, or see that it is still held.

        OutputError: another run has it. RunError: the database is away.
        """
        if self._connection is not None and self._connection.is_alive():
            return
        self.release()
        connection = self._database.connect()
        end = time.monotonic() + RUN_WAIT_SECONDS
        try:
            while connection.value(_LOCK, self._name) != "t":
                connection.commit()
                if time.monotonic() >= end:
                    raise OutputError(f"{self._output}: another run of this pipeline writes to the table")
                time.sleep(POLL_SECONDS)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
