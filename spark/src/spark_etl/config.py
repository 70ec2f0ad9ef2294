"""A pipeline file: YAML, `${NAME}` / `${NAME:-default}` in its strings, checked before Spark starts.

    apiVersion: etl/v1
    name: orders
    checkpoint: /data/checkpoints/orders       # Spark's; the source offsets of every batch
    source: {topics: [orders], start: earliest, max_offsets_per_trigger: 50000}
    decode: {format: json, schema: orders.json, unknown_fields: reject}
    derive: {day: date_format(placed, 'yyyy-MM-dd')}
    rules: [{name: paid, expr: amount > 0, on_violation: dlq}]
    sinks:
      - {type: parquet, path: /data/lake/orders, partition_by: [day]}
      - {type: kafka, topic: orders.total, aggregate: {group_by: [country], select: {n: count(*)}}}
    dead_letter: {topic: orders.dlq}

Every key does something; one that is not known here is an error that names it. Values are interpolated after the YAML
is parsed, so a variable's content can never add keys. `$${` stands for a plain `${`. Paths of schemas are relative to
the pipeline file, all others to the working directory.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spark_etl.errors import ConfigError
from spark_etl.schema import RecordSchema

PIPELINE_FILE_BYTES_MAX = 1 << 20
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

Topic = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
Column = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,127}$")]  # a leading _ is ours
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,127}$")]
Expression = Annotated[str, Field(min_length=1, max_length=10_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Strict):
    topics: list[Topic] = Field(min_length=1)
    start: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: int | None = Field(default=None, ge=1)


class Decode(_Strict):
    format: Literal["json"]
    schema_file: str = Field(alias="schema", min_length=1)
    unknown_fields: Literal["reject", "rescue"] = "reject"


class Rule(_Strict):
    name: Name
    expr: Expression
    on_violation: Literal["dlq", "fail"] = "dlq"


class ParquetSinkConfig(_Strict):
    type: Literal["parquet"]
    path: str = Field(min_length=1)
    partition_by: list[Column] = Field(min_length=1)
    compression: Literal["snappy", "zstd", "lz4", "none"] = "zstd"


class Aggregate(_Strict):
    group_by: list[Column] = Field(min_length=1)
    select: dict[Column, Expression] = Field(min_length=1)


class KafkaSinkConfig(_Strict):
    type: Literal["kafka"]
    topic: Topic
    aggregate: Aggregate


class DeadLetter(_Strict):
    topic: Topic


class MetricsConfig(_Strict):
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


class PipelineConfig(_Strict):
    api_version: Literal["etl/v1"] = Field(alias="apiVersion")
    name: Name
    checkpoint: str = Field(min_length=1)
    trigger: Literal["available_now"] = "available_now"
    source: Source
    decode: Decode
    derive: dict[Column, Expression] = {}
    rules: list[Rule] = []
    sinks: list[Annotated[ParquetSinkConfig | KafkaSinkConfig, Field(discriminator="type")]] = Field(min_length=1)
    dead_letter: DeadLetter
    metrics: MetricsConfig = MetricsConfig()

    @property
    def parquet(self) -> ParquetSinkConfig:
        return next(sink for sink in self.sinks if isinstance(sink, ParquetSinkConfig))

    @property
    def summaries(self) -> list[KafkaSinkConfig]:
        return [sink for sink in self.sinks if isinstance(sink, KafkaSinkConfig)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        parquet = [sink for sink in self.sinks if isinstance(sink, ParquetSinkConfig)]
        if len(parquet) != 1:
            raise ValueError(
                f"sinks: exactly one parquet sink is needed (its manifest orders the batches), {len(parquet)} found"
            )
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            raise ValueError("rules: two rules have the same name")
        written = [self.dead_letter.topic, *(sink.topic for sink in self.summaries)]
        if len({*written, *self.source.topics}) != len(written) + len(set(self.source.topics)):
            raise ValueError("source, sinks and dead_letter must all name different topics")
        return self


class Pipeline(_Strict):
    """The input of a run: the file's content and the record schema that it points to."""

    config: PipelineConfig
    schema_: RecordSchema


def load(path: Path, environment: Mapping[str, str]) -> Pipeline:
    config = _validated(path, interpolate(_parsed(path), environment))
    schema = RecordSchema.load(path.parent / config.decode.schema_file)
    _check_columns(path, config, schema)
    return Pipeline(config=config, schema_=schema)


def interpolate(value: Any, environment: Mapping[str, str]) -> Any:
    """Replace `${NAME}` and `${NAME:-default}` in all strings of a document.

    The default applies when NAME is unset or empty, as in a shell.
    """
    if isinstance(value, dict):
        return {key: interpolate(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def substitute(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name is None:
            return "${"
        if environment.get(name):
            return environment[name]
        if default is None:
            raise ConfigError(f"the environment variable {name} is not set and has no default (write ${{{name}:-…}})")
        return str(default)

    return _VARIABLE.sub(substitute, value)


def _parsed(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(PIPELINE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(content) > PIPELINE_FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {PIPELINE_FILE_BYTES_MAX} bytes")
    try:
        document = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: the file must be a mapping")
    return document


def _validated(path: Path, document: Any) -> PipelineConfig:
    try:
        return PipelineConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path}: " + "; ".join(_readable(dict(item)) for item in error.errors())) from None


def _readable(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"]) or "pipeline"
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown key"
    if error["type"] == "missing":
        return f"{where}: required"
    return f"{where}: {error['msg']}"


def _check_columns(path: Path, config: PipelineConfig, schema: RecordSchema) -> None:
    clash = sorted(set(config.derive) & set(schema.names))
    if clash:
        raise ConfigError(f"{path}: derive.{clash[0]}: the schema has a field of that name")
    known = {*schema.names, *config.derive}
    for where, columns in [
        ("partition_by", config.parquet.partition_by),
        *((f"{sink.topic}: group_by", sink.aggregate.group_by) for sink in config.summaries),
    ]:
        for column in columns:
            if column not in known:
                raise ConfigError(f"{path}: {where}: no column {column!r} in the schema or under derive")
