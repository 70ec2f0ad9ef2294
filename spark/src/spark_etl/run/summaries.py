"""The summaries of a table: which version each topic shows, and their publication when the table has grown.

CHECKPOINT/_etl/published/<topic>.json    {"version": 5}
"""

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession

from spark_etl.checkpoint.batches import Batches, BatchPlace
from spark_etl.checkpoint.notes import Notes
from spark_etl.lake import LakeTable
from spark_etl.sinks.groups import Written
from spark_etl.sinks.summaries import SummaryTopic


class Summaries:
    def __init__(
        self, session: SparkSession, table: LakeTable | None, topics: Sequence[SummaryTopic], notes: Notes
    ) -> None:
        self._session = session
        self._table = table
        self._topics = topics
        self._notes = notes
        self._batches = Batches(notes)

    def version(self) -> int:
        """Return the version of the table."""
        assert self._table is not None
        return int(self._table.delta.snapshot().version())

    def rows(self, version: int | None = None) -> DataFrame:
        """Return all rows of the table, at a version of it."""
        assert self._table is not None
        reader = self._session.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self._table.location)

    def publish(self) -> Iterator[tuple[str, int, Written]]:
        """Publish to the topics that show an older version; yield topic, version and numbers of groups of each."""
        if self._table is None or not self._topics:
            return
        version = self.version()
        for target in self._topics:
            note = f"published/{target.topic}"
            shown = self._notes.read(note)
            if shown is not None and int(shown["version"]) >= version:
                continue
            place = BatchPlace.of(target.topic, f"summary-{target.topic}", version)
            written = target.publish(self.rows(version), version, self._batches.begun(place))
            self._shown(note, version)
            self._batches.finished(place)
            yield target.topic, version, written

    def _shown(self, note: str, version: int) -> None:
        self._notes.write(note, {"version": version})
