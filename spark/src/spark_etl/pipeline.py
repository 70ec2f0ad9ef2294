"""One run of a pipeline: all records that the source has now, batch by batch, then the summaries.

The steps of a batch (foreachBatch). A driver may die after any step, and the next run ends in the same state:

1. judge the records (one pass over the source, kept in memory), count them by outcome;
2. mark the batch as begun;
3. dead letters to their topic (a batch begun before: only those not there yet);
4. Parquet files, then the manifest entry: the batch counts now;
5. Spark commits the source offsets in its checkpoint.

When Spark replays a batch whose entry is there, steps 1 to 4 are skipped.

Summaries are computed from the committed Parquet and carry the output's version; a topic that already shows this
version gets nothing.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.storagelevel import StorageLevel

from spark_etl import sources
from spark_etl.cluster import Cluster
from spark_etl.config import Pipeline
from spark_etl.errors import AccountingError, ConfigError, EtlError, RuleError
from spark_etl.judged import Judged, plan
from spark_etl.logs import Log
from spark_etl.manifest import Manifest
from spark_etl.metrics import Metrics
from spark_etl.sinks.dead_letters import DeadLetters
from spark_etl.sinks.parquet import ParquetSink, committed_rows
from spark_etl.sinks.summaries import SummaryTopic, summary

POLL_SECONDS = 0.2


@dataclass(slots=True)
class Totals:
    """Totals of one run."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_dlq: int = 0
    summaries: int = 0


