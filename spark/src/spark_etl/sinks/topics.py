"""Writing rows (key, value, headers) to a topic, each once if its identity headers are compared.

Spark's Kafka sink alone is at-least-once. Each row therefore carries headers that identify it. A batch that an
interrupted run had begun first reads the records that its topic has received since then, and writes only the missing
ones. A task that Spark repeats within a run (a lost executor) can still write a row again: a reader that drops repeated
identities sees each row once.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, reduce
from operator import and_

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.config.clients import ProducerOptions
from spark_etl.errors import OutputError
from spark_etl.kafka.admin import Offsets
from spark_etl.kafka.cluster import Cluster
from spark_etl.kafka.ranges import OffsetRanges, Ranges, condition, outside

CLOCK_DIFFERENCE = timedelta(minutes=5)  # between this driver and an earlier one on another host
HEADERS = "array<struct<key:string,value:binary>>"
#: A topic must take at least this many bytes a record: the headers of a dead letter alone can need as much.
MESSAGE_BYTES_MIN = 8 << 10
#: The default max.request.size of a producer, and the most that a sink raises it to for a topic of larger messages.
REQUEST_BYTES_DEFAULT = 1 << 20
REQUEST_BYTES_MAX = 16 << 20
BATCH_BYTES_DEFAULT = 16 << 10  # batch.size of a producer
#: DefaultRecordBatch.RECORD_BATCH_OVERHEAD + DefaultRecord.MAX_RECORD_OVERHEAD, and three lengths of at most 5 bytes.
_RECORD_OVERHEAD = 61 + 21 + 3 * 5
_HEADER_OVERHEAD = 2 * 5
_SETTINGS = threading.RLock()  # of sessions


@dataclass(frozen=True)
class Identity:
    """The headers that identify a row of a topic; `with_key` if the key is part of it."""

    headers: tuple[str, ...]
    with_key: bool = False


@dataclass(frozen=True)
class LookBack:
    """The records of a topic that may be rows of an earlier try: from `first` on, and outside of `others`."""

    first: Mapping[int, int] = field(default_factory=dict)  # partition → offset
    others: OffsetRanges = field(default_factory=dict)


class TopicWriter:
    """A writer of one topic. `check` must have run before `write`."""

    def __init__(
        self,
        session: SparkSession,
        cluster: Cluster,
        topic: str,
        identity: Identity,
        client: ProducerOptions | None = None,
    ) -> None:
        self._client = client if client is not None else ProducerOptions({})
        self._session = session
        self._cluster = cluster
        self.topic = topic
        self._identity = identity
        self._request_bytes = int(self._client.properties.get("max.request.size", REQUEST_BYTES_DEFAULT))
        self.record_bytes_max = self._request_bytes
        self._batch_bytes = int(self._client.properties.get("batch.size", BATCH_BYTES_DEFAULT))
        self.compacted = False  # whether it takes no record without a key
        self.look_back: LookBack | None = None  # instead of a time

    def check(self) -> None:
        """Create the topic unless it exists, and learn which records it takes.

        Raises OutputError if the topic cannot be created or takes too small records only.
        """
        with self._cluster.admin(self._session) as admin:
            admin.create_missing([self.topic])
            allowed = int(admin.topic_setting(self.topic, "max.message.bytes"))
            self.compacted = "compact" in admin.topic_setting(self.topic, "cleanup.policy").split(",")
        if allowed < MESSAGE_BYTES_MIN:
            raise OutputError(f"topic {self.topic}: max.message.bytes is {allowed}, less than {MESSAGE_BYTES_MIN}")
        if "max.request.size" not in self._client.properties:
            self._request_bytes = min(max(allowed, REQUEST_BYTES_DEFAULT), REQUEST_BYTES_MAX)
        self.record_bytes_max = min(allowed, self._request_bytes)
        # A producer splits a batch that the topic refuses into batches of batch.size, and tries them for ever
        # (KAFKA-8350).
        self._batch_bytes = min(self._batch_bytes, allowed)

    def fault(self, key: Column, value: Column, headers: Column) -> Column:
        """Return why the topic would not take a record, STRUCT<rule, message>; null if it takes it."""
        size = record_bytes(key, value, headers)
        large = f"the record is larger than topic {self.topic} takes"
        found = F.when(size > F.lit(self.record_bytes_max), _fault("too_large", large))
        if self.compacted:
            keyless = f"the compacted topic {self.topic} takes no record without a key"
            found = found.when(key.isNull(), _fault("no_key", keyless))
        return found

    def write(self, rows: DataFrame, begun_before: datetime | None) -> None:
        if begun_before is not None:
            rows = self._missing(rows, begun_before)
        writer = (
            rows.write.format("kafka")
            .options(**self._cluster.connector())
            .options(**self._client.connector())
            .option("kafka.acks", "all")
            .option("kafka.max.request.size", str(self._request_bytes))
            .option("kafka.batch.size", str(self._batch_bytes))
            .option("topic", self.topic)
            .option("includeHeaders", "true")
        )
        with observed_writes(rows.sparkSession):
            writer.mode("append").save()

    def has_since(self, begun: datetime, pipeline: str, name: str, places: Sequence[str], spans: Ranges) -> bool:
        """Return whether the topic has, since a time, records of a pipeline whose source lies in ranges of offsets.

        `pipeline` is the header with the pipeline's name, `places` those of topic, partition and offset.
        """
        found = self.since(begun).where(header_text(pipeline) == name)
        texts = zip(("_topic", "_partition", "_offset"), places, ("string", "int", "bigint"), strict=True)
        placed = found.select(*(header_text(header).cast(kind).alias(column) for column, header, kind in texts))
        return not placed.where(condition(spans) or "false").isEmpty()

    def _missing(self, rows: DataFrame, begun: datetime) -> DataFrame:
        with self._cluster.admin(self._session) as admin:
            if not admin.exists(self.topic):  # deleted since `check`: nothing is there
                return rows
            chosen = self.look_back
            present = self.since(begun) if chosen is None else self._from(chosen, admin.start_offsets([self.topic]))
        names = [_column_name(name) for name in self._identity.headers]
        if self._identity.with_key:
            names.append("key")
        present = present.select("key", *header_texts(self._identity.headers))
        rows = rows.select("*", *header_texts(self._identity.headers))
        same = reduce(and_, (rows[name].eqNullSafe(present[name]) for name in names))
        return rows.join(present, same, "left_anti").select("key", "value", "headers")

    def since(self, begun: datetime) -> DataFrame:
        """Return the topic's records since an interrupted run began, which show what it wrote."""
        start = begun - CLOCK_DIFFERENCE
        return (
            self._reader()
            .option("startingTimestamp", str(int(start.timestamp() * 1000)))
            .option("startingOffsetsByTimestampStrategy", "latest")  # nothing that new: nothing to read
            .load()
        )

    def _from(self, chosen: LookBack, oldest: Offsets) -> DataFrame:
        numbers = oldest[self.topic].items()
        first = {str(number): max(offset, chosen.first.get(number, 0)) for number, offset in numbers}
        found = self._reader().option("startingOffsets", json.dumps({self.topic: first})).load()
        return outside(found, chosen.others)

    def _reader(self) -> DataFrameReader:
        reader = self._session.read.format("kafka").options(**self._cluster.reading())
        return reader.option("subscribe", self.topic).option("includeHeaders", "true")


