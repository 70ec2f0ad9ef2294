"""The `decode` section: the form of a record's key, value and headers.

decode:
  format: json                      # avro, protobuf, csv, raw
  schema: orders.json               # a JSON Schema for json and csv, an Avro schema for avro, none for raw
  registry: {subject: orders-value, version: latest}    # instead of schema: values are framed by a schema registry
  unknown_fields: reject            # rescue: as JSON in the column _rescued; ignore: of keys too
  names: {"US Gross": us_gross}     # property of a schema, at any depth: column
  key: utf8                         # binary, json with key_schema, or json, avro or protobuf with key_registry
  key_registry: {subject: orders-key, version: 3}
  null_value: dlq                   # drop, delete
  headers: {trace: trace-id}        # column: name of the header
  timestamp: {field: placed, watermark: 10 minutes, ahead_max: 1 day, late: dlq}
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from spark_etl.config.model import AnyColumn, Column, Duration, Location, Section

REGISTRY_FORMATS = ("json", "avro", "protobuf")


class EventTime(Section):
    """The column with the time of an event, the delay after which a record is late, and what a wrong time does."""

    field: AnyColumn
    watermark: Duration
    ahead_max: Duration = "1 day"
    late: Literal["dlq", "drop"] = "dlq"


class RegistryVersion(Section):
    """The version of a subject that columns come from. `latest` is that of the first run with a checkpoint."""

    subject: str = Field(min_length=1, max_length=1_000)
    version: Annotated[int, Field(strict=True, ge=1, le=(1 << 31) - 1)] | Literal["latest"] = "latest"
    message: str | None = Field(default=None, min_length=1, max_length=1_000)  # of Protobuf


class Decode(Section):
    format: Literal["json", "avro", "protobuf", "csv", "raw"]
    schema_file: Location | None = Field(default=None, alias="schema")
    registry: RegistryVersion | None = None
    unknown_fields: Literal["reject", "rescue", "ignore"] = "reject"
    names: dict[str, Column] = Field(default={}, max_length=2_000)
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    key: Literal["utf8", "binary", "json", "avro", "protobuf"] = "utf8"
    key_schema: Location | None = None
    key_registry: RegistryVersion | None = None
    null_value: Literal["dlq", "drop", "delete"] = "dlq"
    headers: dict[Column, str] = Field(default={})
    timestamp: EventTime | None = None

    def _check_registry(self) -> None:
        """Raise ValueError for options of a registry that do not fit the others."""
        if self.registry is not None and self.format not in REGISTRY_FORMATS:
            raise ValueError(f"registry is for the formats {', '.join(REGISTRY_FORMATS)}")
        if self.registry is not None and self.schema_file is not None:
            raise ValueError("schema and registry: the columns come from one of them")
        if self.format == "protobuf" and self.registry is None:
            raise ValueError("format protobuf needs a registry")
        for name, form, version in (
            ("registry", self.format, self.registry),
            ("key_registry", self.key, self.key_registry),
        ):
            if version is not None and version.message is not None and form != "protobuf":
                raise ValueError(f"{name}.message is for protobuf")
        if self.key_registry is not None and self.key not in REGISTRY_FORMATS:
            raise ValueError(f"key_registry is for the keys {', '.join(REGISTRY_FORMATS)}")
        if self.key_registry is not None and self.key_schema is not None:
            raise ValueError("key_schema and key_registry: the key's columns come from one of them")
        if self.key_registry is None and self.key not in ("utf8", "binary", "json"):
            raise ValueError(f"key: {self.key} needs key_registry")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_registry()
        if (self.schema_file is None) != (self.format == "raw" or self.registry is not None):
            raise ValueError(f"format {self.format} {'has no' if self.format == 'raw' else 'needs a'} schema")
        if (self.key_schema is None) != (self.key != "json" or self.key_registry is not None):
            raise ValueError("key_schema is needed by, and only by, key: json")
        given = self.model_fields_set
        if "unknown_fields" in given and self.format != "json":
            raise ValueError("unknown_fields is only for format json")
        if self.names and self.format != "json" and self.key != "json":
            raise ValueError("names are only for JSON")
        if "delimiter" in given and self.format != "csv":
            raise ValueError("delimiter is only for format csv")
        return self
