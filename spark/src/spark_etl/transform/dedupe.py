"""One record per key within a time.

A stream keeps the keys that it saw until the watermark passes their event time. A record older than the watermark was
before the last batch is late: it is dropped, since its duplicate may be forgotten. Spark reports both numbers with each
batch. A static frame keeps the first record of each key, by the time and place in Kafka.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.config import Dedupe


def deduplicated(frame: DataFrame, dedupe: Dedupe, aside: Column) -> DataFrame:
    """Return the frame without duplicates; a row for which `aside` holds is its own only duplicate."""
    # The state of other keys of these types must not match: the file's keys may change between two runs.
    place = F.when(aside, F.concat_ws("/", "_topic", "_partition", "_offset")).otherwise(F.lit(" ".join(dedupe.keys)))
    keyed = frame.withColumn("_identity", F.struct(*dedupe.keys, place.alias("_place")))
    if frame.isStreaming:
        return keyed.dropDuplicatesWithinWatermark(["_identity"]).drop("_identity")
    order = Window.partitionBy("_identity").orderBy("_timestamp", "_topic", "_partition", "_offset")
    return keyed.withColumn("_turn", F.row_number().over(order)).where("_turn = 1").drop("_identity", "_turn")