@contextmanager
def observed_writes(session: SparkSession) -> Iterator[None]:
    """Write so that an Observation of the rows does not wait for ever.

    That needs the connector's newer interface, and a plan that stays: an adaptive one leaves out a join, and what is
    observed below it, when it finds no rows there. Queries of a run share the session of late records: they write in
    turn, or one would plan with the settings of the other.
    """
    sources, adaptive = "spark.sql.sources.useV1SourceList", "spark.sql.adaptive.enabled"
    with _SETTINGS:
        before = {name: str(session.conf.get(name)) for name in (sources, adaptive)}
        session.conf.set(sources, ",".join(source for source in before[sources].split(",") if source != "kafka"))
        session.conf.set(adaptive, "false")  # mutant: observed-plan-stays
        try:
            yield
        finally:
            for name, value in before.items():
                session.conf.set(name, value)


def _fault(rule: str, message: str) -> Column:
    return F.struct(F.lit(rule).alias("rule"), F.lit(message).alias("message"))


def record_bytes(key: Column, value: Column, headers: Column) -> Column:
    """Return an upper bound of a record's size, as a producer and max.message.bytes count it (in a batch of one)."""
    return payload_bytes(key) + payload_bytes(value) + headers_bytes(headers) + F.lit(_RECORD_OVERHEAD)


def payload_bytes(part: Column) -> Column:
    return F.coalesce(F.octet_length(part), F.lit(0))


def headers_bytes(headers: Column) -> Column:
    return F.coalesce(F.aggregate(headers, F.lit(0), _plus_header), F.lit(0))


def _plus_header(total: Column, header: Column) -> Column:
    return total + F.octet_length(header["key"]) + payload_bytes(header["value"]) + F.lit(_HEADER_OVERHEAD)


def header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


def header_texts(names: tuple[str, ...]) -> list[Column]:
    """Return the text of each named header; of a repeated name the last one, so that an original header cannot pose as
    ours.
    """
    return [header_text(name).alias(_column_name(name)) for name in names]


def header_text(name: str) -> Column:
    return F.element_at(F.filter("headers", partial(_named, name)), -1)["value"].cast("string")


def _named(name: str, each: Column) -> Column:
    return each["key"] == F.lit(name)


def _column_name(name: str) -> str:
    return name.replace(".", "_")
