"""The number of records of a batch that has about `source.max_bytes_per_trigger` bytes.

Spark limits batches by offsets only. Offsets of compacted and aborted records and of markers have no bytes. The mean
bytes of a record, and of an offset, are measured on each batch, and the limit in offsets follows from them. Where few
offsets have a record, a batch gets at most SPARSE_MAX times as many as if all had one. The limit grows at each batch
without a record, up to HOLE_MAX times as many. The first batch has the mean of an earlier run, or MEAN_BYTES_FIRST. A
batch may exceed the limit when records grow, or at the end of such offsets; the next one does not.
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint.notes import Notes
from spark_etl.query import queries

MEAN_BYTES_FIRST = 10_000  # small batches first: a record has seldom more
TOO_LARGE = 1.25  # the limit in records is lowered when a batch would exceed the bytes by more
TOO_SMALL = 0.5  # and raised when it would use less than this part of them
SPARSE_MAX, HOLE_MAX = 4, 1_000
GROWTH = 4  # of the limit at each batch without a record
RECORD_SIZES = "millrace_record_sizes"  # name of the observation
_NOTE = "record_size"


def observed(records: DataFrame, *, sizes: bool) -> DataFrame:
    """Return the frame of a source, whose batches report the number of their records, with `sizes` their bytes too."""
    if not sizes:
        return records.observe(RECORD_SIZES, F.count(F.lit(1)).alias("records"))
    size = F.coalesce(F.octet_length("value"), F.lit(0)) + F.coalesce(F.octet_length("key"), F.lit(0))
    return records.observe(RECORD_SIZES, F.count(F.lit(1)).alias("records"), F.sum(size).alias("size"))


class ByteLimit:
    """The limit of a query, from the mean size of a record that its batches had."""

    def __init__(self, bytes_max: int, records_max: int | None, notes: Notes) -> None:
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._notes = notes
        kept = notes.read(_NOTE)
        #: The most offsets of a batch, for queries that start from now on.
        self.records = self._dense = self._fitting(float(kept["mean"]) if kept is not None else float(MEAN_BYTES_FIRST))

    def learned(self, progress: dict[str, Any]) -> bool:
        """Learn from the report of a batch of an observed frame; return whether the limit changes."""
        sizes = progress.get("observedMetrics", {}).get(RECORD_SIZES)
        if not sizes:
            return False
        records = sizes["records"] or 0
        offsets = max(queries.offsets(progress), records)
        return self.measured(records, sizes["size"] or 0, offsets=offsets, limited=queries.limited(progress))

    def measured(self, records: int, size: int, *, offsets: int, limited: bool) -> bool:
        """Learn the size of a batch; return whether the limit changes, which needs a new query.

        `limited` says whether the source had more for the batch. The number of offsets alone does not: Spark rounds the
        share of each partition down.
        """
        if records <= 0:
            return limited and offsets > 0 and self._grown()
        mean = max(1.0, size / records)
        self._dense = self._fitting(mean)
        fitting = min(self._fitting(mean * records / offsets), self._dense * SPARSE_MAX)
        too_large = self.records > fitting * TOO_LARGE
        too_small = self.records < fitting * TOO_SMALL and (limited or offsets >= self.records)  # mutant: batches-grow
        if not too_large and not too_small:
            return False
        self.records = fitting
        self._notes.write(_NOTE, {"mean": mean})
        return True

    def _grown(self) -> bool:
        """Raise the limit over a hole, for this run: the note keeps the size of records."""
        before, self.records = self.records, min(self.records * GROWTH, self._dense * HOLE_MAX)
        return self.records > before

    def _fitting(self, mean: float) -> int:
        fitting = max(1, int(self._bytes_max / mean))
        return fitting if self._records_max is None else min(fitting, self._records_max)
