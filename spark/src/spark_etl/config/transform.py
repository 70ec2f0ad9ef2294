"""The sections between decoding and sinks, in the order in which they run.

join: [{name: airlines, path: airlines.csv, format: csv, schema: "code STRING, name STRING", on: {carrier: code},
        select: {airline: name}, unmatched: dlq}]
derive: {day: date_format(placed, 'yyyy-MM-dd')}
rules: [{name: paid, expr: amount > 0, on_violation: dlq}]
dedupe: {keys: [order_id], within: 1 hour}
transform: [{sql: "SELECT *, amount * fx AS eur FROM input WHERE amount > 1"}]
explode: {column: lines, select: {sku: item.sku, total: item.quantity * item.price}, empty: keep}
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from spark_etl.config.model import AnyColumn, Column, Duration, Expression, Location, Name, Section


class Join(Section):
    """A static table whose columns are added to each record with the same key."""

    name: Name
    path: Location
    format: Literal["csv", "json", "parquet", "delta"]
    schema_: str | None = Field(default=None, alias="schema", min_length=1, max_length=100_000)
    on: dict[AnyColumn, Column] = Field(min_length=1)
    select: dict[Column, Expression] = Field(min_length=1)
    unmatched: Literal["keep", "drop", "dlq"] = "keep"

    @model_validator(mode="after")
    def _has_types(self) -> Self:
        if (self.schema_ is None) != (self.format in ("parquet", "delta")):
            raise ValueError("schema (columns and their types) is needed by, and only by, csv and json")
        return self


class Rule(Section):
    name: Name
    expr: Expression
    on_violation: Literal["keep", "drop", "dlq", "fail"] = "dlq"


class Dedupe(Section):
    """A limit of one record per key: of records whose event times are at most `within` from each other, one is kept."""

    keys: list[AnyColumn] = Field(min_length=1, max_length=100)
    within: Duration


class Statement(Section):
    sql: Expression


class Explode(Section):
    """An array of each record, whose items become rows."""

    column: Column
    select: dict[Column, Expression] = Field(min_length=1, max_length=1_000)
    empty: Literal["keep", "drop", "dlq"] = "keep"
