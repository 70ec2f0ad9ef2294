"""The `decode` section: the form of a record's key, value and headers.

decode:
  format: json                      # avro, csv, raw
  schema: orders.json               # a JSON Schema for json and csv, an Avro schema for avro, none for raw
  unknown_fields: reject            # rescue: as JSON in the column _rescued; ignore: of keys too
  names: {"US Gross": us_gross}     # property of a schema, at any depth: column
  key: utf8                         # binary, or json with key_schema
  null_value: dlq                   # drop, delete
  headers: {trace: trace-id}        # column: name of the header
  timestamp: {field: placed, watermark: 10 minutes, ahead_max: 1 day, late: dlq}
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from spark_etl.config.model import AnyColumn, Column, Duration, Location, Section


class EventTime(Section):
    """The column with the time of an event, the delay after which a record is late, and what a wrong time does."""

    field: AnyColumn
    watermark: Duration
    ahead_max: Duration = "1 day"
    late: Literal["dlq", "drop"] = "dlq"


class Decode(Section):
    format: Literal["json", "avro", "csv", "raw"]
    schema_file: Location | None = Field(default=None, alias="schema")
    unknown_fields: Literal["reject", "rescue", "ignore"] = "reject"
    names: dict[str, Column] = Field(default={}, max_length=2_000)
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    key: Literal["utf8", "binary", "json"] = "utf8"
    key_schema: Location | None = None
    null_value: Literal["dlq", "drop", "delete"] = "dlq"
    headers: dict[Column, str] = Field(default={})
    timestamp: EventTime | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.schema_file is None) != (self.format == "raw"):
            raise ValueError(f"format {self.format} {'has no' if self.format == 'raw' else 'needs a'} schema")
        if (self.key_schema is None) != (self.key != "json"):
            raise ValueError("key_schema is needed by, and only by, key: json")
        given = self.model_fields_set
        if "unknown_fields" in given and self.format != "json":
            raise ValueError("unknown_fields is only for format json")
        if self.names and self.format != "json" and self.key != "json":
            raise ValueError("names are only for JSON")
        if "delimiter" in given and self.format != "csv":
            raise ValueError("delimiter is only for format csv")
        return self
