"""One batch of judged rows, written to every output of a pipeline.

The steps of a batch. A driver may die after any of them, and the next try of the batch ends in the same state:

1. the begun mark; without a table the outcomes are counted before it;
2. the table: the good rows' files are written by the one job that also counts every outcome. `accept` compares the
   counts, applies `on_violation: fail` and `max_refused`, and checks that no topic was created again. Then the files
   are committed with the batch's number;
3. dead letters, if there are any (letters/refusals.py), then the other outputs in the order of the pipeline file.
   What each of them read is compared, too;
4. the batch is marked as finished; Spark commits the source offsets in its checkpoint.

A step that an earlier try has done is found and left out: the table knows the numbers of its batches, topics are read
from the begun mark on, PostgreSQL keeps the number of its last batch. The begun mark has a digest of the pipeline file:
judged by another one, records could be in the table and among the dead letters, or in neither.

Invariant, for each sink, in input records, before a batch is finished (counts.py):

    read = written + dead letters + dropped + late + duplicates
"""

import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.storagelevel import StorageLevel

from spark_etl.batch.identity import Identity
from spark_etl.batch.skipped import Skipped, shown, skipped_offsets
from spark_etl.checkpoint.batches import Batches, BatchPlace, judged_otherwise
from spark_etl.checkpoint.offsets import Checkpoint, Offsets
from spark_etl.config import PipelineConfig
from spark_etl.counts import LATE, Check, Counts, Taken, labelled, of_commit, of_sink
from spark_etl.errors import AccountingError, EtlError, OutputError, RuleError, RunError
from spark_etl.judgement import Judged
from spark_etl.kafka.ranges import Ranges
from spark_etl.lake import LakeTable
from spark_etl.letters import refusals
from spark_etl.letters.refusals import Refusals
from spark_etl.sinks import Outputs
from spark_etl.sinks.delta_rows import DeltaRows
from spark_etl.sinks.rows import MISFIT_STAGE, Sink


@dataclass(frozen=True, slots=True)
class Source:
    """The questions of a writer about a batch, besides its rows. An entry that is None is not asked."""

    check: Callable[[Iterable[str]], Identity]  # raises IdentityError
    taken: Callable[[], Taken] | None = None  # after the first job of a batch, if a step takes records away
    late: Callable[[int], DataFrame | None] | None = None  # the late records of a batch, as refused rows
    oldest: Callable[[Iterable[str]], Offsets] | None = None  # first offsets of topics, if expired ones are skipped


@dataclass(frozen=True, slots=True)
class Written:
    """Outcome of one batch. `counts` is None if an earlier run had committed it to the table."""

    place: BatchPlace
    counts: Counts | None
    end: Offsets
    seconds: float
    misfits: Mapping[Check, int] = field(default_factory=dict)  # good rows that an output other than the table refused
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # records by outcome, for each sink
    skipped: Skipped = field(default_factory=dict)

    @property
    def refused(self) -> dict[Check, int]:
        return {**(self.counts.refused if self.counts is not None else {}), **self.misfits}


