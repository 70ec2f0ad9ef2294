"""Aggregates over windows of event time, as records of a topic.

A second streaming query over the same judged frame, with its own checkpoint. The key of a record is a JSON object
of `window_start` and the group's columns; the value has `window_end` and the selected columns too. Its headers are
`__etl.pipeline`, `__etl.window` (start/end) and `__etl.version`, which grows with each batch. The record of a key with
the highest version is the answer.

- `mode: update` writes a window each time that it changed, `append` once, after the watermark passed its end.
- A record that is older than the watermark changes no window that has ended; `late` counts such records.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from spark_etl.cluster import Cluster
from spark_etl.config import EventTime, KafkaSinkConfig
from spark_etl.run.batches import Batches, BatchPlace
from spark_etl.sinks import local_days
from spark_etl.sinks.aggregates import KEEP_NULLS, PIPELINE_HEADER, VERSION_HEADER, records, selected
from spark_etl.sinks.topics import Identity, TopicWriter

NOTE = "windows"  # {"first": version} of a query that replaces another one
WINDOW_HEADER = "__etl.window"
_IDENTITY = Identity((PIPELINE_HEADER, WINDOW_HEADER, VERSION_HEADER), with_key=True)
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


class WindowTopic:
    """The topic of one windowed aggregate of a pipeline."""

    def __init__(
        self, session: SparkSession, cluster: Cluster, config: KafkaSinkConfig, pipeline: str, event_time: EventTime
    ) -> None:
        self._writer = TopicWriter(session, cluster, config.topic, _IDENTITY, config.client)
        self._config = config
        self._pipeline = pipeline
        self._event_time = event_time

    @property
    def topic(self) -> str:
        return self._config.topic

    def check(self) -> None:
        """Create the topic unless it exists. Raises OutputError in one line."""
        self._writer.check()

    def start(
        self,
        good: DataFrame,
        checkpoint: str,
        trigger: Mapping[str, Any],
        batches: Batches,
        check: Callable[[], None],
        first: int = 0,
    ) -> StreamingQuery:
        """Start the query over the good rows of a judged stream. `trigger` is as for DataStreamWriter.trigger.

        `check` raises an EtlError if a batch may not be written. `first` is the version of the first batch: higher than
        all versions of a query that it replaces.
        """
        known = threading.Event()
        query_id: list[str] = []

        def write(batch: DataFrame, batch_id: int) -> None:
            known.wait()
            place = BatchPlace.of(self._pipeline, query_id[0], batch_id)
            if batches.is_finished(place):
                return
            check()
            # mutant: window-versions-continue
            records = window_records(batch, self._config, self._pipeline, first + batch_id)
            self._writer.write(records, batches.begun(place))
            batches.finished(place)

        query = (
            windowed(good, self._config, self._event_time)
            .writeStream.queryName(f"{self._pipeline} → {self._config.topic}")
            .outputMode(self._config.mode)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .foreachBatch(write)
            .start()
        )
        query_id.append(str(query.id))
        known.set()
        return query


def windowed(good: DataFrame, config: KafkaSinkConfig, event_time: EventTime) -> DataFrame:
    """Return the aggregate (streaming if `good` is): window_start, window_end, the group's and the selected columns."""
    aggregate = config.aggregate
    assert aggregate is not None
    assert aggregate.window is not None
    field = event_time.field
    window: Column | str = "window"
    if aggregate.timezone is not None:
        good = local_days.with_windows(good, field, aggregate)
    else:
        window = F.window(field, aggregate.window, aggregate.slide or aggregate.window)
    groups = good.groupBy(window, *aggregate.group_by).agg(*selected(aggregate.select))
    return groups.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *aggregate.group_by,
        *aggregate.select,
    )


def window_records(groups: DataFrame, config: KafkaSinkConfig, pipeline: str, version: int) -> DataFrame:
    """Return the records (key, value, headers) of windows."""
    assert config.aggregate is not None
    texts = (F.date_format(name, _TIME) for name in ("window_start", "window_end"))
    headers = {
        PIPELINE_HEADER: F.lit(pipeline),
        WINDOW_HEADER: F.concat_ws("/", *texts),
        VERSION_HEADER: F.lit(str(version)),
    }
    start = F.date_format("window_start", _TIME).alias("window_start")
    key = F.to_json(F.struct(start, *config.aggregate.group_by), KEEP_NULLS)
    return records(groups, key, headers)


def late(progress: Mapping[str, Any]) -> int:
    """Return how many rows one batch of a window query dropped as late, from its progress report.

    Spark adds up the records of a task, window and group before it drops them: each such sum counts once.
    """
    operators: Iterable[Mapping[str, Any]] = progress.get("stateOperators", [])
    return sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in operators)
