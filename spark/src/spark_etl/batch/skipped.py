"""Offsets that had expired before a batch read them: `source.on_data_loss: continue` goes past them."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint.offsets import Offsets

Skipped = Mapping[str, Mapping[int, tuple[int, int]]]  # topic → partition → first offset, offset after the last


def skipped_offsets(batch: DataFrame, start: Offsets, end: Offsets, oldest: Offsets) -> Skipped:
    """Return the offsets of a batch that had expired before they were read, given the first offsets of now.

    Records that expired after they were read are none of them: the first record of the batch is asked for.
    """
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in end.items():
        for partition, stop in partitions.items():
            first = start.get(topic, {}).get(partition, 0)  # a partition that is new begins at 0
            gone = min(oldest.get(topic, {}).get(partition, 0), stop)
            if first < gone:
                found.setdefault(topic, {})[partition] = (first, gone)
    if not found:
        return {}
    for row in batch.groupBy("_topic", "_partition").agg(F.min("_offset").alias("first")).collect():
        span = found.get(row["_topic"], {}).get(row["_partition"])
        if span is not None and row["first"] < span[1]:
            found[row["_topic"]][row["_partition"]] = (span[0], row["first"])
    spans = {topic: {p: (a, b) for p, (a, b) in each.items() if a < b} for topic, each in found.items()}
    return {topic: each for topic, each in spans.items() if each}


def shown(ranges: Skipped) -> dict[str, dict[str, list[int]]]:
    """Return the ranges as commits and log lines show them."""
    return {topic: {str(number): list(span) for number, span in each.items()} for topic, each in ranges.items()}


def number(ranges: Skipped) -> int:
    """Return the number of offsets."""
    return sum(stop - first for each in ranges.values() for first, stop in each.values())
