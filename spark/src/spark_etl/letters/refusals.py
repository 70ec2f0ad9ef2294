"""The refused rows of a batch, found again without a second pass over the whole batch.

The job that writes the good rows also notes the blocks of offsets in which it refused a record. If these are few, only
their records are read from Kafka and judged once more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint.offsets import Offsets
from spark_etl.config import Pipeline
from spark_etl.judgement import Judged, plan
from spark_etl.kafka import sources
from spark_etl.kafka.sources import Ranges

NAME = "refused_blocks"
BLOCK_BITS = 8  # offsets of a block: 256
#: A smaller batch is judged whole in less time than a plan is made.
BATCH_ROWS_MIN = 20_000
SHARE_MAX = 0.25  # of the batch's records, in such blocks

Block = tuple[str, int, int]  # topic, partition, offset >> BLOCK_BITS


def blocks() -> Column:
    """Return the aggregate that notes the blocks, at most one for 256 records, for `observe` with the counters."""
    block = F.concat_ws("/", "_topic", "_partition", F.shiftright("_offset", BLOCK_BITS))
    noted = F.collect_set(F.when(F.col("_error").isNotNull(), block))
    return F.array_join(noted, " ").alias(NAME)  # an Observation gives no arrays to Python


@dataclass(frozen=True)
class Refusals:
    """A search for refused rows; `judged` reads and judges ranges of the source, filtered by a condition."""

    judged: Callable[[Ranges, Column], Judged]

    @classmethod
    def of(cls, session: SparkSession, pipeline: Pipeline, bootstrap_servers: str) -> "Refusals | None":
        """Return those of a pipeline; None if its rows cannot be judged one by one, or by the table of another time."""
        config = pipeline.config
        if config.join or config.dedupe is not None:
            return None

        def judge(ranges: Ranges, condition: Column) -> Judged:
            options = sources.range_options(bootstrap_servers, config.source, config.kafka, ranges)
            records = session.read.format("kafka").options(**options).load()
            return plan(session, records.where(condition), pipeline)

        return cls(judge)

    def found(self, noted: str, rows: int, refused: int, start: Offsets, end: Offsets) -> DataFrame | None:
        """Return the refused rows of a batch of `rows` from `start` to `end`; None if all of it must be judged again.

        `noted` is the value of `blocks`.
        That is so if the blocks are many, or the number of rows is not `refused`: a rule may depend on the time.
        """
        places = [_block(text) for text in noted.split()]
        if rows < BATCH_ROWS_MIN or len(places) << BLOCK_BITS > SHARE_MAX * rows:
            return None
        spans = ranges(places, start, end)
        if spans is None:
            return None
        judged = self.judged(spans, _within(places))
        found = judged.refused(judged.rows)
        return found if found.count() == refused else None


def _block(text: str) -> Block:
    topic, partition, block = text.split("/")
    return topic, int(partition), int(block)


def ranges(noted: Sequence[Block], start: Offsets, end: Offsets) -> Ranges | None:
    """Return each partition's offsets from its first to its last block; None if the batch's start in it is unknown."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partition, block in sorted(noted):
        begin, stop = start.get(topic, {}).get(partition), end.get(topic, {}).get(partition)
        if begin is None or stop is None:
            return None
        partitions = found.setdefault(topic, {})
        # mutant: letters-of-batch
        first = partitions[partition][0] if partition in partitions else max(begin, block << BLOCK_BITS)
        partitions[partition] = (first, min(stop, (block + 1) << BLOCK_BITS))
    return found


def _within(noted: Sequence[Block]) -> Column:
    """Return the condition of the records in the blocks."""
    chosen: dict[tuple[str, int], list[int]] = {}
    for topic, partition, block in noted:
        chosen.setdefault((topic, partition), []).append(block)
    condition = F.lit(False)
    for (topic, partition), each in sorted(chosen.items()):
        here = (F.col("topic") == topic) & (F.col("partition") == partition)
        condition = condition | (here & F.shiftright("offset", BLOCK_BITS).isin(each))
    return condition
