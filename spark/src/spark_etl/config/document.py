"""The whole pipeline file as one model, and the checks that concern several sections."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from spark_etl.config.decode import Decode
from spark_etl.config.model import Column, Expression, Location, Name, Section, Share
from spark_etl.config.operation import MetricsConfig, OffsetsConfig, ProcessingTime, RestartConfig
from spark_etl.config.sinks import (
    DeadLetter,
    DeltaSinkConfig,
    KafkaSinkConfig,
    PostgresSinkConfig,
    SinkConfig,
)
from spark_etl.config.source import KafkaOptions, Source
from spark_etl.config.transform import Dedupe, Explode, Join, Rule, Statement
from spark_etl.errors import ConfigError

RULES_MAX = 60
Fault = tuple[tuple[str | int, ...], str]  # place in the file, reason


class PipelineConfig(Section):
    api_version: Literal["etl/v1"] = Field(alias="apiVersion")
    name: Name
    checkpoint: Location
    trigger: Literal["available_now"] | ProcessingTime = "available_now"
    source: Source
    kafka: KafkaOptions = KafkaOptions({})
    decode: Decode
    join: list[Join] = Field(default=[], max_length=20)
    derive: dict[Column, Expression] = Field(default={})
    rules: list[Rule] = Field(default=[], max_length=RULES_MAX)
    max_refused: Share | None = None
    warn_refused: Share | None = None
    dedupe: Dedupe | None = None
    transform: list[Statement] = Field(default=[], max_length=20)
    explode: Explode | None = None
    sinks: list[SinkConfig] = Field(min_length=1, max_length=20)
    dead_letter: DeadLetter
    offsets: OffsetsConfig = OffsetsConfig()
    restart: RestartConfig = RestartConfig()
    metrics: MetricsConfig = MetricsConfig()

    @property
    def tables(self) -> list[DeltaSinkConfig]:
        """The Delta sinks. ConfigError: the pipeline has none."""
        found = [sink for sink in self.sinks if isinstance(sink, DeltaSinkConfig)]
        if not found:
            raise ConfigError(f"pipeline {self.name}: no delta sink")
        return found

    @property
    def table(self) -> DeltaSinkConfig | None:
        """The first Delta sink that takes all rows: its commits have the numbers of the batches, and come first."""
        return next((sink for sink in self.sinks if isinstance(sink, DeltaSinkConfig) and sink.takes_all), None)

    @property
    def beside(self) -> list[DeltaSinkConfig]:
        """The other Delta sinks."""
        return [sink for sink in self.sinks if isinstance(sink, DeltaSinkConfig) and sink is not self.table]

    @property
    def keeps_raw(self) -> bool:
        """Whether a sink writes the original record, so that good rows keep it too."""
        return any(isinstance(sink, KafkaSinkConfig) and sink.value == "original" for sink in self.sinks)

    @property
    def gives_raw(self) -> bool:
        """Whether sinks get the original record with good rows: a letter of PostgreSQL's can come back only with it."""
        return self.keeps_raw or any(isinstance(sink, PostgresSinkConfig) for sink in self.sinks)

    @property
    def keeps_last_rows(self) -> bool:
        """Whether a sink keeps the last row of each key only."""
        return any(getattr(sink, "mode", None) == "upsert" for sink in self.sinks)

    @property
    def takes_away(self) -> bool:
        """Whether a step of Spark's removes records before they are judged."""
        return self.dedupe is not None or bool(self.transform)

    @property
    def summaries(self) -> list[KafkaSinkConfig]:
        """The topics of aggregates of the whole table."""
        return [
            sink
            for sink in self.sinks
            if isinstance(sink, KafkaSinkConfig) and sink.aggregate is not None and sink.aggregate.window is None
        ]


def faults(config: PipelineConfig) -> Iterator[Fault]:
    """Yield every contradiction between sections."""
    names = [rule.name for rule in config.rules]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield ("rules", number, "name"), "two rules have the same name"
    joins = [join.name for join in config.join]
    for number, name in enumerate(joins):
        if name in joins[:number]:
            yield ("join", number, "name"), "two joins have the same name"
    tables = [(sink.url, sink.table) if isinstance(sink, PostgresSinkConfig) else None for sink in config.sinks]
    for number, table in enumerate(tables):
        if table is not None and table in tables[:number]:
            yield ("sinks", number, "table"), "two sinks write the same table"
    if config.max_refused is not None and config.warn_refused is not None and config.warn_refused >= config.max_refused:
        yield ("warn_refused",), "must be less than max_refused, which ends the run"
    for number, sink in enumerate(config.sinks if config.table is None else []):
        if sink in config.summaries:
            yield ("sinks", number, "aggregate"), "without window, it is of a delta sink that takes all rows"
    yield from _explode_faults(config)
    yield from _topic_faults(config)
    yield from _event_time_faults(config)
    if config.decode.null_value == "delete":
        for number, sink in enumerate(config.sinks):
            if getattr(sink, "mode", None) == "append" and not isinstance(sink, KafkaSinkConfig):
                yield ("sinks", number, "mode"), "decode.null_value: delete needs mode: upsert"


def _explode_faults(config: PipelineConfig) -> Iterator[Fault]:
    if config.explode is None:
        return
    if config.decode.null_value == "delete":
        yield ("explode",), "a deletion (decode.null_value: delete) has no items"
    for number, sink in enumerate(config.sinks):
        if getattr(sink, "mode", None) == "upsert":
            yield ("sinks", number, "mode"), "explode needs mode: append, as the rows of a record have no order"
        if isinstance(sink, KafkaSinkConfig) and sink.aggregate is not None and sink.aggregate.window is not None:
            yield (
                ("sinks", number, "aggregate", "window"),
                "windows account for records, and explode makes rows of them",
            )
        if getattr(sink, "value", None) == "original":
            yield (
                ("sinks", number, "value"),
                "value: original is the whole record, and explode makes several rows of it",
            )


def _topic_faults(config: PipelineConfig) -> Iterator[Fault]:
    reason = "source, sinks and dead_letter must all name different topics"
    named = set(config.source.topics)
    if len(named) != len(config.source.topics):
        yield ("source", "topics"), reason
    written = [
        (("dead_letter", "topic"), config.dead_letter.topic),
        *(
            (("sinks", number, "topic"), sink.topic)
            for number, sink in enumerate(config.sinks)
            if isinstance(sink, KafkaSinkConfig)
        ),
    ]
    for place, topic in written:
        if topic in named or config.source.matches(topic):
            yield place, reason
        named.add(topic)


def _event_time_faults(config: PipelineConfig) -> Iterator[Fault]:
    if config.decode.timestamp is not None:
        return
    if config.dedupe is not None:
        yield ("dedupe",), "decode.timestamp is needed"
    for number, sink in enumerate(config.sinks):
        if isinstance(sink, KafkaSinkConfig) and sink.aggregate is not None and sink.aggregate.window is not None:
            yield ("sinks", number, "aggregate", "window"), "decode.timestamp is needed"
