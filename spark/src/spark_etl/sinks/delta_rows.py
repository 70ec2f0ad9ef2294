"""A Delta Lake table next to the first one of a pipeline, or one that takes a part of the rows only.

The table's own log has the numbers of its batches, so a batch that is tried again is in it once. Each commit has the
offsets that `recover` needs, and the numbers of rows:

    {"operation": "batch", "batch": 7, …, "rows_read": 9, "rows_out": 4, "left_out": [5, 5]}

`left_out` are the records for which the sink's `where` does not hold, and their rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.config import DeltaSinkConfig
from spark_etl.errors import AccountingError, OutputError
from spark_etl.kafka import ranges
from spark_etl.kafka.ranges import Ranges
from spark_etl.lake import LakeTable, choice
from spark_etl.sinks.postgres.batches import Position
from spark_etl.transform.explode import INDEX


class DeltaRows:
    """One such table as a sink. `schema` is that of the good rows."""

    def __init__(self, session: SparkSession, config: DeltaSinkConfig, schema: StructType) -> None:
        self._session = session
        self._config = config
        self._schema = schema
        self._claimed: ExitStack | None = None  # of a run
        self.table = LakeTable(session, config)
        self.rows_read: int | None = None
        self.rows_written: int | None = None
        self.left_out = (0, 0)  # records and rows of the last batch that are not for this table

    @property
    def name(self) -> str:
        return f"delta:{self.table.location}"

    def check(self) -> None:
        """Compare the table with the rows, if there is one. Raises ConfigError or OutputError."""
        self.table.folder.check_empty_or_table()
        if self.table.delta.exists():
            self.table.check(choice.target(self._config, self._schema))

    def claim(self, position: Position) -> None:
        """Hold the table as the one driver of its folder, until `release`; create it unless it exists.

        OutputError: another driver holds it, or it lacks a batch that the checkpoint knows to be there.
        """
        self._claimed = ExitStack()
        self.table = self._claimed.enter_context(LakeTable.opened(self._session, self._config, self._schema))
        if position.query is None or self.name not in position.outputs:
            return
        held = self.table.held(BatchPlace.of(position.pipeline, position.query, 0).app_id)
        if held < position.finished:  # mutant: lost-table-refused
            raise OutputError(self._lacks(held, position.finished))

    def release(self) -> None:
        if self._claimed is not None:
            self._claimed.close()
        self._claimed = None

    def has(self, batch: BatchPlace, begun: datetime, spans: Ranges) -> bool:  # noqa: ARG002
        """Return whether the table has a batch."""
        return self.table.holds(batch.app_id, batch.batch_id)

    def write(self, rows: DataFrame, batch: BatchPlace, begun_before: datetime | None) -> int:  # noqa: ARG002
        """Write what the table takes of the good rows of a batch, unless it has the batch. No row is refused."""
        with self._held() as table:
            self.rows_read, self.rows_written, self.left_out = None, None, (0, 0)
            if not self._found(table, batch):
                self._write(table, rows if batch.commit is not None else self._new(table, rows), batch)
        return 0

    @contextmanager
    def _held(self) -> Iterator[LakeTable]:
        """Give the table, held for this write if it was not claimed."""
        if self._claimed is not None:
            yield self.table
            return
        with LakeTable.opened(self._session, self._config, self._schema) as table:
            yield table

    def _found(self, table: LakeTable, batch: BatchPlace) -> bool:
        """Return whether the table has a batch. OutputError: it lacks one before."""
        held = table.held(batch.app_id)
        if held >= batch.batch_id:
            last = table.last_metadata() or {}
            if (last.get("query"), last.get("batch")) == (batch.query_id, batch.batch_id) and "left_out" in last:
                records, rows = last["left_out"]
                self.rows_written, self.left_out = int(last["rows_out"]), (int(records), int(rows))
            return True
        is_new = held < 0 and "query" not in (table.last_metadata() or {})
        if batch.commit is not None and held < batch.batch_id - 1 and not is_new:  # mutant: table-without-gap
            raise OutputError(self._lacks(held, batch.batch_id - 1))
        return False

    def _write(self, table: LakeTable, rows: DataFrame, batch: BatchPlace) -> None:
        taken = choice.condition(self._config, rows.columns)
        first = F.coalesce(F.col(INDEX), F.lit(0)) == 0 if INDEX in rows.columns else F.lit(True)
        seen = Observation()
        found = {"rows": F.lit(True), "taken": taken, "left": ~taken & first}
        observed = rows.observe(seen, *(F.count_if(each).alias(name) for name, each in found.items()))

        def accept(written: int) -> Mapping[str, Any]:
            numbers = {name: int(seen.get.get(name) or 0) for name in found}
            if written != numbers["taken"]:
                raise AccountingError(f"{self.name}: {numbers['taken']} rows to write, {written} written")
            self.rows_read, self.rows_written = numbers["rows"], written
            self.left_out = numbers["left"], numbers["rows"] - written
            if batch.commit is None:
                return {**(table.last_metadata() or {}), "replay": batch.batch_id}
            return {**batch.commit, "rows_read": numbers["rows"], "rows_out": written, "left_out": self.left_out}

        table.write(observed, batch.app_id, batch.batch_id, accept)

    def _new(self, table: LakeTable, rows: DataFrame) -> DataFrame:
        """Return the replayed rows that the table lacks: some came back before a `recover`."""
        return table.among(rows, ranges.condition(ranges.spanned(rows)) or "false", "left_anti")

    def _lacks(self, held: int, wanted: int) -> str:
        where = "no batch of this checkpoint" if held < 0 else f"batch {held} as its last one"
        return (
            f"{self.name} has {where}, and batch {wanted} is missing: the table was restored or exchanged, or this sink"
            " was left out for a while. Restore a newer state; or name a new table in the sink, and bring the earlier"
            " records there with `backfill`"
        )
