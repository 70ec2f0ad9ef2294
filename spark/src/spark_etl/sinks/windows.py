"""Aggregates over windows of event time, as records of a topic.

A second streaming query over the same judged frame, with a checkpoint of its own. The value of a record has
`window_start` and `window_end` besides the group's columns and the selected ones. Its headers are `__etl.pipeline`,
`__etl.window` (start/end) and `__etl.version`, the query's batch: the highest version of a key is the answer.

- `mode: update` writes a window each time that it changed, `append` once, after the watermark passed its end.
- A record older than the watermark changes no window; `LateRecords` counts them as Spark reports them.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_etl.batches import Batches, BatchPlace
from spark_etl.cluster import Cluster
from spark_etl.config import EventTime, KafkaSinkConfig
from spark_etl.sinks.aggregates import PIPELINE_HEADER, VERSION_HEADER, records, selected
from spark_etl.sinks.topics import Identity, TopicWriter

WINDOW_HEADER = "__etl.window"
WATERMARK_METADATA = "spark.watermarkDelayMs"
_IDENTITY = Identity((PIPELINE_HEADER, WINDOW_HEADER, VERSION_HEADER), with_key=True)
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
