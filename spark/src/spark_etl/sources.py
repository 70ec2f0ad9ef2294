"""The Kafka topics a pipeline reads, as Spark frames of the stock connector."""

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from spark_etl.config import Source

COLUMNS = {  # of every frame here
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def stream(session: SparkSession, bootstrap_servers: str, source: Source) -> DataFrame:
    """Return the source as a stream. The query's checkpoint has its position; `start` applies to the first run only."""
    reader = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", ",".join(source.topics))
        .option("startingOffsets", source.start)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
    )
    if source.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(source.max_offsets_per_trigger))
    return reader.load()


def since(session: SparkSession, bootstrap_servers: str, topic: str, start: datetime) -> DataFrame:
    """Return the records of a topic from a time on, which show the writes of an interrupted run."""
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingTimestamp", str(int(start.timestamp() * 1000)))
        .option("startingOffsetsByTimestampStrategy", "latest")  # nothing that new: nothing to read
        .option("includeHeaders", "true")
        .load()
    )
