"""The accounts of a run: what its batches did, in its totals, in the metrics and in a log line for each batch."""

from dataclasses import dataclass

from spark_etl.batch import skipped
from spark_etl.batch.writer import Written
from spark_etl.checkpoint.offsets import Offsets
from spark_etl.config import PipelineConfig
from spark_etl.counts import LATE, OUTCOMES, Check, labelled
from spark_etl.errors import EtlError
from spark_etl.kafka.admin import KafkaAdmin
from spark_etl.logs import Log
from spark_etl.metrics import Metrics
from spark_etl.sinks import groups
from spark_etl.sinks.rows import MISFIT_STAGE


@dataclass(slots=True)
class Totals:
    """Totals of one run."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_dlq: int = 0
    rows_dropped: int = 0
    rows_late: int = 0
    rows_duplicates: int = 0
    summaries: int = 0
    restarts: int = 0


@dataclass(frozen=True)
class Accounts:
    """The accounts of the run of one pipeline."""

    config: PipelineConfig
    totals: Totals
    metrics: Metrics
    log: Log

    def batch(self, written: Written, admin: KafkaAdmin) -> None:
        """Account for a batch that every output holds."""
        self._publish(written.end, admin)
        counts, batch = written.counts, written.place.batch_id
        for sink, numbers in written.rows.items():
            if numbers.get("expired"):
                self.log.warning("records expired before an output read them", batch=batch, output=sink, **numbers)
        if counts is None:
            self.log.info("batch was committed by an earlier run", batch=batch)
            return
        letters = {**written.refused, **self._late_letters(LATE, counts.late)}
        self.totals.batches += 1
        rows = {f"rows_{name}": number for name, number in counts.numbers.items()}
        rows["rows_dlq"] = sum(written.refused.values())
        for name in OUTCOMES:
            total = f"rows_{name}"
            setattr(self.totals, total, getattr(self.totals, total) + rows[total])
        self.metrics.committed(counts.numbers, letters)
        self.log.info(
            "batch committed",
            batch=batch,
            query=written.place.query_id,
            **rows,
            refused=labelled(letters),
            dropped=labelled(counts.dropped),
            **counts.made,
            written={name: numbers["out"] for name, numbers in written.rows.items()},
            seconds=round(written.seconds, 3),
        )
        share, allowed = sum(letters.values()) / max(counts.rows, 1), self.config.warn_refused
        if allowed is not None and share > allowed:
            self.log.warning("many records refused", batch=batch, share=round(share, 6), refused=labelled(letters))
        if written.skipped:
            self.metrics.skipped(skipped.number(written.skipped))
            ranges = skipped.shown(written.skipped)
            self.log.warning("offsets had expired and were skipped", batch=batch, skipped=ranges)

    def _late_letters(self, check: Check, late: int) -> dict[Check, int]:
        """Return the letters of late records by their check; none if these are dropped."""
        timed = self.config.decode.timestamp
        return {check: late} if late and timed is not None and timed.late == "dlq" else {}

    def windows(self, topic: str, batch: int, rows: dict[str, int]) -> None:
        """Account for a batch of windows."""
        records = {name: rows[name] for name in OUTCOMES}
        letters = self._late_letters((MISFIT_STAGE, LATE[1]), rows["late"])
        self.metrics.windows(topic, records, letters)
        if rows["in"] or rows["groups"]:
            named = {f"rows_{name}": number for name, number in records.items()}
            self.log.info("windows committed", batch=batch, topic=topic, **named, groups=rows["groups"])
        self._refused_groups(topic, rows["groups_dlq"])

    def summary(self, topic: str, version: int, written: groups.Written) -> None:
        """Account for a summary in its topic."""
        self.totals.summaries += written.groups
        self.log.info("summary published", topic=topic, version=version, records=written.groups)
        self._refused_groups(topic, written.refused)

    def _refused_groups(self, topic: str, number: int) -> None:
        if number:
            self.metrics.refused({groups.CHECK: number})
            self.log.warning("groups refused", topic=topic, groups_dlq=number)

    def _publish(self, end: Offsets, admin: KafkaAdmin) -> None:
        """Commit a batch's end offsets to the group, for tools that show lag. The checkpoint remains the truth."""
        group = self.config.offsets.publish_group or f"etl.{self.config.name}"
        try:
            admin.commit(group, end)
        except EtlError as error:
            self.log.warning("offsets not published", group=group, reason=str(error))
