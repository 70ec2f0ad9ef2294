"""Outputs of checked records: good ones to Parquet, refused ones to the dead-letter topic, summaries to a topic.

Each is exactly once, though Spark's Kafka sink alone is at-least-once:

- Parquet through the manifest (manifest.py), by query id and batch id.
- Dead letters and summaries carry headers that identify them. A batch that an interrupted run had begun first reads the
  records that its topic has received since then, and writes only the missing ones.

A dead letter has the original key, value and headers, and then these headers, all text: `__etl.errors.pipeline .topic
.partition .offset .timestamp .stage .rule .message`. A summary record is a JSON object of the group's columns and the
selected ones. Its key is the group: the value as text, or a JSON object if there are several columns. Its headers are
`__etl.pipeline` and `__etl.version`, the number of batches of the output that it shows. The last record of a key is the
answer; a run without new data writes none.
"""

from datetime import datetime, timedelta
from functools import partial, reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl import sources
from spark_etl.config import KafkaSinkConfig, ParquetSinkConfig
from spark_etl.errors import AccountingError
from spark_etl.manifest import Manifest

ERROR_HEADERS = ("pipeline", "topic", "partition", "offset", "timestamp", "stage", "rule", "message")
ERROR_PREFIX = "__etl.errors."
DEAD_LETTER_IDENTITY = tuple(ERROR_PREFIX + name for name in ("pipeline", "topic", "partition", "offset"))
SUMMARY_IDENTITY = ("__etl.pipeline", "__etl.version")
CLOCK_DIFFERENCE = timedelta(minutes=5)  # between this driver and an earlier one on another host


class ParquetSink:
    """Commits one batch of good rows as files of the manifest."""

    def __init__(self, config: ParquetSinkConfig, manifest: Manifest) -> None:
        self._config = config
        self._manifest = manifest

    def write(self, rows: DataFrame, query: str, batch: int, expected: int) -> None:
        staging = self._manifest.staging(query, batch)
        written = Observation()
        (
            rows.repartition(*self._config.partition_by)  # one file per partition folder and batch
            .observe(written, F.count(F.lit(1)).alias("rows"))
            .write.partitionBy(*self._config.partition_by)
            .option("compression", self._config.compression)
            .parquet(str(staging))
        )
        if written.get["rows"] != expected:
            raise AccountingError(f"batch {batch}: {expected} good rows, {written.get['rows']} written")
        self._manifest.commit(query, batch, expected, staging)


class TopicSink:
    """A writer of rows (key, value, headers) to one topic. Identity headers and the key identify a row."""

    def __init__(self, session: SparkSession, bootstrap_servers: str, topic: str, identity: tuple[str, ...]) -> None:
        self._session = session
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._identity = identity

    def write(self, rows: DataFrame, begun_before: datetime | None) -> None:
        if begun_before is not None:
            rows = self._missing(rows, begun_before - CLOCK_DIFFERENCE)
        (
            rows.write.format("kafka")
            .option("kafka.bootstrap.servers", self._bootstrap_servers)
            .option("kafka.acks", "all")
            .option("topic", self._topic)
            .option("includeHeaders", "true")
            .save()
        )

    def _missing(self, rows: DataFrame, start: datetime) -> DataFrame:
        present = sources.since(self._session, self._bootstrap_servers, self._topic, start)
        present = present.select("key", *_header_texts(self._identity))
        rows = rows.select("*", *_header_texts(self._identity))
        names = ["key", *(_column_name(name) for name in self._identity)]
        same = reduce(and_, (rows[name].eqNullSafe(present[name]) for name in names))
        return rows.join(present, same, "left_anti").select("key", "value", "headers")


def dead_letters(refused: DataFrame, pipeline: str) -> DataFrame:
    values = {
        "pipeline": F.lit(pipeline),
        "topic": F.col("_topic"),
        "partition": F.col("_partition").cast("string"),
        "offset": F.col("_offset").cast("string"),
        "timestamp": F.date_format("_timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
        **{name: F.col(f"_error.{name}") for name in ("stage", "rule", "message")},
    }
    reasons = F.array(*(_header(ERROR_PREFIX + name, values[name]) for name in ERROR_HEADERS))
    original = F.coalesce("_raw_headers", F.array().cast(sources.COLUMNS["headers"]))
    return refused.select(
        F.col("_raw_key").alias("key"), F.col("_raw_value").alias("value"), F.concat(original, reasons).alias("headers")
    )


def summary(rows: DataFrame, config: KafkaSinkConfig, pipeline: str, version: int) -> DataFrame:
    assert config.aggregate is not None
    group = config.aggregate.group_by
    selected = [F.expr(expression).alias(name) for name, expression in config.aggregate.select.items()]
    summed = rows.groupBy(*group).agg(*selected)
    key = F.col(group[0]).cast("string") if len(group) == 1 else F.to_json(F.struct(*group))
    headers = F.array(_header(SUMMARY_IDENTITY[0], F.lit(pipeline)), _header(SUMMARY_IDENTITY[1], F.lit(str(version))))
    return summed.select(
        key.cast("binary").alias("key"),
        F.to_json(F.struct(*summed.columns), {"ignoreNullFields": "false"}).cast("binary").alias("value"),
        headers.alias("headers"),
    )


def committed_rows(session: SparkSession, manifest: Manifest, schema: StructType) -> DataFrame:
    """Return the rows of the files that the manifest lists, and no others of the folder."""
    files = manifest.files()
    if not files:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).option("basePath", str(manifest.root)).parquet(*files)


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


def _header_texts(names: tuple[str, ...]) -> list[Column]:
    """Return the text of each named header; of a repeated name the last one, so that an original header cannot pose as
    ours.
    """
    columns = []
    for name in names:
        same = partial(_named, name)
        columns.append(F.element_at(F.filter("headers", same), -1)["value"].cast("string").alias(_column_name(name)))
    return columns


def _named(name: str, header: Column) -> Column:
    return header["key"] == F.lit(name)


def _column_name(header: str) -> str:
    return header.replace(".", "_")
