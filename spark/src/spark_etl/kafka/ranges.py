"""Ranges of offsets: the records of them as a static frame, those outside, and the condition of rows in the table."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.config import PipelineConfig
from spark_etl.kafka import sources

Ranges = dict[str, dict[int, tuple[int, int]]]  # topic → partition → first offset, offset after the last
OffsetRanges = Mapping[int, Sequence[tuple[int, int]]]  # of one topic: partition → first and last offset, in order
#: Many ranges are found by blocks of 1,024 offsets: comparing each record with each range takes hours.
BLOCK_BITS = 10


def records(session: SparkSession, bootstrap_servers: str, config: PipelineConfig, ranges: Ranges) -> DataFrame:
    """Return the records of the ranges."""
    if not ranges:
        return sources.no_records(session)
    options = sources.range_options(bootstrap_servers, config.source, config.kafka, ranges)
    return session.read.format("kafka").options(**options).load()


def outside(records: DataFrame, ranges: OffsetRanges) -> DataFrame:
    """Return the records (`partition`, `offset`) of one topic that are in none of the ranges."""
    rows = [(partition, first, last) for partition, each in ranges.items() for first, last in each]
    if not rows:
        return records
    found = records.sparkSession.createDataFrame(rows, "p int, first bigint, last bigint")
    blocks = F.sequence(F.shiftright("first", BLOCK_BITS), F.shiftright("last", BLOCK_BITS))
    known = found.select("*", F.explode(blocks).alias("block"))
    same = (records["partition"] == known["p"]) & (F.shiftright(records["offset"], BLOCK_BITS) == known["block"])
    same = same & records["offset"].between(known["first"], known["last"])
    return records.join(F.broadcast(known), same, "left_anti")


def spanned(rows: DataFrame) -> Ranges:
    """Return the ranges from the first to the last record of each partition, of good rows or judged ones."""
    bounds = rows.groupBy("_topic", "_partition").agg(F.min("_offset"), F.max("_offset")).collect()
    found: Ranges = {}
    for topic, partition, first, last in bounds:
        found.setdefault(topic, {})[partition] = (first, last + 1)
    return found


def condition(ranges: Ranges) -> str:
    """Return the SQL condition of the ranges' rows. Names of topics have no quotes."""
    return " OR ".join(
        f"(_topic = '{topic}' AND _partition = {partition} AND _offset >= {start} AND _offset < {end})"
        for topic, partitions in ranges.items()
        for partition, (start, end) in partitions.items()
    )
