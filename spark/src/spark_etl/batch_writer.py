"""One batch of judged rows, written to every output of a pipeline.

The steps of a batch. A driver may die after any of them, and the next try of the batch ends in the same state:

1. the begun mark; without a table the outcomes are counted before it;
2. the table: the good rows' files are written by the one job that also counts every outcome. `accept` compares the
   counts, applies `on_violation: fail` and `max_refused`, and checks that no topic was created again. Then the files
   are committed with the batch's number;
3. dead letters, if there are any (letters/refusals.py), then the other outputs in the order of the pipeline file;
4. the batch is marked as finished; Spark commits the source offsets in its checkpoint.

A step that an earlier try has done is found and left out: the table knows the numbers of its batches, topics are read
from the begun mark on, PostgreSQL keeps the number of its last batch. The begun mark has a digest of the pipeline file:
judged by another one, records could be in the table and among the dead letters, or in neither.
"""

import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, Observation

from spark_etl.checkpoint import Checkpoint, Offsets
from spark_etl.config import PipelineConfig
from spark_etl.errors import AccountingError, OutputError, RuleError
from spark_etl.judgement import Check, Counts, Judged
from spark_etl.lake import LakeTable
from spark_etl.letters import refusals
from spark_etl.letters.refusals import Refusals
from spark_etl.ranges import Ranges
from spark_etl.run.batches import Batches, BatchPlace
from spark_etl.run.identity import Identity
from spark_etl.sinks import Outputs


@dataclass(frozen=True, slots=True)
class Written:
    """Outcome of one batch. `counts` is None if an earlier run had committed it to the table."""

    place: BatchPlace
    counts: Counts | None
    end: Offsets
    seconds: float
    misfits: Mapping[Check, int] = field(default_factory=dict)  # good rows that an output other than the table refused

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
        check: Callable[[Iterable[str]], Identity],
        found_again: Refusals | None = None,
        unfinished: MutableMapping[BatchPlace, Counts] | None = None,
    ) -> None:
        """Write batches of `judged`. `check` returns the identity of the source's topics, or raises IdentityError.

        `unfinished` keeps the counts of a batch that the table has and another output lacks, for its next try by
        another writer of this run.
        """
        self._config = config
        self._judged = judged
        self._table = table
        self._outputs = outputs
        self._checkpoint = checkpoint
        self._check = check
        self._refusals = found_again
        self._unfinished = {} if unfinished is None else unfinished
        self._noted = ""  # blocks with refused rows, by the job that wrote the batch
        self._batches = Batches(checkpoint.notes)

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
        counts = self._committed(batch, place, end) if self._table is None else None
        self._check_file(place)
        begun_before = self._batches.begun(place, self._judged.file)
        if self._table is not None:
            counts = self._committed(batch, place, end)
        if counts is not None:
            self._unfinished[place] = counts
        if counts is None or counts.refused:
            self._outputs.letters.write(self._refused(batch, place, counts, end), begun_before)
        misfits: dict[Check, int] = {}
        kept = replace(place, commit=self._position(place, end, self._check(end)))
        for sink in self._outputs.rows:
            good = rows if rows is not None else self._judged.good(batch, raw=self._config.keeps_raw)
            number = sink.write(good, kept, begun_before)
            if number:
                check = ("sink", type(sink).__name__.lower())
                misfits[check] = misfits.get(check, 0) + number
        self._batches.finished(place, self._outputs.numbered)
        return Written(place, self._unfinished.pop(place, None), end, time.monotonic() - began, misfits)

    def _check_file(self, place: BatchPlace) -> None:
        """Refuse a batch that outputs may have as another file judged it. Nothing is written before the table."""
        if self._batches.begun_by(place) in ("", self._judged.file):
            return
        if self._table is None:
            where = self._outputs.having(place, self._batches.begun_at(place), self._spans(place))
        else:
            where = "the table" if self._table.holds(place.app_id, place.batch_id) else None
        if where is not None:
            raise OutputError(
                f"batch {place.batch_id} is in {where} as an earlier pipeline file judged it, and others may lack it:"
                " run with that file once before you change decode, join, derive, rules, dedupe or transform"
            )

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
            return self._counted(batch.agg(*self._judged.counters).collect()[0].asDict(), place, end)[0]
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
            counts, identity = self._counted(outcome.get, place, end)
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

    def _counted(self, outcome: Mapping[str, Any], place: BatchPlace, end: Offsets) -> tuple[Counts, Identity]:
        """Return the counts of a batch that may be committed, and the identity of its source."""
        self._judged.check_tables()
        counts = self._judged.counts(outcome)
        if not counts.balanced:
            raise AccountingError(f"batch {place.batch_id}: the outcomes do not add up to the records: {counts}")
        for rule in self._config.rules:
            number = counts.refused.get(("rules", rule.name), 0)
            if rule.on_violation == "fail" and number:
                raise RuleError(f"{number} records break the rule {rule.name}: {rule.expr}")
        allowed = self._config.max_refused
        if allowed is not None and counts.refused_share > allowed:
            raise RuleError(
                f"batch {place.batch_id}: {sum(counts.refused.values())} of {counts.rows} records are refused,"
                f" more than max_refused ({allowed:.6g} of all): {labelled(counts.refused)}"
            )
        return counts, self._check(end)

    def _metadata(self, place: BatchPlace, counts: Counts, end: Offsets, identity: Identity) -> Mapping[str, Any]:
        return {
            **self._position(place, end, identity),
            "rows_in": counts.rows,
            "rows_out": counts.good,
            "refused": labelled(counts.refused),
            "dropped": labelled(counts.dropped),
            **({} if counts.exploded is None else {"exploded": counts.exploded}),
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
            "created_again": list(identity.again),
            "left": {topic: identity.topics[topic] for topic in identity.left},
        }


def labelled(counts: Mapping[Check, int]) -> dict[str, int]:
    """Return counts by `stage.rule`, as log lines and commits show them."""
    return {f"{stage}.{rule}": count for (stage, rule), count in counts.items()}
