"""Offsets that had expired before a batch read them: `source.on_data_loss: continue` goes past them.

The log may be cut while it is read, so a reader may go past records more than once.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint.offsets import Offsets
from spark_etl.kafka.ranges import Ranges, condition

RANGES_MAX = 1_000  # of one batch, in the middle of what it read
#: Topic → partition → ranges, each of a first offset and the offset after the last.
Skipped = Mapping[str, Mapping[int, Sequence[tuple[int, int]]]]


def skipped_offsets(batch: DataFrame, start: Offsets, end: Offsets, oldest: Offsets, *, whole: bool = True) -> Skipped:
    """Return the offsets of a batch that had expired before they were read, given the first offsets of now.

    Records that expired after they were read are none of them: the records of the batch are looked at. `whole`: the
    batch has all records that were read. Else only its first one says where reading began.
    """
    expired: Ranges = {}
    for topic, partitions in end.items():
        for partition, stop in partitions.items():
            first = start.get(topic, {}).get(partition, 0)  # a partition that is new begins at 0
            gone = min(oldest.get(topic, {}).get(partition, 0), stop)
            if first < gone:
                expired.setdefault(topic, {})[partition] = (first, gone)
    if not expired:
        return {}
    place = ("_topic", "_partition")
    read = batch.where(condition(expired)).select(*place, "_offset")
    found = {(t, p): [span] for t, partitions in expired.items() for p, span in partitions.items()}
    ends = read.groupBy(*place).agg(F.count(F.lit(1)), F.min("_offset"), F.max("_offset")).collect()
    for topic, partition, _, low, high in ends:
        first, gone = expired[topic][partition]
        found[topic, partition] = [(first, low), (high + 1, gone)] if whole else [(first, low)]
    if whole and any(high - low >= number for *_, number, low, high in ends):  # mutant: gaps-are-skipped
        before = F.lag("_offset").over(Window.partitionBy(*place).orderBy("_offset"))
        gaps = read.select(*place, (before + 1).alias("first"), F.col("_offset").alias("stop")).where("first < stop")
        for topic, partition, first, stop in gaps.limit(RANGES_MAX).collect():
            found[topic, partition].append((first, stop))
    spans: dict[str, dict[int, Sequence[tuple[int, int]]]] = {}
    for (topic, partition), each in found.items():
        kept = sorted((first, stop) for first, stop in each if first < stop)
        if kept:
            spans.setdefault(topic, {})[partition] = kept
    return spans


def shown(ranges: Skipped) -> dict[str, dict[str, list[int]]]:
    """Return the ranges as commits and log lines show them: first, stop, first, stop and so on."""
    return {
        topic: {str(number): [offset for span in spans for offset in span] for number, spans in each.items()}
        for topic, each in ranges.items()
    }


def number(ranges: Skipped) -> int:
    """Return the number of offsets."""
    return sum(stop - first for each in ranges.values() for spans in each.values() for first, stop in spans)
