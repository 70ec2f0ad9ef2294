"""One run of a pipeline: its queries, their restarts, and the summaries.

The source is decoded and judged on the stream, planned once for a query; `batch/writer.py` writes each batch. A run of
`available_now` ends when it has read the records that the source had at its start. A run of `processing_time` goes on
until `stop`. `stop` lets the batch at work finish.

A failure of Spark or Kafka restarts the query after a pause, which doubles from failure to failure and is short again
once a batch is committed. Failures that no retry mends end the run (`causes.FINAL`). A broker or a database that is
away at the start is tried again in the same way.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark_etl import sinks
from spark_etl.batch import identity, last_batch
from spark_etl.batch import source as batch_source
from spark_etl.batch.last_batch import LastBatch
from spark_etl.batch.late_records import LateRecords
from spark_etl.batch.writer import BatchWriter, Source
from spark_etl.checkpoint import state_steps
from spark_etl.checkpoint.batches import Batches, BatchPlace
from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.config import DeltaSinkConfig, Pipeline, ProcessingTime
from spark_etl.config.model import seconds
from spark_etl.counts import Counts
from spark_etl.errors import EtlError, IdentityError, PartitionsError, SchemasError
from spark_etl.judgement import Judged
from spark_etl.kafka.cluster import Cluster
from spark_etl.lake import LakeTable
from spark_etl.lake.compaction import Compaction
from spark_etl.lake.locks import checkpoint_lock
from spark_etl.letters.failures import run_error
from spark_etl.letters.refusals import Refusals
from spark_etl.logs import Log
from spark_etl.metrics import Metrics
from spark_etl.query import queries
from spark_etl.query.byte_limit import ByteLimit
from spark_etl.reasons import reason
from spark_etl.registry import pins
from spark_etl.run.accounts import Accounts, Totals
from spark_etl.run.causes import FINAL, Causes
from spark_etl.run.stream_plans import StreamPlans
from spark_etl.run.summaries import Summaries
from spark_etl.sinks import windows
from spark_etl.sinks.postgres.batches import Position

POLL_SECONDS = 0.2
SUMMARY_SECONDS = 60.0  # between two summaries of a run without end


class Run:
    """A run inside an open session; `run` once."""

    def __init__(
        self,
        pipeline: Pipeline,
        cluster: Cluster,
        session: SparkSession,
        metrics: Metrics,
        log: Log,
        *,
        once: bool,
    ) -> None:
        self._pipeline = pipeline
        self._config = pipeline.config
        self._cluster = cluster
        self._session = session
        self._metrics = metrics
        self._log = log
        self._once = once or not isinstance(self._config.trigger, ProcessingTime)
        self._checkpoint = Checkpoint(self._config.checkpoint, session)
        self._gate = queries.Gate()
        self._failure: EtlError | None = None
        self._query_id = ""
        self._query_known = threading.Event()
        self._pace_changed = False
        self._given_up = False  # whether the query is stopped within a batch, since another one failed
        self._asks: list[Callable[[], object]] = []  # questions to the broker and the databases
        self._started = False  # whether the first query may start
        self._repeats = False  # whether the next query repeats the batch that Spark has planned, and ends
        limit = self._config.source.max_bytes_per_trigger
        records = self._config.source.max_offsets_per_trigger
        self._limit = ByteLimit(limit, records, self._checkpoint.notes) if limit is not None else None
        self._plan: Judged | None = None  # of the query
        self.totals = Totals()
        self._accounts = Accounts(self._config, self.totals, metrics, log)
        self._unfinished: dict[BatchPlace, Counts] = {}
        self._compactions: list[Compaction] = []
        self.version: int | None = None  # of the table
        self.rows_total: int | None = None

    def run(self, stop: threading.Event) -> Totals:
        """Run until the end of an `available_now`, or `stop`. Raises EtlError: nothing but its text is for a user."""
        if not self._pinned(stop):
            return self.totals
        schema = self._plans.check()
        failures = 0
        with checkpoint_lock(self._session, self._config.checkpoint, "run") as self._lock:
            while not stop.is_set():
                try:
                    with self._cluster.admin(self._session) as self._admin:
                        self._work(schema, stop)
                    break
                except EtlError as error:
                    if self._started or not getattr(error, "transient", False):
                        raise
                    failures += 1
                    self._pause("run starts again", error, failures, stop)
        return self.totals

    def away(self) -> str | None:
        """Return why the broker or a database gives no answer, None if all do; at most 25 s."""
        try:
            for ask in self._asks:
                ask()
        except EtlError as error:
            return reason(error) if getattr(error, "transient", False) else None
        except Exception:  # the JVM has ended
            return None
        return None

    def _pinned(self, stop: threading.Event) -> bool:
        """Give the pipeline the schemas of its registry; return whether the run may go on."""
        failures = 0
        while True:
            try:
                self._pipeline = pins.pinned(self._pipeline, self._session)
                break
            except EtlError as error:
                if not getattr(error, "transient", False):
                    raise
                failures += 1
                self._pause("run starts again", error, failures, stop)
                if stop.is_set():
                    return False
        self._causes = Causes(self._session, self._pipeline, self._cluster, self._checkpoint)
        self._plans = StreamPlans(self._session, self._pipeline, self._cluster, self._limit)
        return True

    def _work(self, schema: StructType, stop: threading.Event) -> None:
        """Open the source and the outputs, finish what an earlier run left, and run queries until the end."""
        self._asks = [self._admin.cluster_id]
        self._checkpoint.complete_replacement()
        state_steps.check(self._pipeline, self._checkpoint)
        pins.keep(self._pipeline, self._checkpoint.notes)
        self._identity = identity.SourceIdentity(self._checkpoint, self._admin, self._config.source)
        changed = self._changed_source()
        self._outputs = sinks.opened(self._session, self._config, self._cluster, schema)
        self._asks.append(self._outputs.ask)
        self._outputs.check()
        with self._outputs.claimed(self._position()), self._table(schema) as table:
            self._lake = table
            tables = [*([table] if table is not None else []), *(each.table for each in self._outputs.tables)]
            self._compactions = [Compaction(self._session, each, self._checkpoint.notes, self._log) for each in tables]
            self._summaries = Summaries(self._session, table, self._outputs.summaries, self._checkpoint.notes)
            for each in tables:
                last_batch.check_belongs(self._config.name, each, self._checkpoint, self._identity)
            if changed is not None:
                self._start_over(changed)
            elif self._checkpoint.notes.read(last_batch.FORGOTTEN) is not None:
                self._begin_again("the keys of `dedupe` were lost with the checkpoint")
            else:
                self._finish_batch()
            self._started = True
            self._repeat(stop)
            if not stop.is_set():
                self._summarise()
            self._look_at_table()

    @contextmanager
    def _table(self, schema: StructType) -> Iterator[LakeTable | None]:
        sink = self._config.table
        with LakeTable.opened(self._session, sink, schema) if isinstance(sink, DeltaSinkConfig) else nullcontext() as t:
            yield t

    def _position(self) -> Position:
        """Return where the checkpoint is, for outputs that keep the numbers of their batches."""
        query, planned = self._checkpoint.query_id(), self._checkpoint.last_planned()
        finished, outputs = Batches(self._checkpoint.notes).last_finished(query) if query is not None else (-1, [])
        before = self._identity.queries_before()
        lake = self._config.table.path if self._config.table is not None else ""
        return Position(self._config.name, query, before, -1 if planned is None else planned, finished, outputs, lake)

    # --- queries and their restarts

    def _repeat(self, stop: threading.Event) -> None:
        """Run one query after the other until the run ends."""
        failures = 0
        while not stop.is_set():
            batches = self.totals.batches
            self._pace_changed = False
            try:
                self._query(stop)
                if not self._pace_changed and not self._repeats:
                    return
                self._repeats = False
            except Exception as error:
                failures = failures + 1 if self.totals.batches == batches else 1
                cause = error if stop.is_set() else self._causes.of_query(error, self._identity, self._plan)
                self._recover(cause, failures, stop)

    def _recover(self, error: Exception, failures: int, stop: threading.Event) -> None:
        """Return when the next query may start, at once if the run is to stop. Raises the error if it ends the run."""
        if stop.is_set() and not isinstance(error, FINAL):
            self._log.warning("query failed after the signal", reason=reason(error))
            return
        if isinstance(error, IdentityError):
            self._start_over(error)
            return
        if isinstance(error, SchemasError):
            self._log.info("schemas looked up", reason=str(error))
            return
        if isinstance(error, PartitionsError) and not self._repeats:
            self._repeats = True
            return
        if isinstance(error, FINAL) or (self._once and not getattr(error, "transient", False)):
            raise error
        self._pause("query restarts", error, failures, stop)

    def _pause(self, event: str, error: Exception, failures: int, stop: threading.Event) -> None:
        """Log why the run goes on after a pause, and wait. Raises the error after too many failures."""
        if failures > self._config.restart.attempts:
            raise error
        first, longest = seconds(self._config.restart.backoff), seconds(self._config.restart.backoff_max)
        pause = min(first * 2 ** min(failures - 1, 30), longest)
        self.totals.restarts += 1
        self._metrics.restarted()
        self._log.warning(event, reason=reason(error), failures=failures, pause_seconds=pause)
        stop.wait(pause)

    def _changed_source(self) -> IdentityError | None:
        """Return why the source starts over; None if it goes on. IdentityError: the file does not allow a new start."""
        try:
            self._identity.check()
        except IdentityError as error:
            if self._config.source.on_topic_change != "restart":
                raise
            return error
        return None

    def _start_over(self, error: IdentityError) -> None:
        if self._config.source.on_topic_change != "restart":
            raise error
        self._begin_again(str(error))

    def _begin_again(self, why: str) -> None:
        """Put a new checkpoint in the place of this one, after its last batch is in all outputs."""
        topics = self._identity.start_over(self._last_batch().complete())
        state_steps.check(self._pipeline, self._checkpoint)  # which is a new one
        self._log.warning("source starts over", reason=why, topics=topics)

    def _last_batch(self) -> LastBatch:
        places = (self._checkpoint, self._identity, self._lake, self._outputs)
        return LastBatch(self._session, self._pipeline, self._cluster, *places, self._log)

    def _finish_batch(self) -> None:
        """Finish the batch that Spark would repeat without deleted topics. With `dedupe`, only Spark knows the keys."""
        last = self._last_batch()
        if self._config.dedupe is None and self._checkpoint.is_unfinished() and last.gone():
            last.complete()

    def _query(self, stop: threading.Event) -> None:
        self._failure, self._given_up = None, False
        self._gate = queries.Gate()
        self._query_known.clear()
        if self.totals.restarts:  # a topic or a table may have gone, or take less than before
            self._outputs.check()
        plan = self._plan = self._plans.next(self._identity.start())
        refusals = Refusals.of(self._session, self._pipeline, self._cluster.bootstrap_servers)
        self._writer = BatchWriter(
            self._config,
            plan,
            self._lake,
            self._outputs,
            self._checkpoint,
            self._source(),
            refusals,
            self._unfinished,
        )
        query = (
            plan.rows.writeStream.queryName(self._config.name)
            .option("checkpointLocation", self._checkpoint.location)
            .trigger(**self._trigger(self._checkpoint))
            .foreachBatch(self._batch)
            .start()
        )
        self._main = query
        self._query_id = str(query.id)
        self._query_known.set()
        running = [query, *self._windows(plan)]
        self._metrics.active(True)
        try:
            self._follow(running, stop)
        finally:
            self._metrics.active(False)
            self._given_up = True
            for each in running:
                queries.stop(each, 0 if stop.is_set() else None)  # those of a stop have had their time

    def _source(self) -> Source:
        places = (self._session, self._pipeline, self._cluster, self._checkpoint, self._identity, self._admin)
        found = batch_source.of_query(*places, lambda: self._main)

        def check(topics: Iterable[str]) -> identity.Identity:
            self._lock.check()
            return found.check(topics)

        return replace(found, check=check)

    def _windows(self, plan: Judged) -> list[StreamingQuery]:
        """Start the query of each windowed aggregate."""
        started = []
        first = int((self._checkpoint.notes.read(windows.NOTE) or {"first": 0})["first"])
        for window in self._outputs.windows:
            checkpoint = self._checkpoint.beside(state_steps.window_location(self._checkpoint, window.topic))
            trigger = self._trigger(checkpoint)
            late = LateRecords(self._session, self._pipeline, self._cluster, checkpoint)
            found = partial(late.of_windows, config=window.config, name=window.name)
            account = partial(self._accounts.windows, window.topic)
            places = (plan, checkpoint.location, trigger, Batches(checkpoint.notes))
            started.append(window.start(*places, found, account, first, self._lock.check, self._failed))
        return started

    def _failed(self, failure: EtlError) -> None:
        """Keep the first failure of a batch of windows."""
        self._failure = self._failure or failure

    def _trigger(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the trigger. That of `availableNow` repeats no batch whose partitions are not those of now."""
        if not self._once and isinstance(self._config.trigger, ProcessingTime):
            return {"processingTime": self._config.trigger.processing_time}
        return {"once": True} if self._repeats and checkpoint.is_unfinished() else {"availableNow": True}

    def _follow(self, running: list[StreamingQuery], stop: threading.Event) -> None:
        """Wait until the queries end, or are stopped between two batches."""
        seen: dict[int, str] = {}
        summarised = time.monotonic()
        while any(query.isActive for query in running):
            queries.wait(running, POLL_SECONDS)
            self._look_at_progress(running, seen)
            if stop.is_set() or self._pace_changed:
                self._gate.close()
                queries.stop_between_batches(running, self._gate, queries.STOP_SECONDS if stop.is_set() else None)
                return
            if any(queries.failure(query) is not None for query in running):
                break
            if time.monotonic() - summarised > SUMMARY_SECONDS:
                self._summarise()
                summarised = time.monotonic()
        self._look_at_progress(running, seen)
        for query in running:
            failure = queries.failure(query)
            if failure is not None:
                raise self._failure or failure

    def _look_at_progress(self, running: list[StreamingQuery], seen: dict[int, str]) -> None:
        """Update the metrics and the limit from new reports; `seen` has the time of each query's last report."""
        for number, query in enumerate(running):
            for progress in queries.progress_since(query, seen.get(number, "")):
                seen[number] = progress["timestamp"]
                if number:
                    continue
                self._metrics.progress(progress)
                if self._limit is not None and self._limit.learned(progress):
                    self._pace_changed = True

    # --- batches

    def _batch(self, batch: DataFrame, batch_id: int) -> None:
        """Process one batch. Spark calls it in its thread, one batch after the other."""
        self._query_known.wait()
        with self._gate.passed():
            try:
                place = BatchPlace.of(self._config.name, self._query_id, batch_id)
                self._accounts.batch(self._writer.write(batch, place), self._admin)
                for compaction in self._compactions:
                    compaction.after_batch()
            except EtlError as error:
                self._failure = error  # Spark's report of it would be a wall of text
                raise
            except Exception as error:
                self._failure = run_error(error) if self._given_up else self._causes.of_batch(error, batch_id)
                raise

    # --- the table's summaries and totals

    def _summarise(self) -> None:
        for published in self._summaries.publish():
            self._accounts.summary(*published)

    def _look_at_table(self) -> None:
        if self._lake is not None:
            self.version = self._summaries.version()
            self.rows_total = self._summaries.rows().count()
