"""What tables ask of a record: a value for each partition column, a key for each deletion, a row in a change event.

A record that lacks one for a table which takes it is refused for all outputs. A task or a merge would fail at each try.
"""

from collections.abc import Callable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VariantType

from spark_etl.config import DeltaSinkConfig, Pipeline, PostgresSinkConfig
from spark_etl.decode.faults import barrier, fault
from spark_etl.errors import ConfigError
from spark_etl.lake import changes, choice
from spark_etl.transform import folders

CHANGE = ("decode", "change")  # the check of change events
Folder = tuple[int, str]  # number of a sink, and one of its partition columns


class Demands:
    def __init__(self, pipeline: Pipeline, wrong: Callable[[int, Exception], ConfigError]) -> None:
        """Ask for the tables of a pipeline. `wrong` makes the error of a sink, given its number."""
        self._wrong = wrong
        sinks = dict(enumerate(pipeline.config.sinks))
        self._tables = {number: sink for number, sink in sinks.items() if isinstance(sink, DeltaSinkConfig)}
        tables = {n: sink for n, sink in sinks.items() if isinstance(sink, DeltaSinkConfig | PostgresSinkConfig)}
        self._changed = {number: sink for number, sink in tables.items() if sink.envelope != "none"}

    @property
    def checks(self) -> list[tuple[str, str]]:
        """Those of all records, besides the folders'."""
        return [CHANGE] if self._changed else []

    @property
    def folders(self) -> list[Folder]:
        return [(number, name) for number, table in self._tables.items() for name in table.partition_by]

    def known(self, frame: DataFrame) -> list[Folder]:
        """Return those that can be judged before the statements, which may make columns."""
        return [
            (number, name)
            for number, name in self.folders
            if self._tables[number].where is None and self._absent(number, name, frame) is not None
        ]

    def faults(self, wanted: Sequence[Folder], frame: DataFrame) -> list[Column]:
        """Return the faults of records that have no folder. ConfigError: a column is not there, or makes no folder."""
        found = []
        for number, name in wanted:
            absent = self._absent(number, name, frame)
            if absent is None:
                raise self._wrong(number, ConfigError(f"partition_by: no column {name!r}"))
            taken = self._taken(number, frame)
            for condition, why in self._unfit(number, name, absent, frame):
                found.append(F.when(taken & condition, fault("partition", name, F.lit(f"{name} {why}"))))
        return found

    def _taken(self, number: int, frame: DataFrame) -> Column:
        taken = choice.condition(self._tables[number], frame.columns)
        if self._tables[number].where is not None:
            try:
                frame.select(taken)
            except PySparkException as error:
                raise self._wrong(number, ConfigError(f"where: {error}")) from None
        return taken

    def _absent(self, number: int, name: str, frame: DataFrame) -> Column | None:
        """Return whether a row has no value for a column of the folders; None if the frame lacks the column."""
        if name in frame.columns:
            return F.col(name).isNull()
        if self._tables[number].envelope == "none":
            return None
        try:
            return changes.image_without(frame.schema, name)
        except ConfigError as error:
            raise self._wrong(number, error) from None

    def _unfit(self, number: int, name: str, absent: Column, frame: DataFrame) -> list[tuple[Column, str]]:
        """Return the conditions of values that make no folder. ConfigError: the column's type makes none."""
        kind = frame.schema[name].dataType if name in frame.columns else None
        if isinstance(kind, ArrayType | BinaryType | MapType | StructType | VariantType):
            raise self._wrong(number, ConfigError(f"partition_by: {name} is {kind.simpleString()}, no folder"))
        return folders.faults(name) if isinstance(kind, StringType) else [(absent, folders.NULL)]

    def keyed(self, frame: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Refuse null values whose key names no row of a table."""
        for number, table in self._tables.items():
            try:
                fields = choice.target(table, frame.select(*columns).schema)
            except ConfigError as error:
                raise self._wrong(number, error) from None
            if not set(table.keys) <= set(fields.names):  # the sink's own check names the column
                continue
            names = ", ".join(table.keys)
            unnamed = changes.unnamed_row(frame.schema, fields, table.keys)
            reason = fault("decode", "null_value", F.lit(f"the value is null, and the key names no {names}"))
            frame = frame.withColumn("_error", barrier(F.coalesce("_error", F.when(unnamed, reason))))
        return frame

    def changing(self, frame: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Refuse change events that change no row."""
        rows = frame.select(*columns).schema
        for sink in self._changed.values():
            try:
                fields = changes.target_schema(sink, rows)
            except ConfigError:  # the sink's own check has the reason
                continue
            if set(sink.keys) <= set(fields.names):
                why = changes.unusable(rows, fields, sink)
                refused = F.when(why.isNotNull(), fault(*CHANGE, why))
                frame = frame.withColumn("_error", barrier(F.coalesce("_error", refused)))
        return frame
