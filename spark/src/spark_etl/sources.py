"""The Kafka topics a pipeline reads, as Spark frames of the stock connector."""

from collections.abc import Mapping

from spark_etl.config import KafkaOptions, Source, StartOffsets, StartTimestamp

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


def options(bootstrap_servers: str, source: Source, kafka: KafkaOptions) -> dict[str, str]:
    """Return the connector's options for a pipeline's source. They hold secrets: never print them."""
    chosen = {
        **kafka.connector,
        "kafka.bootstrap.servers": bootstrap_servers,
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
