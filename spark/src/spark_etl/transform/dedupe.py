"""One record per key within a time.

A stream keeps the keys that it saw until the watermark passes their event time. A record not after the watermark of the
batch before is late: it is left out, since its duplicate may be forgotten. Spark has the numbers of both
(query/plan.py). A static frame keeps the first record of each key, by the time and place in Kafka, and marks the
others.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.config import Dedupe
from spark_etl.counts import DUPLICATE
from spark_etl.decode.faults import barrier, fault


def deduplicated(frame: DataFrame, dedupe: Dedupe, aside: Column) -> DataFrame:
    """Return the frame without duplicates; a row for which `aside` holds is its own only duplicate.

    Those of a static frame have the fault DUPLICATE.
    """
    # The state of other keys of these types must not match: the file's keys may change between two runs.
    place = F.when(aside, F.concat_ws("/", "_topic", "_partition", "_offset")).otherwise(F.lit(" ".join(dedupe.keys)))
    keyed = frame.withColumn("_identity", F.struct(*dedupe.keys, place.alias("_place")))
    if frame.isStreaming:
        return keyed.dropDuplicatesWithinWatermark(["_identity"]).drop("_identity")
    order = Window.partitionBy("_identity").orderBy("_timestamp", "_topic", "_partition", "_offset")
    again = F.when(F.col("_turn") > 1, fault(*DUPLICATE, F.lit(f"its {', '.join(dedupe.keys)} came before")))
    turned = keyed.withColumn("_turn", F.row_number().over(order))
    return turned.withColumn("_error", barrier(F.coalesce("_error", again))).drop("_identity", "_turn")
