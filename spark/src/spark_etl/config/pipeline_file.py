"""A pipeline file: YAML, `${NAME}` / `${NAME:-default}` in its strings, checked before Spark starts.

    apiVersion: etl/v1
    name: orders
    checkpoint: /data/checkpoints/orders       # Spark's; the source offsets of every batch
    source: {topics: [orders], start: earliest, max_offsets_per_trigger: 50000}
    decode: {format: json, schema: orders.json, unknown_fields: reject}
    derive: {day: date_format(placed, 'yyyy-MM-dd')}
    rules: [{name: paid, expr: amount > 0, on_violation: dlq}]
    sinks:
      - {type: delta, path: /data/lake/orders, partition_by: [day]}
      - {type: kafka, topic: orders.total, aggregate: {group_by: [country], select: {n: count(*)}}}
    dead_letter: {topic: orders.dlq}

Every key does something; one that is not known here is an error with its line. Values are interpolated after the YAML
is parsed, so a variable's content can never add keys. `$${` stands for a plain `${`. Relative places count from the
folder of the pipeline file (places.py).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from spark_etl.config import yaml_text
from spark_etl.config.document import PipelineConfig, faults
from spark_etl.config.places import resolved
from spark_etl.config.sinks import KafkaSinkConfig
from spark_etl.errors import ConfigError
from spark_etl.schemas.avro_schema import AvroSchema
from spark_etl.schemas.fields import CSV_KINDS, RecordSchema
from spark_etl.schemas.protobuf_schema import ProtobufSchema
from spark_etl.schemas.writers import Writers

PIPELINE_FILE_BYTES_MAX = 1 << 20
NESTING_MAX = 50
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
Place = tuple[str | int, ...]
AnySchema = RecordSchema | AvroSchema | ProtobufSchema


class _Lines:
    """Line numbers of a document's keys and items."""

    def __init__(self, path: Path, root: yaml.Node) -> None:
        self._path = path
        self._root = root
        self._refuse_duplicates(root, 0)

    def fault(self, place: Place, reason: str) -> ConfigError:
        """Return the error of one place of the document: `FILE:LINE: KEY.KEY: REASON`."""
        return ConfigError(self.text(place, reason))

    def text(self, place: Place, reason: str, *, absent: bool = False) -> str:
        """Return the same as text. `absent`: the last key is not in the document, and is named too."""
        line, node, known = self._root.start_mark.line, self._root, list[str]()
        for number, part in enumerate(place):
            found = self._child(node, part)
            if found is not None:
                line, node = found
            if found is not None or (absent and number == len(place) - 1):  # others are names of a union's members
                known.append(str(part))
        where = ".".join(known) or "pipeline"
        return f"{self._path}:{line + 1}: {where}: {reason}"

    @staticmethod
    def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                    return key.start_mark.line, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            return node.value[part].start_mark.line, node.value[part]
        return None

    def _refuse_duplicates(self, node: yaml.Node, depth: int) -> None:
        if depth > NESTING_MAX:
            raise ConfigError(f"{self._path}:{node.start_mark.line + 1}: nested deeper than {NESTING_MAX}")
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if key.value in seen if isinstance(key, yaml.ScalarNode) else False:
                    raise ConfigError(f"{self._path}:{key.start_mark.line + 1}: the key {key.value} appears twice")
                if isinstance(key, yaml.ScalarNode):
                    seen.add(key.value)
                self._refuse_duplicates(value, depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._refuse_duplicates(item, depth + 1)


class Pipeline(BaseModel):
    """The input of a run: the file's content and the record schema that it points to."""

    model_config = ConfigDict(frozen=True)

    config: PipelineConfig
    schema_: AnySchema | None  # None: raw values, or the registry has it
    key_schema: AnySchema | None = None

    _lines: _Lines | None = PrivateAttr(default=None)
    _writers: dict[str, Writers] = PrivateAttr(default_factory=dict)
    _pins: dict[str, Any] = PrivateAttr(default_factory=dict)

    def fault(self, place: Place, reason: str) -> ConfigError:
        """Return the error of one place of the file: `FILE:LINE: KEY.KEY: REASON`."""
        if self._lines is None:
            return ConfigError(f"{'.'.join(map(str, place))}: {reason}")
        return self._lines.fault(place, reason)

    @property
    def writers(self) -> Mapping[str, Writers]:
        """The schemas that records name: of `key` and `value`, where a registry has them."""
        return self._writers

    @property
    def pins(self) -> Mapping[str, Any]:
        """The versions of the registry that the columns come from (registry/pins.py)."""
        return self._pins

    def with_schemas(
        self,
        value: AnySchema | None,
        key: AnySchema | None,
        writers: dict[str, Writers],
        pins: dict[str, Any],
    ) -> Self:
        """Return the pipeline with the schemas of a registry. ConfigError: a column is made twice, or not there."""
        found = self.model_copy(update={"schema_": value, "key_schema": key})
        found._writers, found._pins = writers, pins
        if found._lines is not None:
            _check_names(found, found._lines)
            _check_columns(found, found._lines)
        return found

    @property
    def names(self) -> list[str]:
        """The names of a record's own columns: fields and headers."""
        fields = self.schema_.names if self.schema_ is not None else ["value"]
        return [*fields, *self.config.decode.headers]


def load(path: Path, environment: Mapping[str, str]) -> Pipeline:
    """Return the checked pipeline. ConfigError: the file or a schema is wrong, with file, line and key."""
    document, lines = _parsed(path)
    config = _validated(_interpolated(document, environment, lines, ()), lines)
    for place, reason in faults(config):
        raise lines.fault(place, reason)
    config = resolved(config, path, lines.fault)
    pipeline = Pipeline(config=config, schema_=_schema(path, config), key_schema=_key_schema(path, config))
    pipeline._lines = lines
    if config.decode.registry is None and config.decode.key_registry is None:  # else the registry has the columns
        _check_names(pipeline, lines)
        _check_columns(pipeline, lines)
    return pipeline


def _schema(path: Path, config: PipelineConfig) -> RecordSchema | AvroSchema | None:
    decode = config.decode
    if decode.schema_file is None:
        return None
    file = path.parent / decode.schema_file
    if decode.format == "avro":
        return AvroSchema.load(file)
    schema = RecordSchema.load(file, decode.names if decode.format == "json" else None)
    if decode.format == "csv":
        for field in schema.fields:
            if field.kind not in CSV_KINDS or field.limits:
                raise ConfigError(
                    f"{file}: properties.{field.name}: csv has no {field.kind}, and no check but its type"
                )
    return schema


def _key_schema(path: Path, config: PipelineConfig) -> RecordSchema | None:
    decode = config.decode
    return RecordSchema.load(path.parent / decode.key_schema, decode.names) if decode.key_schema is not None else None


def _check_names(pipeline: Pipeline, lines: _Lines) -> None:
    """Refuse a name for a property that no schema has."""
    schemas = [schema for schema in (pipeline.schema_, pipeline.key_schema) if isinstance(schema, RecordSchema)]
    found = {field.name for schema in schemas for field in schema.every_field()}
    for name in pipeline.config.decode.names:
        if name not in found:
            raise lines.fault(("decode", "names"), f"no schema has the property {name[:128]!r}")


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


def _interpolated(value: Any, environment: Mapping[str, str], lines: _Lines, place: Place) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(item, environment, lines, (*place, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolated(item, environment, lines, (*place, number)) for number, item in enumerate(value)]
    try:
        return interpolate(value, environment)
    except ConfigError as error:
        raise lines.fault(place, str(error)) from None


def _parsed(path: Path) -> tuple[dict[str, Any], _Lines]:
    try:
        with path.open("rb") as file:
            content = file.read(PIPELINE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(content) > PIPELINE_FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {PIPELINE_FILE_BYTES_MAX} bytes")
    try:
        root = yaml.compose(content, yaml_text.Loader)
        lines = _Lines(path, root) if root is not None else None
        document = yaml.load(content, yaml_text.Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigError(f"{path}:{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if lines is None or not isinstance(document, dict):
        raise ConfigError(f"{path}: the file must be a mapping")
    return document, lines


def _validated(document: Any, lines: _Lines) -> PipelineConfig:
    try:
        return PipelineConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError("; ".join(_readable(dict(item), lines) for item in error.errors())) from None


def _readable(error: dict[str, Any], lines: _Lines) -> str:
    reason = {"extra_forbidden": "unknown key", "missing": "required"}.get(error["type"], error["msg"])
    return lines.text(error["loc"], reason.removeprefix("Value error, "), absent=error["type"] == "missing")


def _check_columns(pipeline: Pipeline, lines: _Lines) -> None:
    """Refuse a column that is made twice, and one that is used and not made."""
    config = pipeline.config
    made = {name.lower(): "the schema has a field" for name in pipeline.names}
    sections: list[tuple[Place, Iterable[str]]] = [
        *((("join", number, "select"), join.select) for number, join in enumerate(config.join)),
        (("derive",), config.derive),
    ]
    if len(made) != len(pipeline.names):
        raise lines.fault(("decode", "headers"), "a column has the name of a field")
    for place, columns in sections:
        for column in columns:
            if column.lower() in made:
                raise lines.fault((*place, column), f"{made[column.lower()]} of that name")
            made[column.lower()] = "there is a column"
    field = config.decode.timestamp.field if config.decode.timestamp is not None else "_timestamp"
    if field not in (*pipeline.names, "_timestamp"):
        raise lines.fault(("decode", "timestamp", "field"), f"no column {field!r} in the schema or under headers")
    for place, columns in _used(config):
        for column in columns:
            if column.lower() not in made and column not in ("_key", "_topic", "_partition", "_timestamp"):
                raise lines.fault(place, f"no column {column!r} in the schema or under derive")


def _used(config: PipelineConfig) -> Iterator[tuple[Place, list[str]]]:
    """Yield places that name columns.

    Statements and `explode` may make more columns: then the plan checks those of sinks.
    """
    for number, join in enumerate(config.join):
        for column in join.on:
            yield ("join", number, "on", column), [column]
    if config.dedupe is not None:
        yield ("dedupe", "keys"), config.dedupe.keys
    more = bool(config.transform) or config.explode is not None
    for number, sink in enumerate(config.sinks if not more else []):
        if getattr(sink, "envelope", "none") == "none":  # else the plan finds the fields of `after`
            yield ("sinks", number, "partition_by"), getattr(sink, "partition_by", [])
        if isinstance(sink, KafkaSinkConfig) and sink.aggregate is not None:
            yield ("sinks", number, "aggregate", "group_by"), sink.aggregate.group_by
