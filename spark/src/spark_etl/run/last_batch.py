"""The last batch of a query that cannot repeat it, written to the outputs that missed it.

A query that starts over never repeats a batch of the old one. A topic that was deleted has lost the records. An earlier
run may have died between the table and another output. That output then gets the batch's rows:

- from the table's own commit, if the table has them as the outputs need them. Such rows outlive their topic;
- else, and for dead letters, from the topics that did not change. The deleted topics' records are lost, and a warning
  names these topics.

Each output finds its rows of an earlier try, as in any other batch (batch_writer.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from spark_etl import judgement, ranges, replayed, sources
from spark_etl.batch_writer import BatchWriter
from spark_etl.checkpoint import Checkpoint, Offsets
from spark_etl.cluster import Cluster
from spark_etl.config import Pipeline
from spark_etl.judgement import Judged
from spark_etl.lake import LakeTable
from spark_etl.logs import Log
from spark_etl.run.batches import Batches, BatchPlace
from spark_etl.run.identity import Identity, SourceIdentity, start_offsets
from spark_etl.sinks import Outputs


@dataclass(frozen=True)
class LastBatch:
    """The newest batch that Spark planned in a checkpoint."""

    session: SparkSession
    pipeline: Pipeline
    cluster: Cluster
    checkpoint: Checkpoint
    identity: SourceIdentity
    table: LakeTable | None
    outputs: Outputs
    log: Log

    def gone(self) -> list[str]:
        """Return the topics of the batch that no longer have its records: deleted ones, and such as are new again."""
        batch, known = self.checkpoint.last_planned(), self.identity.kept().topics
        end = (self.checkpoint.end_offsets(batch) if batch is not None else None) or {}
        return sorted((known.keys() & end.keys()) - self.identity.unchanged())

    def complete(self) -> Offsets:
        """Write the batch to the outputs that lack it; return the offsets after the records that all outputs hold."""
        batch, query = self.checkpoint.last_planned(), self.checkpoint.query_id()
        if batch is None or query is None:
            return start_offsets(self.checkpoint) or self.checkpoint.start_offsets(0) or {}
        place = BatchPlace.of(self.pipeline.config.name, query, batch)
        start, end = self.checkpoint.start_offsets(batch) or {}, self.checkpoint.end_offsets(batch) or {}
        marks = Batches(self.checkpoint.notes)
        if self.checkpoint.last_committed() == batch or marks.is_finished(place):
            return end
        in_outputs = marks.has_begun(place) if self.table is None else self.table.holds(place.app_id, batch)
        if not in_outputs:
            return start
        gone = self.gone()
        stored = self._from_table(place)
        plan, rows = self._planned(stored, start, {topic: each for topic, each in end.items() if topic not in gone})
        if gone:
            lost = "dead letters" if stored is not None else "rows and dead letters"
            self.log.warning("lost to outputs next to the table", batch=batch, deleted_topics=gone, lost=lost)
        writer = BatchWriter(
            self.pipeline.config, plan, self.table, self.outputs, self.checkpoint, self._identity_of_batch
        )
        writer.write(plan.rows, place, rows)
        return end

    def _from_table(self, place: BatchPlace) -> DataFrame | None:
        """Return the batch's good rows as the table's commit has them; None if an output needs more than these."""
        if self.table is None or self.pipeline.config.keeps_raw:
            return None
        return self.table.rows_of(place.query_id, place.batch_id)

    def _planned(self, stored: DataFrame | None, start: Offsets, end: Offsets) -> tuple[Judged, DataFrame | None]:
        """Judge the records that are left; return the plan, and the good rows if they are not those of the plan.

        Only Spark knew the keys of `dedupe`. But a row that the table has is no duplicate.
        """
        config = self.pipeline.config
        records = sources.batch(self.session, self.cluster.bootstrap_servers, config, start, end)
        if stored is not None or config.dedupe is None or self.table is None or config.delta.mode != "append":
            plan = judgement.plan(self.session, records, self.pipeline)
            return plan, replayed.with_column(stored, plan.columns).select(
                *plan.columns
            ) if stored is not None else None
        without = self.pipeline.model_copy(update={"config": config.model_copy(update={"dedupe": None})})
        plan = replace(judgement.plan(self.session, records, without), file=judgement.digest(self.pipeline))
        spans = {
            topic: {number: (start.get(topic, {}).get(number, 0), last) for number, last in partitions.items()}
            for topic, partitions in end.items()
        }
        good = plan.good(plan.rows, raw=config.keeps_raw)
        return plan, self.table.among(good, ranges.condition(spans) or "false", "left_semi")

    def _identity_of_batch(self, _topics: Iterable[str]) -> Identity:
        """Return the identity that the batch was read with: the source has another one now."""
        return self.identity.kept()