class Run:
    def __init__(
        self,
        pipeline: Pipeline,
        bootstrap_servers: str,
        session: SparkSession,
        manifest: Manifest,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self._config = pipeline.config
        self._pipeline = pipeline
        self._bootstrap_servers = bootstrap_servers
        cluster, name = Cluster(bootstrap_servers), self._config.name
        self._letters = DeadLetters(session, cluster, self._config.dead_letter.topic, name)
        self._summaries = [SummaryTopic(session, cluster, sink, name) for sink in self._config.summaries]
        self._session = session
        self._manifest = manifest
        self._metrics = metrics
        self._log = log
        self._query_id = ""
        self._query_known = threading.Event()
        self._failure: EtlError | None = None
        self.totals = Totals()

    def run(self, stop: threading.Event) -> Totals:
        """Run until the source is read up to its current end, or `stop` is set, which abandons the current batch."""
        self.check_plan()
        self._letters.check()
        for summaries in self._summaries:
            summaries.check()
        checkpoint = str(Path(self._config.checkpoint).absolute())
        records = sources.stream(self._session, self._bootstrap_servers, self._config.source)
        query = (
            records.writeStream.queryName(self._config.name)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(self._batch)
            .start()
        )
        self._metrics.active(True)
        try:
            self._query_id = str(query.id)
            self._query_known.set()
            self._manifest.check_belongs(self._query_id)
            self._follow(query, stop)
        finally:
            self._metrics.active(False)
            query.stop()
        if not stop.is_set():
            self._publish_summaries()
        return self.totals

    def check_plan(self) -> None:
        """Plan every expression of the pipeline on no rows, so that a typo is found before any record is read."""
        columns = [F.lit(None).cast(kind).alias(name) for name, kind in sources.COLUMNS.items()]
        empty = self._session.range(0).select(*columns)
        try:
            judged = plan(self._session, empty, self._pipeline)
            good = judged.good(judged.rows)
            for sink in self._config.summaries:
                summary(good, sink, self._config.name, 0)
        except PySparkException as error:
            raise ConfigError(f"pipeline {self._config.name}: {str(error).splitlines()[0]}") from error
        self._output_schema = good.schema

    def _follow(self, query: StreamingQuery, stop: threading.Event) -> None:
        try:
            while query.isActive and not stop.is_set():
                query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]  # fractions of a second work
                if query.lastProgress is not None:
                    self._metrics.progress(_mapping(query.lastProgress))
        except StreamingQueryException as error:
            raise (self._failure or error) from error
        failure = None if stop.is_set() else query.exception()
        if failure is not None:
            raise self._failure or failure

    def _batch(self, batch: DataFrame, batch_id: int) -> None:
        """Process one batch. Spark calls it in its thread, one batch after the other."""
        self._query_known.wait()
        try:
            self._process(batch, batch_id)
        except EtlError as error:
            self._failure = error  # Spark's report of it would be a wall of text
            raise

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        self._manifest.check_belongs(self._query_id)
        self._manifest.check_follows(self._query_id, batch_id)
        if self._manifest.holds(self._query_id, batch_id):
            self._log.info("batch was committed by an earlier run", batch=batch_id)
            self._manifest.finished(self._query_id, batch_id)
            return
        began = time.monotonic()
        arrived = Observation()
        observed = batch.observe(arrived, F.count(F.lit(1)).alias("rows"))
        checked = plan(batch.sparkSession, observed, self._pipeline)
        checked.rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            good, refused = _counted(checked)
            rows_in = arrived.get["rows"]
            if rows_in != good + sum(refused.values()):
                raise AccountingError(f"batch {batch_id}: {rows_in} records in, {good} good, refused: {refused}")
            self._fail_on(refused)
            begun_before = self._manifest.started(self._query_id, batch_id)
            if refused:
                self._letters.write(checked.refused(checked.rows), begun_before)
            parquet = ParquetSink(self._config.parquet, self._manifest)
            parquet.write(checked.good(checked.rows), self._query_id, batch_id, good)
        finally:
            checked.rows.unpersist()
        self._manifest.finished(self._query_id, batch_id)
        self._account(batch_id, good, refused, time.monotonic() - began)

    def _fail_on(self, refused: Mapping[tuple[str, str], int]) -> None:
        for rule in self._config.rules:
            count = refused.get(("rules", rule.name), 0)
            if rule.on_violation == "fail" and count:
                raise RuleError(f"{count} records break the rule {rule.name}: {rule.expr}")

    def _account(self, batch_id: int, good: int, refused: Mapping[tuple[str, str], int], seconds: float) -> None:
        dlq = sum(refused.values())
        self.totals.batches += 1
        self.totals.rows_in += good + dlq
        self.totals.rows_out += good
        self.totals.rows_dlq += dlq
        self._metrics.committed({"in": good + dlq, "out": good, "dlq": dlq}, refused)
        self._log.info(
            "batch committed",
            batch=batch_id,
            query=self._query_id,
            rows_in=good + dlq,
            rows_out=good,
            rows_dlq=dlq,
            refused={f"{stage}.{rule}": count for (stage, rule), count in refused.items()},
            seconds=round(seconds, 3),
        )

    def _publish_summaries(self) -> None:
        version = self._manifest.version
        for sink, target in zip(self._config.summaries, self._summaries, strict=True):
            if self._manifest.published(sink.topic) >= version:
                continue
            marker = f"summary-{sink.topic}"
            begun_before = self._manifest.started(marker, version)
            rows = committed_rows(self._session, self._manifest, self._output_schema)
            count = target.publish(rows, version, begun_before)
            self._manifest.set_published(sink.topic, version)
            self._manifest.finished(marker, version)
            self.totals.summaries += count
            self._log.info("summary published", topic=sink.topic, version=version, records=count)


def _counted(checked: Judged) -> tuple[int, dict[tuple[str, str], int]]:
    """Return the number of good records, and of refused ones by (stage, rule)."""
    outcomes = checked.rows.groupBy("_error.stage", "_error.rule").count().collect()
    counts = {(row["stage"], row["rule"]): int(row["count"]) for row in outcomes}
    return counts.pop((None, None), 0), counts


def _mapping(progress: Any) -> Mapping[str, Any]:
    """Return lastProgress with its offsets as objects: some versions of the Kafka source report them as JSON texts."""
    document: Any = json.loads(progress.json) if hasattr(progress, "json") else progress
    return dict(document)
