"""The records of groups in a topic, alike for summaries and windows. Those that it would not take become dead letters.

Such a letter has the stage `sink`, and key, value and headers of the group. It is of no record: its headers `.topic`,
`.partition`, `.offset` and `.timestamp` are null, and `replay-dlq` leaves it. `__etl.errors.group`, the version and a
digest of the key, tells it from the letters of other groups.
"""

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.sinks.aggregates import VERSION_HEADER
from spark_etl.sinks.dead_letters import GROUP, SINK, DeadLetters
from spark_etl.sinks.rows import MISFIT_STAGE
from spark_etl.sinks.topics import TopicWriter, header_text

CHECK = (MISFIT_STAGE, "aggregate")  # of the letters, in metrics
_NO_PLACE = {"_topic": "string", "_partition": "int", "_offset": "bigint", "_timestamp": "timestamp"}


@dataclass(frozen=True)
class Written:
    """Numbers of groups: those that the topic has, and those that became letters."""

    groups: int
    refused: int

    @property
    def numbers(self) -> dict[str, int]:
        return {"groups": self.groups, "groups_dlq": self.refused}


def write(writer: TopicWriter, groups: DataFrame, begun_before: datetime | None) -> Written:
    """Write the groups (key, value, headers) that the topic takes. `refuse` makes letters of the others."""
    judged = groups.withColumn("_fault", writer.fault(*(F.col(name) for name in ("key", "value", "headers"))))
    counted = Observation()
    observed = judged.observe(counted, F.count(F.lit(1)).alias("rows"), F.count("_fault").alias("misfits"))
    writer.write(observed.where("_fault IS NULL").select("key", "value", "headers"), begun_before)
    read, refused = int(counted.get["rows"]), int(counted.get["misfits"])
    return Written(read - refused, refused)


def refuse(
    letters: DeadLetters, writer: TopicWriter, groups: DataFrame, sink: str, begun_before: datetime | None
) -> None:
    """Write the letters of the groups that the topic of a sink would not take."""
    fault = writer.fault(*(F.col(name) for name in ("key", "value", "headers")))
    refused = groups.withColumn("_fault", fault).where("_fault IS NOT NULL")
    error = F.struct(F.lit(MISFIT_STAGE).alias("stage"), F.col("_fault.rule"), F.col("_fault.message"))
    group = F.concat_ws("/", header_text(VERSION_HEADER), F.sha2(F.coalesce("key", F.lit(b"")), 256))
    letters.write(
        refused.select(
            *(F.lit(None).cast(kind).alias(name) for name, kind in _NO_PLACE.items()),
            *(F.col(name).alias(f"_raw_{name}") for name in ("key", "value", "headers")),
            error.alias("_error"),
            F.lit(sink).alias(SINK),
            group.alias(GROUP),
        ),
        begun_before,
    )
