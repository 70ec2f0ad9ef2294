"""Aggregates over windows of event time, as records of a topic.

A second streaming query over the same judged frame, with its own checkpoint. The key of a record is a JSON object
of `window_start` and the group's columns; the value has `window_end` and the selected columns too. Its headers are
`__etl.pipeline`, `__etl.window` (start/end) and `__etl.version`, which grows with each batch. The record of a key with
the highest version is the answer.

- `mode: update` writes a window each time that it changed, `append` once, after the watermark passed its end.
- A record all of whose windows have ended for the watermark is late. It changes nothing, and becomes a dead letter of
  the stage `sink`, unless `decode.timestamp.late` is `drop`.
- A window that the topic would not take becomes a dead letter of that stage, too (groups.py). Its records count as
  folded.

Invariant, in input records, before a batch is finished: read = folded into windows + dead letters + dropped + late +
duplicates (counts.py). A record without an event time is dropped.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.storagelevel import StorageLevel

from spark_etl.checkpoint.batches import Batches, BatchPlace, judged_otherwise
from spark_etl.config import EventTime, KafkaSinkConfig
from spark_etl.errors import EtlError, RunError
from spark_etl.judgement import Judged
from spark_etl.kafka.cluster import Cluster
from spark_etl.query.plan import LATE, BatchPlan
from spark_etl.sinks import groups, local_days
from spark_etl.sinks.aggregates import KEEP_NULLS, PIPELINE_HEADER, VERSION_HEADER, records, selected
from spark_etl.sinks.dead_letters import DeadLetters
from spark_etl.sinks.topics import Identity, TopicWriter, header_text

NOTE = "windows"  # {"first": version} of a query that replaces another one
WINDOW_HEADER = "__etl.window"
_IDENTITY = Identity((PIPELINE_HEADER, WINDOW_HEADER, VERSION_HEADER), with_key=True)
_JUDGED, _TIMELESS = "millrace_judged", "millrace_timeless"  # names of observations
LateRows = Callable[[int], DataFrame | None]  # of a batch's number
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


class WindowTopic:
    """The topic of one windowed aggregate of a pipeline."""

    def __init__(
        self,
        session: SparkSession,
        cluster: Cluster,
        config: KafkaSinkConfig,
        pipeline: str,
        event_time: EventTime,
        letters: DeadLetters,
        *,
        dedupe: bool,
        statements: bool,
    ) -> None:
        self._writer = TopicWriter(session, cluster, config.topic, _IDENTITY, config.client)
        self._config = config
        self._pipeline = pipeline
        self._event_time = event_time
        self._letters = letters
        self._dedupe = dedupe  # whether this step takes records away before the windows, as `statements` do
        self._statements = statements

    @property
    def topic(self) -> str:
        return self._config.topic

    def check(self) -> None:
        """Create the topic unless it exists. Raises OutputError in one line."""
        self._writer.check()

    @property
    def config(self) -> KafkaSinkConfig:
        return self._config

    @property
    def name(self) -> str:
        """The name in letters of the stage `sink`."""
        return f"kafka:{self.topic}"

    def start(
        self,
        plan: Judged,
        checkpoint: str,
        trigger: Mapping[str, Any],
        batches: Batches,
        late: LateRows,
        account: Callable[[int, dict[str, int]], None],
        first: int = 0,
        check: Callable[[], None] = lambda: None,
        failed: Callable[[EtlError], None] = lambda _: None,
    ) -> StreamingQuery:
        """Start the query over the good rows of a judged stream. `trigger` is as for DataStreamWriter.trigger.

        `late` finds the late records of a batch. `account` gets the number of each finished batch and its records by
        outcome. `first` is the version of the first batch: higher than all versions of a query that it replaces.
        `check` raises an EtlError if the run may write no more. `failed` gets the failure of a batch, of which Spark
        would report a wall of text.
        """
        known = threading.Event()
        started: list[StreamingQuery] = []

        def write(batch: DataFrame, batch_id: int) -> None:
            known.wait()
            place = BatchPlace.of(self._pipeline, str(started[0].id), batch_id)
            if batches.is_finished(place):
                return
            try:
                check()
                version = first + batch_id  # mutant: window-versions-continue
                rows = self._written(batch, place, version, plan, started[0], batches, late)
                account(batch_id, rows)
            except EtlError as error:
                failed(error)
                raise

        judged = plan.rows.observe(_JUDGED, *plan.counters)
        timeless = F.count_if(F.col(self._event_time.field).isNull()).alias("rows")
        observed = plan.good(judged).observe(_TIMELESS, timeless)
        query = (
            windowed(observed, self._config, self._event_time)
            .writeStream.queryName(f"{self._pipeline} → {self._config.topic}")
            .outputMode(self._config.mode)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .foreachBatch(write)
            .start()
        )
        started.append(query)
        known.set()
        return query

    def _written(
        self,
        batch: DataFrame,
        place: BatchPlace,
        version: int,
        plan: Judged,
        query: StreamingQuery,
        batches: Batches,
        late: LateRows,
    ) -> dict[str, int]:
        """Write and finish a batch of windows as `version`; return the numbers of its records by outcome."""
        basis = plan.basis
        records = window_records(batch, self._config, self._pipeline, version)
        records = records.persist(StorageLevel.MEMORY_AND_DISK)  # one read of the joined tables
        try:
            records.count()
            plan.check_tables()
            self._check_basis(plan, basis, batches, place, str(version))
            begun_before = batches.begun(place, basis)
            found = groups.write(self._writer, records, begun_before)
            rows = self._counted(plan, query, place.batch_id, late, begun_before) | found.numbers
            if found.refused:
                groups.refuse(self._letters, self._writer, records, self.name, begun_before)
        finally:
            records.unpersist()
        batches.finished(place, rows={self.name: rows})
        return rows

    def _check_basis(self, plan: Judged, basis: str, batches: Batches, place: BatchPlace, version: str) -> None:
        """Raise OutputError if the topic has windows of the batch as another file, or other joined tables, judged it.

        A record could count in two groups.
        """
        what = batches.changed_since(place, basis)
        if not what:
            return
        ours = (header_text(PIPELINE_HEADER) == self._pipeline) & (header_text(VERSION_HEADER) == version)
        if not self._writer.since(batches.begun_at(place)).where(ours).isEmpty():  # mutant: windows-keep-their-tables
            raise judged_otherwise(place.batch_id, self.name, what, (table.join.path for table in plan.tables))

    def _counted(
        self, plan: Judged, query: StreamingQuery, batch_id: int, late: LateRows, begun_before: datetime | None
    ) -> dict[str, int]:
        """Return the records of the batch at work by outcome, and write the letters of late ones.

        Spark adds up the records of a task, window and group before it leaves them out. Such sums only say whether
        there are late records.
        """
        found = BatchPlan(query)
        counts = plan.counts(found.observed(_JUDGED))
        if self._dedupe or self._statements:
            counts = counts.after(found.taken(dedupe=self._dedupe, statements=self._statements))
        timeless = found.observed(_TIMELESS).get("rows", 0)
        number = self._late(late(batch_id), begun_before) if found.summed(LATE) else 0
        ended = 0 if self._dedupe else number  # those of `dedupe` never come to the windows
        folded = counts.good - timeless - ended
        if folded < 0 or not counts.balanced or (self._dedupe and number != counts.late):
            failure = RunError(f"batch {batch_id} of {self.topic}: {counts}, {timeless} without a time, {number} late")
            failure.transient = True  # a stage that Spark repeated counts twice
            raise failure
        numbers = counts.numbers
        return {**numbers, "out": folded, "dropped": numbers["dropped"] + timeless, "late": number}

    def _late(self, found: DataFrame | None, begun_before: datetime | None) -> int:
        """Write the letters of late records, and return their number."""
        if found is None:
            return 0
        found = found.persist()
        try:
            number = found.count()
            if self._event_time.late == "dlq" and number:
                self._letters.write(found, begun_before)
            return number
        finally:
            found.unpersist()


def windowed(good: DataFrame, config: KafkaSinkConfig, event_time: EventTime) -> DataFrame:
    """Return the aggregate (streaming if `good` is): window_start, window_end, the group's and the selected columns."""
    aggregate = config.aggregate
    assert aggregate is not None
    assert aggregate.window is not None
    field = event_time.field
    window: Column | str = "window"
    if aggregate.timezone is not None:
        good = local_days.with_windows(good, field, aggregate)
    else:
        window = F.window(field, aggregate.window, aggregate.slide or aggregate.window)
    found = good.groupBy(window, *aggregate.group_by).agg(*selected(aggregate.select))
    return found.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *aggregate.group_by,
        *aggregate.select,
    )


def window_records(found: DataFrame, config: KafkaSinkConfig, pipeline: str, version: int) -> DataFrame:
    """Return the records (key, value, headers) of windows."""
    assert config.aggregate is not None
    texts = (F.date_format(name, _TIME) for name in ("window_start", "window_end"))
    headers = {
        PIPELINE_HEADER: F.lit(pipeline),
        WINDOW_HEADER: F.concat_ws("/", *texts),
        VERSION_HEADER: F.lit(str(version)),
    }
    start = F.date_format("window_start", _TIME).alias("window_start")
    key = F.to_json(F.struct(start, *config.aggregate.group_by), KEEP_NULLS)
    return records(found, key, headers)
