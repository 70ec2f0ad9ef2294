"""The number of records of a batch that has about `source.max_bytes_per_trigger` bytes.

Spark limits batches by records only. Here the mean size of a record is measured on each batch, and the limit in
records follows from it. The first batch has the mean of an earlier run, or MEAN_BYTES_FIRST. A batch may exceed the
limit when records grow; the next one does not.
"""

from spark_etl.notes import Notes

MEAN_BYTES_FIRST = 10_000  # small batches first: a record has seldom more
TOO_LARGE = 1.25  # the limit in records is lowered when a batch would exceed the bytes by more
TOO_SMALL = 0.5  # and raised when it would use less than this part of them
_NOTE = "record_size"


class ByteLimit:
    """The limit of a query, from the mean size of a record that its batches had."""

    def __init__(self, bytes_max: int, records_max: int | None, notes: Notes) -> None:
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._notes = notes
        kept = notes.read(_NOTE)
        self._mean = float(kept["mean"]) if kept is not None else float(MEAN_BYTES_FIRST)

    @property
    def records(self) -> int:
        """The most records of a batch."""
        fitting = max(1, int(self._bytes_max / self._mean))
        return fitting if self._records_max is None else min(fitting, self._records_max)

    def measured(self, records: int, size: int) -> bool:
        """Learn the size of a batch; return whether the limit must change, which needs a new query."""
        if records <= 0:
            return False
        before = self.records
        self._mean = max(1.0, size / records)
        now = self.records
        if before <= now * TOO_LARGE and (before >= now * TOO_SMALL or records < before):
            return False
        self._notes.write(_NOTE, {"mean": self._mean})
        return now != before
