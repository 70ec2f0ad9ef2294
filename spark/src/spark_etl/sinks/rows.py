"""Good rows as sinks see them: the columns to write, deletions, and rows that one sink cannot hold."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.kafka.ranges import Ranges
from spark_etl.sinks.dead_letters import RAW_LOST, SINK
from spark_etl.sinks.topics import HEADERS
from spark_etl.transform.explode import INDEX

#: A column of pipelines with `null_value: delete`: true for a record without a value. Its key says which row goes.
DELETED = "_deleted"
MISFIT_STAGE = "sink"
_RAW = {"_raw_key": "binary", "_raw_value": "binary", "_raw_headers": HEADERS}


class Sink(Protocol):
    """An output of good rows next to the table."""

    rows_read: int | None  # rows of the last `write`; None: an earlier try had written them, or it does not count
    rows_written: int | None  # those of them that the target has; None: it does not count

    @property
    def name(self) -> str:
        """The name in letters of the stage `sink`: `TYPE:TARGET`."""

    def check(self) -> None:
        """Find or create the target before any record is read. Raises ConfigError or OutputError in one line."""

    def write(self, rows: DataFrame, batch: BatchPlace, begun_before: datetime | None) -> int:
        """Write the good rows of a batch, each once however often the batch is tried.

        `begun_before` is the time at which an earlier try began. Returns how many rows did not fit the target and
        became dead letters of the stage `sink`.
        """

    def has(self, batch: BatchPlace, begun: datetime, spans: Ranges) -> bool:
        """Return whether rows of a batch, which a try began at a time, are in the target. `spans` are its offsets."""


def data_columns(columns: Iterable[str]) -> Sequence[str]:
    """Return the columns of the pipeline's own making: those of the schema, of expressions and of SQL."""
    return [name for name in columns if not name.startswith("_")]


def misfits(rows: DataFrame, sink: str, rule: Column, message: Column) -> DataFrame:
    """Return rows that the sink of a name refuses, in the form of refused ones.

    A good row may no longer have its raw parts: its letter says that they are left out.
    """
    raw = [F.col(name) if name in rows.columns else F.lit(None).cast(kind).alias(name) for name, kind in _RAW.items()]
    error = F.struct(F.lit(MISFIT_STAGE).alias("stage"), rule.alias("rule"), message.alias("message"))
    marks = [F.lit(sink).alias(SINK), F.lit("_raw_value" not in rows.columns).alias(RAW_LOST)]
    marks += [F.col(INDEX)] if INDEX in rows.columns else []
    return rows.select("_topic", "_partition", "_offset", "_timestamp", *raw, error.alias("_error"), *marks)
