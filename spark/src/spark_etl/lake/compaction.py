"""`compact_every`: a run compacts its own table between two batches, as the command `compact` does.

    CHECKPOINT/_etl/compacted.json    {"/data/lake/orders": 217}

The commits since the last compaction are counted by the versions of the table, so that runs of one batch each count
together. A compaction that fails is logged, and tried again after as many commits: no row depends on it.
"""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_etl.checkpoint.notes import Notes
from spark_etl.lake import maintenance
from spark_etl.lake.table import LakeTable
from spark_etl.logs import Log
from spark_etl.reasons import reason

_NOTE = "compacted"


@dataclass(frozen=True)
class Compaction:
    """Compactions of one table of a run. Use it in the thread of the batches only."""

    session: SparkSession
    table: LakeTable
    notes: Notes
    log: Log

    def after_batch(self) -> None:
        """Compact the table if it has got as many commits as the file says since the last time. Raises nothing."""
        every = self.table.config.compact_every
        if every is None:
            return
        try:
            self._compact(every)
        except Exception as error:  # the batch is in every output
            self.log.warning("table not compacted", table=self.table.location, reason=reason(error))

    def _compact(self, every: int) -> None:
        version, last = self.table.delta.version(), int((self.notes.read(_NOTE) or {}).get(self.table.location, 0))
        if last <= version < last + every:
            return
        self._noted(version)  # also if it fails
        outcome = maintenance.compact(self.session, self.table)
        self._noted(outcome.version)
        self.log.info("table compacted", table=self.table.location, **maintenance.summary(outcome))

    def _noted(self, version: int) -> None:
        self.notes.write(_NOTE, {**(self.notes.read(_NOTE) or {}), self.table.location: version})
