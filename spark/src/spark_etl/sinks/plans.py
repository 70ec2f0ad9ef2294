"""The outputs of a pipeline, planned over its good rows: a wrong column or expression is found before any record."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_etl.config import ConsoleSinkConfig, DeltaSinkConfig, KafkaSinkConfig, Pipeline, PostgresSinkConfig
from spark_etl.errors import ConfigError
from spark_etl.judgement import Judged
from spark_etl.lake.changes import target_schema
from spark_etl.sinks.kafka_rows import row_records
from spark_etl.sinks.postgres_table import check_columns
from spark_etl.sinks.rows import data_columns
from spark_etl.sinks.summaries import summary
from spark_etl.sinks.windows import windowed


def check_plans(pipeline: Pipeline, judged: Judged) -> None:
    """Plan each sink of a pipeline. Raises ConfigError with the file, line and key of the first that is wrong."""
    good = judged.good(judged.rows, raw=pipeline.config.keeps_raw)
    for number, sink in enumerate(pipeline.config.sinks):
        try:
            _planned(sink, good, pipeline)
        except (PySparkException, ConfigError) as error:
            raise pipeline.fault(("sinks", number), str(error).splitlines()[0]) from None


def _planned(sink: object, good: DataFrame, pipeline: Pipeline) -> None:
    match sink:
        case KafkaSinkConfig(aggregate=None):
            row_records(good, sink, pipeline.config.name)
        case KafkaSinkConfig():
            aggregate, event_time = sink.aggregate, pipeline.config.decode.timestamp
            assert aggregate is not None
            if aggregate.window is None:
                summary(good, sink, pipeline.config.name, 0)
            else:
                assert event_time is not None  # checked with the file
                windowed(good, sink, event_time)
        case PostgresSinkConfig():
            _has(good.columns, [*sink.columns, *sink.keys])
            check_columns(sink.table, good.select(*(sink.columns or data_columns(good))).schema)
        case ConsoleSinkConfig():
            _has(good.columns, sink.columns)
        case DeltaSinkConfig():
            _has(target_schema(sink, good.schema).names, [*sink.partition_by, *sink.keys])


def _has(columns: list[str], names: list[str]) -> None:
    for name in names:
        if name not in columns:
            raise ConfigError(f"no column {name} in the rows")
