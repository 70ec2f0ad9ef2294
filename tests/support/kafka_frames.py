"""Frames of Kafka records made in a test, with the columns of the connector."""

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType
from spark_etl.config import Pipeline
from spark_etl.judgement import plan
from spark_etl.kafka import sources

AT = datetime(2026, 1, 31, 12, 0, 0, 123000)
Value = bytes | None


def frame(
    session: SparkSession,
    values: Sequence[Value],
    keys: Sequence[Value] | None = None,
    headers: Sequence[list[tuple[str, Value]]] | None = None,
    *,
    first: int = 0,
) -> DataFrame:
    """Return records of partition 3 of `orders` from offset `first`; without `keys`, k0, k1 and so on."""
    keys = keys if keys is not None else [b"k%d" % number for number in range(len(values))]
    headers = headers if headers is not None else [[("trace", b"t")]] * len(values)
    rows = [
        (key, value, "orders", 3, first + number, AT, 0, [Row(key=name, value=content) for name, content in given])
        for number, (key, value, given) in enumerate(zip(keys, values, headers, strict=True))
    ]
    columns = ", ".join(f"{name} {kind}" for name, kind in sources.COLUMNS.items())
    return session.createDataFrame(rows, StructType.fromDDL(columns))


def judge(
    session: SparkSession,
    pipeline: Pipeline,
    values: Sequence[Value],
    keys: Sequence[Value] | None = None,
    headers: Sequence[list[tuple[str, Value]]] | None = None,
) -> list[Row]:
    """Return the judged rows of such records, in the order of offsets."""
    rows = plan(session, frame(session, values, keys, headers), pipeline).rows.collect()
    return sorted(rows, key=lambda row: row["_offset"])


def errors(rows: Sequence[Row]) -> list[tuple[object, ...] | None]:
    """Return what each row is refused for: stage, rule and message, or None."""
    return [tuple(row["_error"]) if row["_error"] is not None else None for row in rows]
