"""A summary of all committed rows: one record per group, computed again from the table when the table has grown.

The headers of a record are `__etl.pipeline` and `__etl.version`, the version of the table that it shows. The last
record of a key is the answer; a table that did not grow gets no records. A group that the topic would not take becomes
a dead letter (groups.py).
"""

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.config import KafkaSinkConfig
from spark_etl.kafka.cluster import Cluster
from spark_etl.sinks import groups
from spark_etl.sinks.aggregates import PIPELINE_HEADER, VERSION_HEADER, group_key, records, selected
from spark_etl.sinks.dead_letters import DeadLetters
from spark_etl.sinks.topics import Identity, TopicWriter

_IDENTITY = Identity((PIPELINE_HEADER, VERSION_HEADER), with_key=True)


class SummaryTopic:
    """The topic of one summary of a pipeline."""

    def __init__(
        self, session: SparkSession, cluster: Cluster, config: KafkaSinkConfig, pipeline: str, letters: DeadLetters
    ) -> None:
        self._writer = TopicWriter(session, cluster, config.topic, _IDENTITY, config.client)
        self._config = config
        self._pipeline = pipeline
        self._letters = letters

    @property
    def topic(self) -> str:
        return self._config.topic

    def check(self) -> None:
        """Create the topic unless it exists. Raises OutputError in one line."""
        self._writer.check()

    def publish(self, rows: DataFrame, version: int, begun_before: datetime | None) -> groups.Written:
        """Write the summary of all rows of the table at `version`; return the numbers of groups."""
        found = summary(rows, self._config, self._pipeline, version).persist()
        try:
            written = groups.write(self._writer, found, begun_before)
            if written.refused:
                groups.refuse(self._letters, self._writer, found, f"kafka:{self.topic}", begun_before)
        finally:
            found.unpersist()
        return written


def summary(rows: DataFrame, config: KafkaSinkConfig, pipeline: str, version: int) -> DataFrame:
    """Return the records (key, value, headers) of a summary."""
    assert config.aggregate is not None
    group = config.aggregate.group_by
    summed = rows.groupBy(*group).agg(*selected(config.aggregate.select))
    headers = {PIPELINE_HEADER: F.lit(pipeline), VERSION_HEADER: F.lit(str(version))}
    return records(summed, group_key(group), headers)
