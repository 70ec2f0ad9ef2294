"""The first rows of each batch on standard error, one JSON object per line: to look at a pipeline while writing it.

A batch that is tried again shows its rows again.
"""

import sys
from datetime import datetime
from typing import TextIO

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.config import ConsoleSinkConfig
from spark_etl.kafka.ranges import Ranges
from spark_etl.sinks.aggregates import TIMES
from spark_etl.sinks.rows import data_columns


class Console:
    def __init__(self, config: ConsoleSinkConfig, stream: TextIO | None = None) -> None:
        self._config = config
        self._stream = stream
        self.rows_read: int | None = None
        self.rows_written: int | None = None

    @property
    def name(self) -> str:
        return "console"

    def check(self) -> None:
        """Accept every frame."""

    def has(self, batch: BatchPlace, begun: datetime, spans: Ranges) -> bool:  # noqa: ARG002
        """Return False: it shows rows and keeps none."""
        return False

    def write(self, rows: DataFrame, batch: BatchPlace, begun_before: datetime | None) -> int:  # noqa: ARG002
        """Print the first rows; return 0: every row fits."""
        stream = sys.stderr if self._stream is None else self._stream
        columns = self._config.columns or data_columns(rows.columns)
        text = F.to_json(F.struct(*columns), TIMES)
        for (line,) in rows.limit(self._config.rows).select(text).collect():
            print(line, file=stream)
        stream.flush()
        return 0
