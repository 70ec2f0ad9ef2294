"""The outputs of a pipeline, planned over its good rows: a wrong column or expression is found before any record."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

from spark_etl.config import ConsoleSinkConfig, DeltaSinkConfig, KafkaSinkConfig, Pipeline, PostgresSinkConfig
from spark_etl.errors import ConfigError
from spark_etl.judgement import Judged
from spark_etl.lake import choice
from spark_etl.sinks.kafka_rows import row_records
from spark_etl.sinks.postgres import change_rows
from spark_etl.sinks.postgres.table import check_columns
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
            rows = good.schema if sink.envelope == "none" else change_rows.schema(sink, good.schema)
            _has(rows.names, [*sink.columns, *sink.keys, *sink.order_by])
            check_columns(sink.table, StructType([rows[name] for name in sink.columns or data_columns(rows.names)]))
            _check_order(rows, sink.order_by)
        case ConsoleSinkConfig():
            _has(good.columns, sink.columns)
        case DeltaSinkConfig():
            choice.check(sink, good, pipeline.config.explode)
            table = choice.target(sink, good.schema)
            _has(table.names, [*sink.partition_by, *sink.keys, *sink.order_by])
            _check_order(table, sink.order_by)


def _check_order(rows: StructType, names: list[str]) -> None:
    for name in names:
        if isinstance(rows[name].dataType, ArrayType | BinaryType | MapType | StructType | VariantType):
            raise ConfigError(f"order_by: {name} is {rows[name].dataType.simpleString()}, which has no order")


def _has(columns: list[str], names: list[str]) -> None:
    for name in names:
        if name not in columns:
            raise ConfigError(f"no column {name} in the rows")
