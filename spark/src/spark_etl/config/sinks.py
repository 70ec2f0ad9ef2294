"""The `sinks` and `dead_letter` sections: outputs of a pipeline."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from spark_etl.config.clients import ProducerOptions
from spark_etl.config.model import AnyColumn, Column, Duration, Expression, Location, Section, Topic, seconds


class DeltaSinkConfig(Section):
    """A Delta Lake table: of the records (append), or of the last state per key (upsert)."""

    type: Literal["delta"]
    path: Location
    where: Expression | None = None
    columns: list[AnyColumn] = Field(default=[])
    partition_by: list[Column] = Field(default=[])
    compression: Literal["snappy", "zstd", "lz4", "none"] = "zstd"
    mode: Literal["append", "upsert"] = "append"
    keys: list[AnyColumn] = Field(default=[])
    envelope: Literal["none", "debezium"] = "none"
    order_by: list[Column] = Field(default=[])
    widen: list[Literal["numbers"]] = Field(default=[])
    statistics: list[AnyColumn] | Annotated[int, Field(strict=True, ge=-1, le=100_000)] | None = None
    compact_every: int | None = Field(default=None, ge=2, le=100_000)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_upsert(self)
        statistics = self.statistics if isinstance(self.statistics, list) else []
        named = (*self.keys, *self.order_by, *self.partition_by, *statistics)
        if self.columns and not {name for name in named if not name.startswith("_")} <= set(self.columns):
            raise ValueError("columns must have those of keys, order_by, partition_by and statistics")
        if set(statistics) & set(self.partition_by):
            raise ValueError("readers know partition_by from the folders: leave it out of statistics")
        if self.columns and self.envelope != "none":
            raise ValueError("columns are for rows, not for an envelope")
        return self

    @property
    def takes_all(self) -> bool:
        """Whether the table gets each good row, with all of its columns."""
        return self.where is None and not self.columns


class Aggregate(Section):
    """Groups and their selected values: of the whole table, or of each window of event time."""

    group_by: list[Column] = Field(default=[])
    select: dict[Column, Expression] = Field(min_length=1)
    window: Duration | None = None
    slide: Duration | None = None
    timezone: str | None = Field(default=None, pattern=r"^[A-Za-z][A-Za-z0-9_+/-]{0,63}$")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        whole = self.window is not None and seconds(self.window) % 86_400 == 0 and self.slide is None
        if self.timezone is not None and not whole:
            raise ValueError("timezone needs a window of whole days, without slide")
        if not self.group_by and self.window is None:
            raise ValueError("group_by or window is needed")
        if self.slide is not None and self.window is None:
            raise ValueError("slide needs window")
        return self


class SinkRegistry(Section):
    """The schema of a topic's values: that of the columns, which is registered, or a version of the subject."""

    subject: str = Field(min_length=1, max_length=1_000)
    version: Annotated[int, Field(strict=True, ge=1, le=(1 << 31) - 1)] | Literal["latest", "register"] = "register"


class KafkaSinkConfig(Section):
    """A topic: of the rows of each batch, or of aggregates."""

    type: Literal["kafka"]
    topic: Topic
    value: Literal["json", "original", "avro"] = "json"
    registry: SinkRegistry | None = None
    key: AnyColumn | None = None
    columns: list[AnyColumn] = Field(default=[])
    mode: Literal["update", "append"] = "update"
    aggregate: Aggregate | None = None
    client: ProducerOptions = ProducerOptions({})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = self.model_fields_set & {"value", "key", "columns", "registry"}
        if self.aggregate is not None and given:
            raise ValueError(f"{min(given)} is for rows, not for an aggregate")
        if "mode" in self.model_fields_set and (self.aggregate is None or self.aggregate.window is None):
            raise ValueError("mode is for an aggregate with a window")
        if self.columns and self.value == "original":
            raise ValueError("columns are for value: json and value: avro")
        if (self.registry is not None) != (self.value == "avro"):
            raise ValueError("registry is needed by, and only by, value: avro")
        return self


class PostgresSinkConfig(Section):
    type: Literal["postgres"]
    url: str = Field(pattern=r"^jdbc:postgresql://", max_length=1_000)
    table: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$")
    user: str | None = Field(default=None, max_length=100)
    password: SecretStr | None = None
    mode: Literal["append", "upsert"] = "append"
    keys: list[AnyColumn] = Field(default=[])
    columns: list[AnyColumn] = Field(default=[])
    envelope: Literal["none", "debezium"] = "none"
    order_by: list[Column] = Field(default=[])
    widen: list[Literal["columns", "numbers", "nulls"]] = Field(default=[])

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_upsert(self)
        if self.columns and not {*self.keys, *self.order_by} <= set(self.columns):
            raise ValueError("columns must have those of keys and order_by")
        if "password=" in self.url:
            raise ValueError("the password belongs in `password`, where it is never printed")
        return self

    @property
    def keeps_places(self) -> bool:
        """Whether the table has columns of each row that tell older rows from newer ones."""
        return bool(self.order_by) or {"_topic", "_partition", "_offset", "_timestamp"} <= set(self.columns)


def _check_upsert(sink: DeltaSinkConfig | PostgresSinkConfig) -> None:
    """Raise ValueError for options that do not fit the mode."""
    if bool(sink.keys) != (sink.mode == "upsert"):
        raise ValueError("keys are needed by, and only by, mode: upsert")
    if sink.envelope != "none" and sink.mode != "upsert":
        raise ValueError("an envelope needs mode: upsert")
    if sink.order_by and (sink.mode != "upsert" or set(sink.order_by) & set(sink.keys)):
        raise ValueError("order_by is for mode: upsert, and for other columns than keys")


class ConsoleSinkConfig(Section):
    """The first rows of each batch on standard error, for trying a pipeline."""

    type: Literal["console"]
    rows: int = Field(default=20, ge=1, le=1_000)
    columns: list[AnyColumn] = Field(default=[])


SinkConfig = Annotated[
    DeltaSinkConfig | KafkaSinkConfig | PostgresSinkConfig | ConsoleSinkConfig,
    Field(discriminator="type"),
]


class DeadLetter(Section):
    topic: Topic
