"""The late records of a batch, found again: Spark's `dedupe` and its windows leave them out and give only a number.

A record is late if its event time is not after the watermark of the batch before, which Spark keeps in its checkpoint.
So each try of a batch finds the same records. They are read from Kafka once more, and judged, only if there are any.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl import judgement
from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.config import Aggregate, KafkaSinkConfig, Pipeline
from spark_etl.config.model import seconds
from spark_etl.counts import LATE
from spark_etl.judgement import Judged
from spark_etl.kafka import sources
from spark_etl.kafka.cluster import Cluster
from spark_etl.sinks import local_days
from spark_etl.sinks.rows import misfits


def last_end(at: Column, aggregate: Aggregate) -> Column:
    """Return the end of the last window that has an event time, in microseconds since 1970-01-01T00:00Z."""
    assert aggregate.window is not None
    if aggregate.timezone is not None:
        return F.unix_micros(local_days.window(at, aggregate)["end"])
    length, slide = seconds(aggregate.window), seconds(aggregate.slide or aggregate.window)
    micros = F.unix_micros(at)
    return micros - F.pmod(micros, F.lit(slide * 1_000_000)) + length * 1_000_000


@dataclass(frozen=True)
class LateRecords:
    """Late records of the batches of one checkpoint."""

    session: SparkSession
    pipeline: Pipeline
    cluster: Cluster
    checkpoint: Checkpoint

    def of_dedupe(self, batch_id: int) -> DataFrame | None:
        """Return the refused rows that are a batch's late records; None if it has no late ones."""
        before = self.checkpoint.late_before(batch_id)
        if self.pipeline.config.dedupe is None or before <= 0:  # older records are refused by decode
            return None
        judged = self._judged(batch_id, before)
        stage, rule = LATE
        return judged.aside(judged.rows).where((F.col("_error.stage") == stage) & (F.col("_error.rule") == rule))

    def of_windows(self, batch_id: int, config: KafkaSinkConfig, name: str) -> DataFrame | None:
        """Return the refused rows that are the records of which a sink's windows took none, as all had ended."""
        aggregate, timed = config.aggregate, self.pipeline.config.decode.timestamp
        assert aggregate is not None
        assert aggregate.window is not None
        assert timed is not None  # checked with the file
        if self.pipeline.config.dedupe is not None:
            late = self.of_dedupe(batch_id)
            return None if late is None else misfits(late, name, F.lit(LATE[1]), F.col("_error.message"))
        before = self.checkpoint.late_before(batch_id)
        judged = self._judged(batch_id, raw=True)
        end = last_end(F.col(timed.field), aggregate)
        late = judged.good(judged.rows, raw=True).where(end <= before * 1000)
        message = F.lit(f"all windows of its {timed.field} had ended")
        return misfits(late, name, F.lit(LATE[1]), message)

    def _judged(self, batch_id: int, before: int = 0, *, raw: bool = False) -> Judged:
        """Judge the records of a batch again, as of its time."""
        start, end = self.checkpoint.start_offsets(batch_id) or {}, self.checkpoint.end_offsets(batch_id) or {}
        records = sources.batch(self.session, self.cluster.bootstrap_servers, self.pipeline.config, start, end)
        time = self.checkpoint.planned_ms(batch_id)
        return judgement.plan(self.session, records, self.pipeline, before, batch_ms=time, raw=raw)
