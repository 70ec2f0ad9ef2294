"""Good rows as records of another topic.

The value is a JSON object of the row's columns, Avro of a registry (avro_values.py), or the original value. The key is
the original key or a column. The headers of a record are the original ones (with the original value only), and then, as
text, `__etl.pipeline` and `__etl.source.topic .partition .offset .timestamp`, which identify the record. After
`explode`, `.index` is its item.

A row that the topic would not take becomes a dead letter of the stage `sink`: rule `too_large`, or `no_key` in a
compacted topic. One that does not fit the schema of a topic of Avro has the rule `avro`.
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StructType

from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.config import KafkaSinkConfig
from spark_etl.errors import ConfigError
from spark_etl.kafka.cluster import Cluster
from spark_etl.kafka.ranges import Ranges
from spark_etl.sinks.aggregates import KEEP_NULLS, PIPELINE_HEADER, TIMES
from spark_etl.sinks.avro_values import AvroValues
from spark_etl.sinks.dead_letters import TIMESTAMP_FORMAT, DeadLetters
from spark_etl.sinks.rows import DELETED, data_columns, misfits
from spark_etl.sinks.topics import HEADERS, Identity, TopicWriter, header
from spark_etl.transform.explode import INDEX

#: The time tells records of a topic from those at the same places of its deleted forerunner.
SOURCE_HEADERS = tuple(f"__etl.source.{name}" for name in ("topic", "partition", "offset", "timestamp"))
ITEM_HEADER = "__etl.source.index"
_IDENTITY = Identity((PIPELINE_HEADER, *SOURCE_HEADERS, ITEM_HEADER))


class KafkaRows:
    """A topic that gets each good row of a pipeline."""

    def __init__(
        self,
        session: SparkSession,
        cluster: Cluster,
        config: KafkaSinkConfig,
        pipeline: str,
        letters: DeadLetters,
        rows: StructType,
    ) -> None:
        """Write rows of the schema `rows`."""
        self._writer = TopicWriter(session, cluster, config.topic, _IDENTITY, config.client)
        self._config = config
        self._pipeline = pipeline
        self._letters = letters
        self._avro = avro_of(session, config, rows)
        self.rows_read: int | None = None
        self.rows_written: int | None = None

    @property
    def name(self) -> str:
        return f"kafka:{self._config.topic}"

    def check(self) -> None:
        """Create the topic unless it exists, and find the schema of its values. Raises EtlError in one line."""
        self._writer.check()
        if self._avro is not None:
            self._avro.check()

    def has(self, batch: BatchPlace, begun: datetime, spans: Ranges) -> bool:
        """Return whether the topic has rows of a batch since a time."""
        return self._writer.has_since(begun, PIPELINE_HEADER, batch.pipeline, SOURCE_HEADERS[:3], spans)

    def write(self, rows: DataFrame, batch: BatchPlace, begun_before: datetime | None) -> int:  # noqa: ARG002
        """Write the good rows of a batch; return the number of rows that did not fit and became dead letters."""
        unfit = self._avro.fault() if self._avro is not None else None
        if unfit is not None and DELETED in rows.columns:
            unfit = F.when(~F.coalesce(DELETED, F.lit(False)), unfit)
        made = row_records(rows, self._config, self._pipeline, self._avro)
        fault = self._writer.fault(*(F.col(f"_made.{name}") for name in ("key", "value", "headers")))
        judged = made.withColumn("_fault", fault if unfit is None else F.coalesce(unfit, fault))
        counted = Observation()
        observed = judged.observe(counted, F.count(F.lit(1)).alias("rows"), F.count("_fault").alias("misfits"))
        self._writer.write(observed.where("_fault IS NULL").select("_made.*"), begun_before)
        read, count = int(counted.get["rows"]), int(counted.get["misfits"])
        self.rows_read, self.rows_written = read, read - count
        if count:
            refused = misfits(
                judged.where("_fault IS NOT NULL"), self.name, F.col("_fault.rule"), F.col("_fault.message")
            )
            self._letters.write(refused, begun_before)
        return count


def avro_of(session: SparkSession, config: KafkaSinkConfig, rows: StructType) -> AvroValues | None:
    """Return what makes the values of a topic of Avro; None for other topics. ConfigError: there is no such column."""
    if config.registry is None:
        return None
    names = config.columns or data_columns(rows.names)
    if absent := [name for name in names if name not in rows.names]:
        raise ConfigError(f"no column {absent[0]} in the rows")
    return AvroValues(session, config.registry, config.topic, StructType([rows[name] for name in names]))


def row_records(rows: DataFrame, config: KafkaSinkConfig, pipeline: str, avro: AvroValues | None = None) -> DataFrame:
    """Return the rows with the record of each in the struct `_made` (key, value, headers).

    Without `avro`, values of Avro are shown as JSON: only a run has their schema. Those that do not fit it are null.
    """
    if config.value == "original":
        value, original = F.col("_raw_value"), F.coalesce("_raw_headers", F.array().cast(HEADERS))
    else:
        columns = config.columns or data_columns(rows.columns)
        value = F.to_json(F.struct(*columns), KEEP_NULLS).cast("binary") if avro is None else avro.value()
        if DELETED in rows.columns:  # a deletion is a key without a value, as in a compacted topic
            value = F.when(~F.coalesce(DELETED, F.lit(False)), value)
        original = F.array().cast(HEADERS)
    places = [F.col(name).cast("string") for name in ("_topic", "_partition", "_offset")]
    places.append(F.date_format("_timestamp", TIMESTAMP_FORMAT))
    named = zip((PIPELINE_HEADER, *SOURCE_HEADERS), (F.lit(pipeline), *places), strict=True)
    own = F.array(*(header(name, text) for name, text in named))
    if INDEX in rows.columns:
        item = F.when(F.col(INDEX).isNotNull(), F.array(header(ITEM_HEADER, F.col(INDEX).cast("string"))))
        own = F.concat(own, F.coalesce(item, F.array().cast(HEADERS)))
    record = F.struct(_key(rows, config).alias("key"), value.alias("value"), F.concat(original, own).alias("headers"))
    return rows.withColumn("_made", record)


def _key(rows: DataFrame, config: KafkaSinkConfig) -> Column:
    if config.value == "original" and config.key is None:
        return F.col("_raw_key")
    name = config.key or "_key"
    kind = rows.schema[name].dataType
    if isinstance(kind, BinaryType):
        return F.col(name)
    return (F.to_json(name, TIMES) if isinstance(kind, StructType) else F.col(name).cast("string")).cast("binary")
