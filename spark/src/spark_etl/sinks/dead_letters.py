"""Refused records in the dead-letter topic.

A letter has the record's key, value and headers, and then these headers, all text: `__etl.errors.pipeline .topic
.partition .offset .timestamp .stage .rule .message`. Those of the stage `sink` also have `.sink`, and after `explode`
before it `.index`, the item of the record. A letter of a group (groups.py) has no place, and `.group`.

A letter that is too large for its topic goes without its value; if that is not enough, also without the record's
headers, and at last without the key. It has two more headers: `.left_out` (`value`, `value,headers` or
`value,headers,key`) and `.bytes`, the size of these parts (0: not known). The source topic
has them at the place that the letter names.
"""

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.errors import OutputError
from spark_etl.kafka.cluster import Cluster
from spark_etl.kafka.ranges import Ranges
from spark_etl.sinks.topics import (
    HEADERS,
    Identity,
    LookBack,
    TopicWriter,
    header,
    header_text,
    headers_bytes,
    payload_bytes,
    record_bytes,
)
from spark_etl.transform.explode import INDEX

ERROR_PREFIX = "__etl.errors."
ERROR_HEADERS = ("pipeline", "topic", "partition", "offset", "timestamp", "stage", "rule", "message")
LEFT_OUT, LEFT_OUT_BYTES = ERROR_PREFIX + "left_out", ERROR_PREFIX + "bytes"
REFUSED_BY = ERROR_PREFIX + "sink"  # of the stage `sink`: the names of the sinks that lack the row
ITEM = ERROR_PREFIX + "index"  # of a row that `explode` made: the item of the record
GROUP_HEADER = ERROR_PREFIX + "group"  # of a group that a topic refused: its version, and a digest of its key
GROUP = "_group"  # column of refused groups: its text
SINK, RAW_LOST = "_sink", "_raw_lost"  # columns of refused rows: its text, and whether the raw parts are unknown
LEAVINGS = ("value", "value,headers", "value,headers,key")  # what a letter goes without, least first
TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
MESSAGE_CHARACTERS_MAX = 1_000
#: A record has a letter for each sink that refused its row, and another one if an earlier stage refuses it later.
_IDENTITY = Identity(
    tuple(
        ERROR_PREFIX + name
        for name in ("pipeline", "topic", "partition", "offset", "timestamp", "stage", "sink", "index", "group")
    )
)


class DeadLetters:
    """The dead-letter topic of a pipeline."""

    def __init__(self, session: SparkSession, cluster: Cluster, topic: str, pipeline: str) -> None:
        self._writer = TopicWriter(session, cluster, topic, _IDENTITY)
        self._pipeline = pipeline

    @property
    def topic(self) -> str:
        return self._writer.topic

    def check(self) -> None:
        """Create the topic unless it exists. Raises OutputError in one line, also for a topic that loses letters."""
        self._writer.check()
        if self._writer.compacted:
            raise OutputError(
                f"topic {self.topic}: cleanup.policy is compact, which removes all letters of a key but the last one"
            )

    def compare_with(self, letters: LookBack) -> None:
        """Choose the letters that tell which ones a try before has written. By default they are those since it began.

        A replay would find the letters there that it replays.
        """
        self._writer.look_back = letters

    def has(self, begun: datetime, spans: Ranges) -> bool:
        """Return whether the topic has letters of records since a time. `spans` are the records' offsets."""
        places = tuple(ERROR_PREFIX + name for name in ("topic", "partition", "offset"))
        return self._writer.has_since(begun, ERROR_PREFIX + "pipeline", self._pipeline, places, spans)

    def of_sink(self, sink: str, begun: datetime) -> DataFrame:
        """Return the letters of rows that a sink has refused since a try began.

        Their columns are `of_topic of_partition of_offset of_item` (-1: the record's only row) `of_rule of_message`.
        """
        text = {name: header_text(ERROR_PREFIX + name) for name in (*ERROR_HEADERS, "sink", "index")}
        own = self._writer.since(begun).where((text["pipeline"] == self._pipeline) & (text["sink"] == sink))
        places = {"of_topic": "topic", "of_rule": "rule", "of_message": "message"}
        numbers = {"of_partition": ("partition", "int"), "of_offset": ("offset", "bigint")}
        found = own.select(
            *(text[header].alias(name) for name, header in places.items()),
            *(text[header].cast(kind).alias(name) for name, (header, kind) in numbers.items()),
            F.coalesce(text["index"].cast("int"), F.lit(-1)).alias("of_item"),
        )
        return found.dropDuplicates(["of_topic", "of_partition", "of_offset", "of_item"])

    def write(self, refused: DataFrame, begun_before: datetime | None) -> int:
        """Write a letter for each refused row of a judged frame; return their number, with those of an earlier try."""
        counted = Observation()
        rows = refused.observe(counted, F.count(F.lit(1)).alias("rows"))
        self._writer.write(letters(rows, self._pipeline, self._writer.record_bytes_max), begun_before)
        return int(counted.get["rows"])


