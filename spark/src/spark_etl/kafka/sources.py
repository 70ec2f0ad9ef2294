"""The Kafka topics a pipeline reads, as Spark frames of the stock connector."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint.offsets import Offsets
from spark_etl.config import KafkaOptions, PipelineConfig, Source, StartOffsets, StartTimestamp
from spark_etl.kafka.cluster import Cluster

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

Ranges = Mapping[str, Mapping[int, tuple[int, int]]]  # topic → partition → first offset, offset after the last

EARLIEST, LATEST = -2, -1  # in the connector's startingOffsets


def no_records(session: SparkSession) -> DataFrame:
    """Return an empty frame with the columns of records."""
    return session.range(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items()))


def range_options(bootstrap_servers: str, source: Source, kafka: KafkaOptions, ranges: Ranges) -> dict[str, str]:
    """Return the connector's options for a static frame of ranges of offsets."""
    found = options(bootstrap_servers, source, kafka)
    for name in list(found):
        if name.startswith(("subscribe", "starting")) or name == "maxOffsetsPerTrigger":
            del found[name]
    found["assign"] = json.dumps({topic: list(partitions) for topic, partitions in ranges.items()})
    for number, name in enumerate(("startingOffsets", "endingOffsets")):
        found[name] = json.dumps(
            {t: {str(p): span[number] for p, span in partitions.items()} for t, partitions in ranges.items()}
        )
    return found


def batch(
    session: SparkSession, bootstrap_servers: str, config: PipelineConfig, start: Offsets, end: Offsets
) -> DataFrame:
    """Return the records between two positions; a partition that `start` lacks is read from its first record."""
    ranges = {
        topic: {
            partition: (start.get(topic, {}).get(partition, EARLIEST), last)
            for partition, last in partitions.items()
            if start.get(topic, {}).get(partition) != last
        }
        for topic, partitions in end.items()
    }
    ranges = {topic: partitions for topic, partitions in ranges.items() if partitions}
    if not ranges:
        return no_records(session)
    found = range_options(bootstrap_servers, config.source, config.kafka, ranges)
    return session.read.format("kafka").options(**found).load()


def options(bootstrap_servers: str, source: Source, kafka: KafkaOptions) -> dict[str, str]:
    """Return the connector's options for a pipeline's source. They hold secrets: never print them."""
    chosen = {
        **Cluster(bootstrap_servers, kafka.properties).reading(),
        **source.client.connector(),
        "kafka.isolation.level": source.isolation,
        "failOnDataLoss": str(source.on_data_loss == "fail").lower(),
        "includeHeaders": "true",
        **_start(source),
    }
    if source.pattern is not None:
        chosen["subscribePattern"] = source.pattern
    else:
        chosen["subscribe"] = ",".join(source.topics)
    if source.min_partitions is not None:
        chosen["minPartitions"] = str(source.min_partitions)
    if source.max_offsets_per_trigger is not None:
        chosen["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    return chosen


def _start(source: Source) -> Mapping[str, str]:
    match source.start:
        case StartTimestamp(milliseconds=milliseconds):
            return {"startingTimestamp": str(milliseconds), "startingOffsetsByTimestampStrategy": "latest"}
        case StartOffsets(document=document):
            return {"startingOffsets": document}
        case name:
            return {"startingOffsets": name}
