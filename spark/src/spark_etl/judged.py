"""The plan of a pipeline, from Kafka records to judged rows: one frame of all records, streaming or not.

Columns of the frame, in this order:

- the data columns;
- `_key _topic _partition _offset _timestamp`: the key as decode.key says, and the record's place;
- `_raw_key _raw_value _raw_headers`: the record itself, null for good rows;
- `_error`: STRUCT<stage, rule, message>, null for good rows.

Run, validate, test and backfill all use `plan`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl import transforms
from spark_etl.config import Pipeline

Check = tuple[str, str]  # stage and rule


@dataclass(frozen=True, slots=True)
class Counts:
    """Outcomes of one batch: rows = good + all of refused + all of dropped. Kept rows are good ones."""

    rows: int
    good: int
    refused: Mapping[Check, int]  # dead letters
    dropped: Mapping[Check, int]
    kept: Mapping[Check, int]  # good rows that break a rule with `on_violation: keep`

    @property
    def balanced(self) -> bool:
        """Whether every row has exactly one outcome."""
        return self.rows == self.good + sum(self.refused.values()) + sum(self.dropped.values())

    @property
    def refused_share(self) -> float:
        """The refused rows' share of all rows, 0 to 1."""
        return sum(self.refused.values()) / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class Judged:
    rows: DataFrame
    columns: tuple[str, ...]  # of a good row, in the order they are written
    checks: tuple[Check, ...]  # every check that can refuse or drop a row

    @property
    def counters(self) -> list[Column]:
        """Aggregates for `DataFrame.observe` on the frame or a batch of it; `counts` reads their values."""
        per_check = [
            F.count_if((F.col("_error.stage") == stage) & (F.col("_error.rule") == rule)).alias(f"{stage}.{rule}")
            for stage, rule in self.checks
        ]
        rows = F.count(F.lit(1)).alias("rows")
        return [rows, F.count_if(F.col("_error").isNull()).alias("good"), *per_check]

    def counts(self, observed: Mapping[str, Any]) -> Counts:
        """Return the counts that an observation of `counters` found."""
        refused = {check: int(observed[".".join(check)]) for check in self.checks if observed[".".join(check)]}
        return Counts(int(observed["rows"]), int(observed["good"]), refused, {}, {})

    def good(self, batch: DataFrame) -> DataFrame:
        """Return the good rows of a batch. Aggregates and filters over the batch must not be pushed below a decode:
        call it on the frame of foreachBatch, or on a static frame.
        """
        return batch.where("_error IS NULL").select(*self.columns)

    def refused(self, batch: DataFrame) -> DataFrame:
        """Return the rows of a batch that become dead letters."""
        return batch.where("_error IS NOT NULL")


def plan(session: SparkSession, records: DataFrame, pipeline: Pipeline) -> Judged:  # noqa: ARG001
    """Return the judged frame of Kafka records (`sources.COLUMNS`). AnalysisException: an expression is wrong."""
    checked = transforms.check(records, pipeline.config, pipeline.schema_)
    checks = (
        *(("decode", rule) for rule in transforms.DECODE_CHECKS),
        *(("rules", rule.name) for rule in pipeline.config.rules),
        *(("partition", name) for name in transforms.partition_columns(pipeline.config)),
    )
    return Judged(checked.rows, checked.columns, checks)
