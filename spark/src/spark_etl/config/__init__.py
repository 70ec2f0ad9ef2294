"""The pipeline file: models of its sections, and its loading."""

from spark_etl.config.decode import Decode, EventTime
from spark_etl.config.document import PipelineConfig
from spark_etl.config.operation import MetricsConfig, OffsetsConfig, ProcessingTime, RestartConfig
from spark_etl.config.pipeline_file import Pipeline, interpolate, load
from spark_etl.config.sinks import (
    Aggregate,
    ConsoleSinkConfig,
    DeadLetter,
    DeltaSinkConfig,
    KafkaSinkConfig,
    PostgresSinkConfig,
    SinkConfig,
    SinkRegistry,
)
from spark_etl.config.source import KafkaOptions, Source, StartOffsets, StartTimestamp
from spark_etl.config.transform import Dedupe, Explode, Join, Rule, Statement

__all__ = [
    "Aggregate",
    "ConsoleSinkConfig",
    "DeadLetter",
    "Decode",
    "Dedupe",
    "DeltaSinkConfig",
    "EventTime",
    "Explode",
    "Join",
    "KafkaOptions",
    "KafkaSinkConfig",
    "MetricsConfig",
    "OffsetsConfig",
    "Pipeline",
    "PipelineConfig",
    "PostgresSinkConfig",
    "ProcessingTime",
    "RestartConfig",
    "Rule",
    "SinkConfig",
    "SinkRegistry",
    "Source",
    "StartOffsets",
    "StartTimestamp",
    "Statement",
    "interpolate",
    "load",
]
