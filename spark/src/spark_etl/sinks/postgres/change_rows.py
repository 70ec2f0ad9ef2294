"""Change events of Debezium (`envelope: debezium`) as rows of `mode: upsert`, for sinks other than the table.

A row has the columns of `after` and of the pipeline, and `_deleted`. A deletion has its keys in their columns. The
rules are those of the table (lake/changes.py).
"""

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType

from spark_etl.config import PostgresSinkConfig
from spark_etl.decode import replayed
from spark_etl.errors import ConfigError
from spark_etl.lake import changes
from spark_etl.sinks.rows import DELETED


def schema(config: PostgresSinkConfig, rows: StructType) -> StructType:
    """Return the columns of `opened`. ConfigError: the rows are no change events."""
    try:
        found = changes.target_schema(config, rows)
    except ConfigError as error:
        raise ConfigError(f"sink {config.table}: {str(error).removeprefix('sinks.delta: ')}") from None
    carried = [field for field in rows.fields if field.name == replayed.COLUMN]
    return StructType([*found.fields, *carried, StructField(DELETED, BooleanType())])


def opened(rows: DataFrame, config: PostgresSinkConfig) -> DataFrame:
    """Return the rows of change events without messages (op m)."""
    carried = [name for name in rows.columns if name == replayed.COLUMN or name.startswith(changes.RAW)]
    found = changes.opened_envelope(rows, config, changes.target_schema(config, rows.schema), carried)
    return found.where("NOT _ignored").drop("_ignored")
