"""What the writer of a query's batches asks Spark and the broker about a batch."""

from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_etl.batch.identity import SourceIdentity
from spark_etl.batch.late_records import LateRecords
from spark_etl.batch.writer import Source
from spark_etl.checkpoint.offsets import Checkpoint, Offsets
from spark_etl.config import Pipeline
from spark_etl.counts import Taken
from spark_etl.kafka.admin import KafkaAdmin
from spark_etl.kafka.cluster import Cluster
from spark_etl.query.plan import BatchPlan


def of_query(
    session: SparkSession,
    pipeline: Pipeline,
    cluster: Cluster,
    checkpoint: Checkpoint,
    identity: SourceIdentity,
    admin: KafkaAdmin,
    query: Callable[[], StreamingQuery],
) -> Source:
    """Return the source of the batches of `query`, which runs by the time of the first question."""
    config = pipeline.config

    def taken() -> Taken:
        return BatchPlan(query()).taken(dedupe=config.dedupe is not None, statements=bool(config.transform))

    def oldest(topics: Iterable[str]) -> Offsets:
        there = [name for name, topic_id in admin.topic_ids(topics).items() if topic_id is not None]
        return admin.start_offsets(there)

    return Source(
        identity.check,
        taken if config.takes_away else None,
        LateRecords(session, pipeline, cluster, checkpoint).of_dedupe,
        oldest if config.source.on_data_loss == "continue" else None,
    )