def letters(refused: DataFrame, pipeline: str, bytes_max: int) -> DataFrame:
    """Return the letters (key, value, headers) of refused rows, none larger than `bytes_max`."""
    values: Mapping[str, Column] = {
        "pipeline": F.lit(pipeline),
        "topic": F.col("_topic"),
        "partition": F.col("_partition").cast("string"),
        "offset": F.col("_offset").cast("string"),
        "timestamp": F.date_format("_timestamp", TIMESTAMP_FORMAT),
        "stage": F.col("_error.stage"),
        "rule": F.col("_error.rule"),
        "message": F.substring(F.col("_error.message"), 1, MESSAGE_CHARACTERS_MAX),
    }
    reasons = F.array(*(header(ERROR_PREFIX + name, values[name]) for name in ERROR_HEADERS))
    original = F.coalesce("_raw_headers", F.array().cast(HEADERS))
    raw = (F.col(f"_raw_{name}").alias(name) for name in ("key", "value"))
    none = F.array().cast(HEADERS)
    if INDEX in refused.columns:
        item = F.when(F.col(INDEX).isNotNull(), F.array(header(ITEM, F.col(INDEX).cast("string"))))
        reasons = F.concat(reasons, F.coalesce(item, none))
    if SINK in refused.columns:
        refused_by = F.when(F.col(SINK).isNotNull(), F.array(header(REFUSED_BY, F.col(SINK))))
        reasons = F.concat(reasons, F.coalesce(refused_by, none))
    if GROUP in refused.columns:
        reasons = F.concat(reasons, F.array(header(GROUP_HEADER, F.col(GROUP))))
    lost = F.col(RAW_LOST) if RAW_LOST in refused.columns else F.lit(False)
    parts = refused.select(*raw, original.alias("original"), reasons.alias("reasons"), lost.alias("lost"))
    sized = parts.select(
        "*",
        F.when(F.col("lost"), F.lit(LEAVINGS[-1])).otherwise(_leavings(bytes_max)).alias("left_out"),
        payload_bytes(F.col("value")).alias("value_bytes"),
        headers_bytes(F.col("original")).alias("original_bytes"),
        payload_bytes(F.col("key")).alias("key_bytes"),
    )
    left_out = F.coalesce("left_out", F.lit(""))
    gone = (
        F.col("value_bytes")
        + F.when(left_out.contains("headers"), F.col("original_bytes")).otherwise(0)
        + F.when(left_out.contains("key"), F.col("key_bytes")).otherwise(0)
    )
    notes = F.array(header(LEFT_OUT, F.col("left_out")), header(LEFT_OUT_BYTES, gone.cast("string")))
    kept = F.when(left_out.contains("headers"), none).otherwise(F.col("original"))
    return sized.select(
        F.when(~left_out.contains("key"), F.col("key")).alias("key"),
        F.when(left_out == "", F.col("value")).alias("value"),
        F.concat(kept, "reasons", F.when(left_out == "", none).otherwise(notes)).alias("headers"),
    )


def _leavings(bytes_max: int) -> Column:
    """Return the parts that a letter goes without to fit, null if it fits whole."""
    notes = len(LEFT_OUT) + len(LEFT_OUT_BYTES) + len(LEAVINGS[-1]) + 40
    key, nothing = F.col("key"), F.lit(None).cast("binary")
    whole = record_bytes(key, F.col("value"), F.concat("original", "reasons"))
    without_value = record_bytes(key, nothing, F.concat("original", "reasons")) + F.lit(notes)
    without_headers = record_bytes(key, nothing, F.col("reasons")) + F.lit(notes)
    return (
        F.when(whole <= bytes_max, F.lit(None).cast("string"))
        .when(without_value <= bytes_max, F.lit(LEAVINGS[0]))
        .when(without_headers <= bytes_max, F.lit(LEAVINGS[1]))
        .otherwise(F.lit(LEAVINGS[2]))
    )
