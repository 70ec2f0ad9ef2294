"""The number of records of a batch that has about `source.max_bytes_per_trigger` bytes.

Spark limits batches by records only. Here the mean size of a record is measured on each batch, and the limit in
records follows from it. The first batch has the mean of an earlier run, or MEAN_BYTES_FIRST. A batch may exceed the
limit when records grow; the next one does not.
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl import queries
from spark_etl.notes import Notes

MEAN_BYTES_FIRST = 10_000  # small batches first: a record has seldom more
TOO_LARGE = 1.25  # the limit in records is lowered when a batch would exceed the bytes by more
TOO_SMALL = 0.5  # and raised when it would use less than this part of them
RECORD_SIZES = "millrace_record_sizes"  # name of the observation
_NOTE = "record_size"


def observed(records: DataFrame) -> DataFrame:
    """Return the frame of a source, whose batches report the number and the bytes of their records."""
    size = F.coalesce(F.octet_length("value"), F.lit(0)) + F.coalesce(F.octet_length("key"), F.lit(0))
    return records.observe(RECORD_SIZES, F.count(F.lit(1)).alias("records"), F.sum(size).alias("size"))


class ByteLimit:
    """The limit of a query, from the mean size of a record that its batches had."""

    def __init__(self, bytes_max: int, records_max: int | None, notes: Notes) -> None:
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._notes = notes
        kept = notes.read(_NOTE)
        #: The most records of a batch, for queries that start from now on.
        self.records = self._fitting(float(kept["mean"]) if kept is not None else float(MEAN_BYTES_FIRST))

    def learned(self, progress: dict[str, Any]) -> bool:
        """Learn from the report of a batch of an observed frame; return whether the limit changes."""
        sizes = progress.get("observedMetrics", {}).get(RECORD_SIZES)
        if not sizes:
            return False
        return self.measured(sizes["records"] or 0, sizes["size"] or 0, limited=queries.limited(progress))

    def measured(self, records: int, size: int, *, limited: bool) -> bool:
        """Learn the size of a batch; return whether the limit changes, which needs a new query.

        `limited` says whether the source had more for the batch. The number of records alone does not: offsets of
        compacted records and of markers count for Spark's limit, and Spark rounds the share of each partition down.
        """
        if records <= 0:
            return False
        mean = max(1.0, size / records)
        fitting = self._fitting(mean)
        too_large = self.records > fitting * TOO_LARGE
        too_small = self.records < fitting * TOO_SMALL and (limited or records >= self.records)
        if not too_large and not too_small:
            return False
        self.records = fitting
        self._notes.write(_NOTE, {"mean": mean})
        return True

    def _fitting(self, mean: float) -> int:
        fitting = max(1, int(self._bytes_max / mean))
        return fitting if self._records_max is None else min(fitting, self._records_max)