class BatchWriter:
    def __init__(
        self,
        config: PipelineConfig,
        judged: Judged,
        table: LakeTable | None,
        outputs: Outputs,
        checkpoint: Checkpoint,
        source: Source,
        found_again: Refusals | None = None,
        unfinished: MutableMapping[BatchPlace, Counts] | None = None,
    ) -> None:
        """Write batches of `judged`.

        `unfinished` keeps the counts of a batch that the table has and another output lacks, for its next try by
        another writer of this run.
        """
        self._config = config
        self._judged = judged
        self._table = table
        self._outputs = outputs
        self._checkpoint = checkpoint
        self._source = source
        self._refusals = found_again
        self._unfinished = {} if unfinished is None else unfinished
        self._noted = ""  # blocks with refused rows, by the job that wrote the batch
        self._batches = Batches(checkpoint.notes)
        self._late: DataFrame | None = None  # of the batch at work, if they become letters
        self._skipped: Skipped = {}  # of the batch at work
        self._basis = ""  # of the batch at work

    def write(self, batch: DataFrame, place: BatchPlace, rows: DataFrame | None = None) -> Written:
        """Write one batch. Raises an EtlError if the batch may not be committed.

        `rows` are the good rows for the outputs other than the table; by default those of `batch`.
        """
        began = time.monotonic()
        end = self._checkpoint.end_offsets(place.batch_id)
        if end is None:
            raise OutputError(f"{self._checkpoint.location}: no offsets of batch {place.batch_id}")
        if self._batches.is_finished(place):
            return Written(place, None, end, time.monotonic() - began)
        # one read for all tables; with `on_data_loss: continue`, for all that expires meanwhile
        kept = bool(self._outputs.tables) or self._source.oldest is not None  # mutant: one-read-of-what-expires
        batch = batch.persist(StorageLevel.MEMORY_AND_DISK) if kept else batch
        try:
            return self._written(batch, place, rows, end, began)
        finally:
            if kept:
                batch.unpersist()
            if self._late is not None:
                self._late.unpersist()
            self._late, self._skipped = None, {}

    def _written(
        self, batch: DataFrame, place: BatchPlace, rows: DataFrame | None, end: Offsets, began: float
    ) -> Written:
        counts = self._committed(batch, place, end) if self._table is None else None
        basis = self._basis = self._judged.basis
        self._check_file(place, basis)
        begun_before = self._batches.begun(place, basis)
        if self._table is not None:
            counts = self._committed(batch, place, end)
        if counts is not None:
            self._unfinished[place] = counts
        base = self._numbers(counts, place)
        if counts is None or counts.refused or (counts.late and LATE in self._judged.checks):
            letters = self._outputs.letters.write(self._refused(batch, place, counts, end), begun_before)
            base = self._lettered(base, letters, counts, place)
        late = self._late_letters(place) if counts is None else self._late
        if late is not None:
            self._outputs.letters.write(late, begun_before)
        rows_of = {} if self._table is None else {f"delta:{self._table.location}": base}
        misfits: dict[Check, int] = {}
        kept = replace(place, commit=self._position(place, end, self._source.check(end)))
        for sink in self._outputs.rows:
            raw = self._config.gives_raw  # mutant: letters-come-back
            good = rows if rows is not None else self._judged.good(batch, raw=raw)
            number = sink.write(good, kept, begun_before)
            if counts is not None and rows is None:
                self._compare(counts, sink, place)
            if number:
                check = (MISFIT_STAGE, type(sink).__name__.lower())
                misfits[check] = misfits.get(check, 0) + number
            left_out = sink.left_out if isinstance(sink, DeltaRows) else (0, 0)
            rows_of[sink.name] = of_sink(base, sink.rows_read, sink.rows_written, left_out)
        self._batches.finished(place, self._outputs.numbered, rows_of)
        known = self._unfinished.pop(place, None)
        return Written(place, known, end, time.monotonic() - began, misfits, rows_of, self._skipped)

    def _compare(self, counts: Counts, sink: Sink, place: BatchPlace) -> None:
        """Raise AccountingError unless a sink has read the good rows of a batch. Some may have expired since."""
        lost = counts.written - (counts.written if sink.rows_read is None else sink.rows_read)
        if lost and not (lost > 0 and self._config.source.on_data_loss == "continue"):
            found = f"{counts.written} good rows, {sink.rows_read} for {sink.name}"
            raise AccountingError(f"batch {place.batch_id}: {found}")

    def _lettered(
        self, numbers: dict[str, int], letters: int, counts: Counts | None, place: BatchPlace
    ) -> dict[str, int]:
        """Return the records of a batch without the refused ones that are no letters, since they expired before.

        AccountingError: some are gone in the try that refused them.
        """
        refused = numbers.get("dlq", 0) + (numbers.get("late", 0) if LATE in self._judged.checks else 0)
        if counts is not None and letters < refused:  # mutant: letters-counted
            raise AccountingError(f"batch {place.batch_id}: {refused} refused records, {letters} dead letters")
        lost = refused - letters
        if lost <= 0 or not numbers or self._config.source.on_data_loss != "continue":
            return numbers
        return {**numbers, "in": numbers["in"] - lost, "dlq": numbers["dlq"] - lost, "expired": lost}

    def _numbers(self, counts: Counts | None, place: BatchPlace) -> dict[str, int]:
        """Return the records of a batch by outcome; none if only an earlier run knew them, and they are gone."""
        known = counts or self._unfinished.get(place)
        if known is not None:
            return {**known.numbers, **known.made}
        last = (self._table.last_metadata() if self._table is not None else None) or {}
        if (last.get("query"), last.get("batch")) != (place.query_id, place.batch_id):
            return {}
        return of_commit(last)

    def _late_letters(self, place: BatchPlace) -> DataFrame | None:
        """Return the late records of a batch as refused rows; None if they become no letters."""
        timed = self._config.decode.timestamp
        if self._source.late is None or timed is None or timed.late == "drop":
            return None
        return self._source.late(place.batch_id)

    def _check_file(self, place: BatchPlace, basis: str) -> None:
        """Refuse a batch that outputs may have as another file, or other joined tables, judged it.

        Nothing is written before the table.
        """
        what = self._batches.changed_since(place, basis)
        if not what:
            return
        if self._table is None:
            where = self._outputs.having(place, self._batches.begun_at(place), self._spans(place))
        elif self._table.holds(place.app_id, place.batch_id):
            where = "the table"
        else:
            where = self._outputs.table_with(place)
        if where is not None:
            raise judged_otherwise(place.batch_id, where, what, (join.path for join in self._config.join))

    def _spans(self, place: BatchPlace) -> Ranges:
        """Return the offsets of a batch."""
        start = self._checkpoint.start_offsets(place.batch_id) or {}
        return {
            topic: {number: (start.get(topic, {}).get(number, 0), last) for number, last in partitions.items()}
            for topic, partitions in (self._checkpoint.end_offsets(place.batch_id) or {}).items()
        }

    def _committed(self, batch: DataFrame, place: BatchPlace, end: Offsets) -> Counts | None:
        """Commit the batch to the table, if there is one; return its counts, None if the table holds it already."""
        if self._table is None:  # counts before any output gets a row
            outcomes = batch.agg(*self._judged.counters).collect()[0].asDict()
            return self._counted(batch, outcomes, place, end)[0]
        if self._table.holds(place.app_id, place.batch_id):
            return None
        if place.batch_id > 0 and not self._table.holds(place.app_id, place.batch_id - 1):
            raise OutputError(
                f"{self._table.location}: the checkpoint is at batch {place.batch_id}, but batch {place.batch_id - 1}"
                " is not in this table; remove the checkpoint to read everything again"
            )
        outcome = Observation()
        observed = batch.observe(outcome, *self._judged.counters, refusals.blocks())
        found: list[Counts] = []

        def accept(rows: int) -> Mapping[str, Any]:
            counts, identity = self._counted(batch, outcome.get, place, end)
            if rows != counts.written:
                raise AccountingError(f"batch {place.batch_id}: {counts.written} good rows, {rows} written")
            found.append(counts)
            self._noted = str(outcome.get[refusals.NAME] or "")
            return self._metadata(place, counts, end, identity)

        self._table.write(self._judged.good(observed), place.app_id, place.batch_id, accept)
        return found[0]

    def _refused(self, batch: DataFrame, place: BatchPlace, counts: Counts | None, end: Offsets) -> DataFrame:
        """Return the rows that become dead letters."""
        if counts is not None and self._table is not None and self._refusals is not None:
            start = self._checkpoint.start_offsets(place.batch_id) or {}
            refused = sum(counts.refused.values())
            found = self._refusals.found(self._noted, counts.rows, refused, start, end)
            if found is not None:
                return found
        return self._judged.refused(batch)

    def _counted(
        self, batch: DataFrame, outcome: Mapping[str, Any], place: BatchPlace, end: Offsets
    ) -> tuple[Counts, Identity]:
        """Return the counts of a batch that may be committed, and the identity of its source."""
        self._judged.check_tables()
        counts = self._judged.counts(outcome)
        if self._source.taken is not None:
            counts = counts.after(self._source.taken())
        if not counts.balanced:
            raise self._unbalanced(f"batch {place.batch_id}: the outcomes do not add up to the records: {counts}")
        if counts.late:
            self._late = self._late_letters(place)
        if self._late is not None:
            found = self._late.persist(StorageLevel.MEMORY_AND_DISK).count()
            if found != counts.late:
                raise AccountingError(
                    f"batch {place.batch_id}: {counts.late} late records, {found} found again. Does an expression"
                    " depend on the time? With decode.timestamp.late: drop, late records are only counted"
                )
        late = {LATE: counts.late} if self._late is not None else {}
        check_refused(self._config, place.batch_id, counts, {**counts.refused, **late})
        if self._source.oldest is not None:
            start = self._checkpoint.start_offsets(place.batch_id) or {}
            oldest, whole = self._source.oldest(end), self._source.taken is None
            self._skipped = skipped_offsets(batch, start, end, oldest, whole=whole)
        return counts, self._source.check(end)

    def _unbalanced(self, text: str) -> EtlError:
        """Return the failure of counts. Those of Spark's plan count a stage twice that a lost executor had run."""
        if self._source.taken is None:
            return AccountingError(text)
        failure = RunError(text)
        failure.transient = True
        return failure

    def _metadata(self, place: BatchPlace, counts: Counts, end: Offsets, identity: Identity) -> Mapping[str, Any]:
        return {
            **self._position(place, end, identity),
            **counts.commit,
            "skipped": shown(self._skipped),
        }

    def _position(self, place: BatchPlace, end: Offsets, identity: Identity) -> Mapping[str, Any]:
        """Return what `recover` needs to know of a batch."""
        start = self._checkpoint.start_offsets(place.batch_id) or {}
        return {
            "pipeline": place.pipeline,
            "query": place.query_id,
            "batch": place.batch_id,
            "start": {
                topic: {str(number): start.get(topic, {}).get(number, 0) for number in partitions}
                for topic, partitions in end.items()
            },
            "end": {topic: {str(number): offset for number, offset in found.items()} for topic, found in end.items()},
            "cluster": identity.cluster,
            "topic_ids": {topic: identity.topics[topic] for topic in end if topic in identity.topics},
            "planned_ms": self._checkpoint.planned_ms(place.batch_id),
            "basis": self._basis,
            "created_again": list(identity.again),
            "left": {topic: identity.topics[topic] for topic in identity.left},
            **(
                {"late_before": self._checkpoint.late_before(place.batch_id)} if self._config.dedupe is not None else {}
            ),
        }


def check_refused(config: PipelineConfig, batch: int, counts: Counts, letters: Mapping[Check, int]) -> None:
    """Raise RuleError for a rule with `on_violation: fail`, or for more letters than `max_refused` allows."""
    for rule in config.rules:
        number = counts.refused.get(("rules", rule.name), 0)
        if rule.on_violation == "fail" and number:
            raise RuleError(f"{number} records break the rule {rule.name}: {rule.expr}")
    allowed, refused = config.max_refused, sum(letters.values())
    if allowed is not None and refused > allowed * counts.rows:
        raise RuleError(
            f"batch {batch}: {refused} of {counts.rows} records are refused,"
            f" more than max_refused ({allowed:.6g} of all): {labelled(letters)}"
        )
