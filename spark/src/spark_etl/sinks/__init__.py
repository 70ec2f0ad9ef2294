"""Outputs of a pipeline next to its table: other tables, topics, PostgreSQL, the console, and the dead letters.

outputs = opened(session, pipeline.config, cluster, good.schema)
outputs.check()                                      # every topic and table is there, and fits
for sink in outputs.rows:
    sink.write(good, place, begun_before)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.config import ConsoleSinkConfig, DeltaSinkConfig, KafkaSinkConfig, PipelineConfig, PostgresSinkConfig
from spark_etl.errors import ConfigError
from spark_etl.kafka.cluster import Cluster
from spark_etl.kafka.ranges import Ranges
from spark_etl.sinks.console import Console
from spark_etl.sinks.dead_letters import DeadLetters
from spark_etl.sinks.delta_rows import DeltaRows
from spark_etl.sinks.kafka_rows import KafkaRows
from spark_etl.sinks.postgres.batches import Position
from spark_etl.sinks.postgres.sink import Postgres
from spark_etl.sinks.rows import Sink
from spark_etl.sinks.summaries import SummaryTopic
from spark_etl.sinks.windows import WindowTopic


@dataclass(frozen=True)
class Outputs:
    letters: DeadLetters
    rows: tuple[Sink, ...]  # in the order of the file
    summaries: tuple[SummaryTopic, ...]
    windows: tuple[WindowTopic, ...]

    def check(self) -> None:
        """Find or create every target. Raises ConfigError or OutputError in one line."""
        self.letters.check()
        for sink in self.rows:
            sink.check()
        self._check_places()
        for summary in self.summaries:
            summary.check()
        for window in self.windows:
            window.check()

    def _check_places(self) -> None:
        """Raise ConfigError for two sinks of one table: the second one would take each batch for written."""
        known: dict[tuple[str, str], Postgres] = {}
        for sink in self.rows:
            if isinstance(sink, Postgres):
                other = known.setdefault(sink.place, sink)
                if other is not sink:  # mutant: one-sink-a-table
                    raise ConfigError(f"the sinks {other.name} and {sink.name} write the same table, {sink.place[1]}")

    def ask(self) -> None:
        """Raise RunError if a database is away, within 10 s."""
        for sink in self.rows:
            if isinstance(sink, Postgres):
                sink.ask()

    @property
    def numbered(self) -> tuple[str, ...]:
        """The names of the outputs that keep the numbers of their batches themselves."""
        return tuple(sink.name for sink in self.rows if isinstance(sink, Postgres | DeltaRows))

    def table_with(self, place: BatchPlace) -> str | None:
        """Return the name of a table that has a batch; None if none has."""
        return next((each.name for each in self.tables if each.table.holds(place.app_id, place.batch_id)), None)

    @property
    def tables(self) -> tuple[DeltaRows, ...]:
        return tuple(sink for sink in self.rows if isinstance(sink, DeltaRows))

    def having(self, place: BatchPlace, begun: datetime, spans: Ranges) -> str | None:
        """Return the name of an output that has rows or letters of a batch which a try began; None if none has."""
        if self.letters.has(begun, spans):
            return f"kafka:{self.letters.topic}"
        return next((sink.name for sink in self.rows if sink.has(place, begun, spans)), None)

    @contextmanager
    def claimed(self, position: Position) -> Iterator[None]:
        """Hold the outputs as the one run that writes to them. OutputError: one belongs to another checkpoint."""
        numbered = [sink for sink in self.rows if isinstance(sink, Postgres | DeltaRows)]
        try:
            for sink in numbered:
                sink.claim(position)
            yield
        finally:
            for sink in numbered:
                sink.release()


def opened(session: SparkSession, config: PipelineConfig, cluster: Cluster, schema: StructType) -> Outputs:
    """Return the outputs of a pipeline whose good rows have `schema`."""
    letters = DeadLetters(session, cluster, config.dead_letter.topic, config.name)
    rows: list[Sink] = []
    summaries, windows = [], []
    for sink in config.sinks:
        match sink:
            case KafkaSinkConfig(aggregate=None):
                rows.append(KafkaRows(session, cluster, sink, config.name, letters, schema))
            case KafkaSinkConfig() if sink.aggregate is not None and sink.aggregate.window is None:
                summaries.append(SummaryTopic(session, cluster, sink, config.name, letters))
            case KafkaSinkConfig():
                assert config.decode.timestamp is not None  # checked with the file
                steps = {"dedupe": config.dedupe is not None, "statements": bool(config.transform)}
                windows.append(
                    WindowTopic(session, cluster, sink, config.name, config.decode.timestamp, letters, **steps)
                )
            case PostgresSinkConfig():
                rows.append(Postgres(session, sink, schema, config.name, letters))
            case ConsoleSinkConfig():
                rows.append(Console(sink))
            case DeltaSinkConfig() if sink is not config.table:
                rows.append(DeltaRows(session, sink, schema))
    return Outputs(letters, tuple(rows), tuple(summaries), tuple(windows))
