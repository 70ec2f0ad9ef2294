"""Ranges of offsets: the records of them as a static frame, and the condition of their rows in the table."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_etl import sources
from spark_etl.config import PipelineConfig

Ranges = dict[str, dict[int, tuple[int, int]]]  # topic → partition → first offset, offset after the last


def between(start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]) -> Ranges:
    """Return the ranges from `start` to `end`, offsets as a commit's metadata has them. Empty ranges are left out."""
    found: Ranges = {}
    for topic, partitions in end.items():
        for partition, stop in partitions.items():
            first = start.get(topic, {}).get(partition, 0)
            if first < stop:
                found.setdefault(topic, {})[int(partition)] = (first, stop)
    return found


def records(session: SparkSession, bootstrap_servers: str, config: PipelineConfig, ranges: Ranges) -> DataFrame:
    """Return the records of the ranges."""
    options = sources.range_options(bootstrap_servers, config.source, config.kafka, ranges)
    return session.read.format("kafka").options(**options).load()


def condition(ranges: Ranges) -> str:
    """Return the SQL condition of the ranges' rows. Names of topics have no quotes."""
    return " OR ".join(
        f"(_topic = '{topic}' AND _partition = {partition} AND _offset >= {start} AND _offset < {end})"
        for topic, partitions in ranges.items()
        for partition, (start, end) in partitions.items()
    )
