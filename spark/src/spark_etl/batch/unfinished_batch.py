"""The batch that a recovered checkpoint cannot run again: its rows for the outputs other than the table.

A pipeline with `dedupe` loses its memory of keys with the checkpoint, so Spark cannot repeat the last batch. The table
has that batch, and its rows name the records that were no duplicates. The batch's records are read and judged once more
without `dedupe`; the rows that the table has, and the refused ones, go to each output unless it has them.

    CHECKPOINT/_etl/unfinished.json    {"query": "8f2c…", "batch": 7, "start": {…}, "end": {…}, "at": …, …}

A table of `mode: upsert` has the last rows only. There `dedupe` judges the batch without its memory.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

from spark_etl import judgement
from spark_etl.checkpoint.batches import Batches, BatchPlace
from spark_etl.checkpoint.notes import Notes
from spark_etl.config import Pipeline
from spark_etl.decode import replayed
from spark_etl.kafka import ranges
from spark_etl.kafka.cluster import Cluster
from spark_etl.lake import LakeTable
from spark_etl.sinks import Outputs

NOTE = "unfinished"


def note(last: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a batch, given its commit's metadata."""
    at = datetime.fromtimestamp(int(last["committed_ms"]) / 1000, UTC)
    kept = {name: last[name] for name in ("query", "batch", "start", "end")}
    planned_ms = last.get("planned_ms", last["committed_ms"])
    return {**kept, "planned_ms": planned_ms, "late_before": last.get("late_before", 0), "at": at.isoformat()}


def finish(
    session: SparkSession,
    cluster: Cluster,
    pipeline: Pipeline,
    table: LakeTable,
    outputs: Outputs,
    notes: Notes,
    unchanged: Callable[[], Collection[str]],
) -> None:
    """Write the batch of the note, if there is one, to the outputs.

    Dead letters and original values are those of topics that are `unchanged`: the others have lost their records.
    """
    document = notes.read(NOTE)
    if document is None:
        return
    config = pipeline.config
    place = BatchPlace.of(config.name, str(document["query"]), int(document["batch"]))
    found = ranges.between(document["start"], document["end"])
    if found and not Batches(notes).is_finished(place):
        at = datetime.fromisoformat(document["at"])
        append = table.config.mode == "append"
        same = unchanged()
        found = {topic: partitions for topic, partitions in found.items() if topic in same}
        records = ranges.records(session, cluster.bootstrap_servers, config, found)
        time = int(document.get("planned_ms", at.timestamp() * 1000))
        plan = judgement.plan(session, records, pipeline, int(document.get("late_before", 0)), batch_ms=time)
        rows = plan.rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            outputs.letters.write(plan.refused(rows), at)
            good = plan.good(rows, raw=config.keeps_raw)
            stored = table.rows_of(place.query_id, place.batch_id) if not config.keeps_raw else None
            if stored is not None:
                good = replayed.with_column(stored, plan.columns).select(*plan.columns)
            elif append:
                if config.dedupe is not None:
                    without = config.model_copy(update={"dedupe": None})
                    whole = judgement.plan(
                        session, records, pipeline.model_copy(update={"config": without}), batch_ms=time
                    )
                    good = whole.good(whole.rows, raw=config.keeps_raw)
                good = table.among(good, ranges.condition(found) or "false", "left_semi")
            kept = replace(place, commit=table.last_metadata())
            for sink in outputs.rows:
                sink.write(good, kept, at)
        finally:
            rows.unpersist()
    notes.remove(NOTE)
