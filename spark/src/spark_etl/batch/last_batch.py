"""The last batch of a query that cannot repeat it, written to the outputs that missed it.

A query that starts over never repeats a batch of the old one. A topic that was deleted has lost the records. With
`dedupe`, a recovered checkpoint has lost the keys. An earlier run may have died between the table and another output.
That output then gets the batch's rows:

- from the table's own commit, if the table has them as the outputs need them. Such rows outlive their topic;
- else, and for dead letters, from the topics that did not change. The deleted topics' records are lost, and a warning
  names these topics.

Each output finds its rows of an earlier try, as in any other batch (writer.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from spark_etl import judgement
from spark_etl.batch.identity import Identity, SourceIdentity, start_offsets
from spark_etl.batch.writer import BatchWriter, Source
from spark_etl.checkpoint.batches import Batches, BatchPlace
from spark_etl.checkpoint.offsets import Checkpoint, Offsets
from spark_etl.config import Pipeline
from spark_etl.counts import Taken
from spark_etl.decode import replayed
from spark_etl.errors import OutputError
from spark_etl.judgement import Judged
from spark_etl.kafka import ranges, sources
from spark_etl.kafka.cluster import Cluster
from spark_etl.lake import LakeTable
from spark_etl.logs import Log
from spark_etl.sinks import Outputs

FORGOTTEN = "forgotten"  # note of a checkpoint without the keys of `dedupe`: a query must start over


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
        if not in_outputs and self.outputs.table_with(place) is None:
            return start
        gone = self.gone()
        stored = self._from_table(place)
        left = {topic: each for topic, each in end.items() if topic not in gone}
        plan, rows = self._planned(stored, start, left, batch)
        if gone:
            lost = "dead letters" if stored is not None else "rows and dead letters"
            self.log.warning("lost to outputs next to the table", batch=batch, deleted_topics=gone, lost=lost)
        source = Source(self._identity_of_batch, self._taken(start, left) if self.pipeline.config.transform else None)
        writer = BatchWriter(self.pipeline.config, plan, self.table, self.outputs, self.checkpoint, source)
        writer.write(plan.rows, place, rows)
        return end

    def _from_table(self, place: BatchPlace) -> DataFrame | None:
        """Return the batch's good rows as the table's commit has them; None if an output needs more than these."""
        if self.table is None or self.pipeline.config.keeps_raw:
            return None
        return self.table.rows_of(place.query_id, place.batch_id)

    def _planned(
        self, stored: DataFrame | None, start: Offsets, end: Offsets, batch: int
    ) -> tuple[Judged, DataFrame | None]:
        """Judge the records that are left; return the plan, and the good rows if they are not those of the plan.

        Only Spark knew the keys of `dedupe`. But a row that the table has is no duplicate.
        """
        config = self.pipeline.config
        records = sources.batch(self.session, self.cluster.bootstrap_servers, config, start, end)
        time, late_before = self.checkpoint.planned_ms(batch), self.checkpoint.late_before(batch)
        plan = judgement.plan(self.session, records, self.pipeline, late_before, batch_ms=time)
        if stored is not None:
            return plan, replayed.with_column(stored, plan.columns).select(*plan.columns)
        if config.dedupe is None or self.table is None or self.table.config.mode != "append":
            return plan, None
        without = self.pipeline.model_copy(update={"config": config.model_copy(update={"dedupe": None})})
        whole = judgement.plan(self.session, records, without, batch_ms=time)
        spans = {
            topic: {number: (start.get(topic, {}).get(number, 0), last) for number, last in partitions.items()}
            for topic, partitions in end.items()
        }
        good = whole.good(whole.rows, raw=config.gives_raw)
        return plan, self.table.among(good, ranges.condition(spans) or "false", "left_semi")

    def _taken(self, start: Offsets, end: Offsets) -> Callable[[], Taken]:
        records = sources.batch(self.session, self.cluster.bootstrap_servers, self.pipeline.config, start, end)
        return lambda: Taken.by_statements(records.count())

    def _identity_of_batch(self, _topics: Iterable[str]) -> Identity:
        """Return the identity that the batch was read with: the source has another one now."""
        return self.identity.kept()


def check_belongs(name: str, table: LakeTable | None, checkpoint: Checkpoint, identity: SourceIdentity) -> None:
    """Refuse a checkpoint that does not belong to a pipeline's table: its records would be written twice.

    OutputError: the table's last batch is another pipeline's, of another checkpoint, or newer than this one.
    """
    last = table.last_metadata() if table is not None else None
    if table is None or last is None or "query" not in last:  # a replay may come before the first batch
        return
    query = checkpoint.query_id()
    if last.get("pipeline") != name:
        raise OutputError(
            f"{table.location} is the table of the pipeline {last.get('pipeline')}, and `name` may not change"
        )
    if last["query"] not in (query, *identity.queries_before()):
        raise OutputError(
            f"{table.location} was written with another checkpoint (query {last['query']}, now {query}); use"
            " that one again, rebuild it with `recover`, or write to an empty table"
        )
    planned = checkpoint.last_planned()
    if last["query"] == query and last["batch"] > (-1 if planned is None else planned):
        raise OutputError(
            f"{table.location} has batch {last['batch']}, and the checkpoint is older: batch {planned} is its"
            " last one. Use the newer checkpoint, or move this one away and rebuild it with `recover`"
        )
