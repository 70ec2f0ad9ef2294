"""Records that `replay-dlq --to source` brought back: their place in the order of their source.

Such a record is a new one at the end of its topic. The header `__etl.replay.source` has the place of the record that
was refused: topic, partition, offset and timestamp in ms, with `/` between them. A table of the last row of each key
(`mode: upsert`) compares that place: a row that is later in the source stays.

A row has the place as `_replayed`, null in other rows. Only pipelines with such a table have the column.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

HEADER = "__etl.replay.source"
COLUMN = "_replayed"
PLACE = ("_topic", "_partition", "_offset", "_timestamp")
_KIND = "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp>"


def source_text() -> Column:
    """Return the header's text for a letter (`topic`, `partition`, `offset`, `timestamp`, `headers`).

    A record that was brought back before keeps its first place.
    """
    parts = ("topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    own = F.concat_ws("/", *parts, F.unix_millis("timestamp").cast("string"))
    return F.coalesce(_last_text(F.col("headers")), own)


def place(headers: Column) -> Column:
    """Return the struct `_replayed` of a record's headers; null for others, also if the text is not ours."""
    parts = F.split(_last_text(headers), "/")
    whole = F.size(parts) == 4
    at = [F.try_element_at(parts, F.lit(number + 1)) for number in range(4)]
    found = F.struct(
        at[0].alias("topic"),
        at[1].try_cast("int").alias("partition"),
        at[2].try_cast("bigint").alias("offset"),
        F.timestamp_millis(at[3].try_cast("bigint")).alias("timestamp"),
    )
    complete = whole & found["partition"].isNotNull() & found["offset"].isNotNull() & found["timestamp"].isNotNull()
    return F.when(complete, found).cast(_KIND)


def placed(name: str, present: bool) -> Column:
    """Return a column of the record's place (`_offset` and so on) in its source. `present`: rows have `_replayed`."""
    own = F.col(name)
    return F.coalesce(F.col(f"{COLUMN}.{name[1:]}"), own) if present else own


def is_replayed(present: bool) -> Column:
    return F.col(COLUMN).isNotNull() if present else F.lit(False)


def is_moved(created_again: Collection[str]) -> Column:
    """Return whether the offset where a row was refused is of another partition, or of a topic before this one."""
    other = (F.col(f"{COLUMN}.topic") != F.col("_topic")) | (F.col(f"{COLUMN}.partition") != F.col("_partition"))
    return F.coalesce(other | F.col("_topic").isin(*created_again), F.lit(False)) & F.col(COLUMN).isNotNull()


def with_column(stored: DataFrame, columns: Collection[str]) -> DataFrame:
    """Return rows of a table, which never has `_replayed`, with a null one if it is among the columns."""
    return stored.withColumn(COLUMN, F.lit(None).cast(_KIND)) if COLUMN in columns else stored


def _last_text(headers: Column) -> Column:
    named = F.filter(headers, lambda each: each["key"] == F.lit(HEADER))
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")
