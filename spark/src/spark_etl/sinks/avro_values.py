"""Rows as Avro of a schema registry, for a topic: the head of the frame (decode/frames.py), then the value.

The schema is that of the columns, which is registered when a run starts, or a version of the subject. A row that a
version cannot hold becomes a dead letter of the sink. It would end the run otherwise.
"""

import json
from functools import reduce
from operator import or_
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from spark_etl.config import SinkRegistry
from spark_etl.errors import ConfigError
from spark_etl.schemas import avro_types

RULE = "avro"
_MESSAGE_CHARACTERS_MAX = 300


class AvroValues:
    """The values of one topic. `check` must have run before the columns are used."""

    def __init__(self, session: SparkSession, registry: SinkRegistry, topic: str, rows: StructType) -> None:
        """Write rows with the columns of `rows`."""
        self._jvm: Any = session._jvm
        self._registry = registry
        self._topic = topic
        self._rows = rows
        self._head = b""
        self._document: Any = None

    def check(self) -> None:
        """Register the schema, or look it up. ConfigError: the columns do not fit it. AwayError: try again."""
        from spark_etl.registry.look_up import Registry  # most pipelines have none, and its libraries load for long

        registry, wanted = Registry.of_environment(), self._registry
        if wanted.version == "register":
            document = self._of_columns()
            number = registry.registered(wanted.subject, json.dumps(document))
        else:
            found = registry.version(wanted.subject, wanted.version)
            if found.type != "AVRO":
                raise ConfigError(f"{wanted.subject} has schemas of the type {found.type}, not AVRO")
            number, document = found.id, avro_types.whole(found.text, found.references)
            self._check_columns(document)
        self._head, self._document = b"\0" + number.to_bytes(4, "big"), document

    def value(self) -> Column:
        """Return the value of a row that fits, null for another one."""
        row = F.struct(*(F.col(f"`{name}`") for name in self._rows.names))
        value = F.concat(F.lit(self._head), to_avro(row, json.dumps(self._document)))
        return F.when(self.fault().isNull(), value)

    def fault(self) -> Column:
        """Return why a row does not fit, STRUCT<rule, message>; null if it does."""
        if self._registry.version == "register":
            return F.lit(None).cast("struct<rule: string, message: string>")
        named = avro_types.named(self._document)
        fields = {field["name"].lower(): field["type"] for field in self._document["fields"]}
        faults = [
            F.when(_misfit(F.col(f"`{each.name}`"), each.dataType, fields[each.name.lower()], named), F.lit(each.name))
            for each in self._rows.fields
        ]
        name = F.coalesce(*faults)
        text = F.concat(name, F.lit(f" has a value that the schema of {self._registry.subject} does not allow"))
        return F.when(name.isNotNull(), F.struct(F.lit(RULE).alias("rule"), text.alias("message")))

    def _of_columns(self) -> dict[str, Any]:
        """Return the schema of the columns. A column may be null and has that default, so that one may be added."""
        name = "".join(each if each.isascii() and each.isalnum() else "_" for each in self._topic)
        name = f"_{name}" if name[0].isdigit() else name
        try:
            kind = self._jvm.org.apache.spark.sql.types.DataType.fromJson(self._rows.json())
            text = self._jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(kind, False, name, "").toString()
        except Py4JJavaError as error:
            raise ConfigError(f"value: {_said(error)}") from None
        found: dict[str, Any] = _nullable(json.loads(text))
        return found

    def _check_columns(self, document: Any) -> None:
        """Raise ConfigError if Spark cannot write the columns with a schema."""
        if not isinstance(document, dict) or document.get("type") != "record":
            raise ConfigError(f"the schema of {self._registry.subject} is no record")
        spark, avro = self._jvm.org.apache.spark.sql, self._jvm.org.apache.avro
        try:
            kind = spark.types.DataType.fromJson(self._rows.json())
            spark.avro.AvroSerializer(kind, avro.Schema.Parser().parse(json.dumps(document)), False)
        except Py4JJavaError as error:
            raise ConfigError(f"the schema of {self._registry.subject} does not fit: {_said(error)}") from None


def _nullable(schema: Any) -> Any:
    """Return a schema of Spark's with null as the first type of unions, and as the default of their fields."""
    if isinstance(schema, list):
        return ["null", *(_nullable(each) for each in schema if each != "null")]
    if not isinstance(schema, dict):
        return schema
    found = {name: _nullable(each) if name in ("type", "items", "values") else each for name, each in schema.items()}
    if "fields" in schema:
        found["fields"] = [
            {
                **field,
                "type": _nullable(field["type"]),
                **({"default": None} if isinstance(field["type"], list) else {}),
            }
            for field in schema["fields"]
        ]
    return found


def _misfit(value: Column, kind: DataType, avro: Any, named: dict[str, Any]) -> Column:
    """Return whether a value is null where a schema has no null, or no symbol of its enum, or of another size."""
    avro = named.get(avro, avro) if isinstance(avro, str) else avro
    optional = avro == "null" or (isinstance(avro, list) and "null" in avro)
    types = [each for each in avro if each != "null"] if isinstance(avro, list) else [avro]
    if len(types) != 1:  # null alone, or what Spark writes as a struct of one member for each type
        return value.isNotNull() if not types else F.lit(False)
    one = named.get(types[0], types[0]) if isinstance(types[0], str) else types[0]
    inner = _inner_misfit(value, kind, one, named)
    return value.isNotNull() & inner if optional else value.isNull() | inner


def _inner_misfit(value: Column, kind: DataType, avro: Any, named: dict[str, Any]) -> Column:
    never = F.lit(False)
    if not isinstance(avro, dict):
        return never
    match kind:
        case StructType() if avro["type"] == "record":
            types = {field["name"].lower(): field["type"] for field in avro["fields"]}
            parts = [
                _misfit(value[each.name], each.dataType, types[each.name.lower()], named)
                for each in kind.fields
                if each.name.lower() in types
            ]
            return reduce(or_, parts, never)
        case ArrayType() if avro["type"] == "array":
            return F.exists(value, lambda each: _misfit(each, kind.elementType, avro["items"], named))
        case MapType() if avro["type"] == "map":
            values = F.map_values(value)
            return F.exists(values, lambda each: _misfit(each, kind.valueType, avro["values"], named))
    if avro["type"] == "enum":
        return value.isin(avro["symbols"]) == F.lit(False)
    if avro["type"] == "fixed" and "logicalType" not in avro:
        return F.octet_length(value).eqNullSafe(F.lit(avro["size"])) == F.lit(False)
    return never


def _said(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).splitlines()[0][:_MESSAGE_CHARACTERS_MAX]
