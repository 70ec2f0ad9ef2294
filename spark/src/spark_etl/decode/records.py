"""Decoding of whole records: value, key, headers and event time.

The frame keeps every record. `_error` is the first fault; the data columns of a faulty record may hold anything.
"""

import secrets
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl import replayed
from spark_etl.avro_schema import AvroSchema
from spark_etl.config import Decode, Pipeline
from spark_etl.decode import avro, delimited, json_text
from spark_etl.decode.avro import Avro
from spark_etl.decode.delimited import Delimited
from spark_etl.decode.faults import Finding, barrier, first, utf8
from spark_etl.decode.json_text import JsonText

RAW = ("_raw_key", "_raw_value", "_raw_headers")
SOURCE_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")
VALUE, KEY, KEY_FIELD = "_value_", "_key_", "_key_field_"  # beginnings of working columns
_VALUE_CHECKS = {"json": json_text.CHECKS, "csv": delimited.CHECKS, "avro": avro.CHECKS, "raw": ()}
Reader = JsonText | Delimited | Avro


@dataclass(frozen=True, slots=True)
class Decoded:
    rows: DataFrame  # columns, marks, SOURCE_COLUMNS, RAW, _error
    columns: tuple[str, ...]  # data columns
    marks: tuple[str, ...]  # those of _rescued, _deleted and _replayed that the pipeline has
    checks: tuple[tuple[str, str], ...]


def decode(records: DataFrame, pipeline: Pipeline) -> Decoded:
    """Return the typed rows of Kafka records."""
    config = pipeline.config.decode
    nonce = secrets.token_hex(avro.NONCE_BYTES)
    frame = records.select(
        *(F.col(name).alias(f"_raw_{name}") for name in ("key", "value", "headers")),
        *(F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")),
    )
    if config.format in ("json", "csv"):
        frame = frame.withColumn(f"{VALUE}text", utf8("_raw_value"))
    reader = _reader(pipeline, nonce)
    frame = reader.decoded(frame) if reader is not None else frame.withColumn("value", F.col("_raw_value"))
    frame, key_findings = _with_key(frame, pipeline, nonce)
    frame = frame.select("*", *(_header(name).alias(column) for column, name in config.headers.items()))
    value_findings = reader.findings() if reader is not None else []
    frame = frame.withColumn("_error", barrier(_error(config, key_findings, value_findings)))
    columns = tuple(pipeline.names)
    marks = []
    if config.unknown_fields == "rescue":
        frame = frame.withColumn("_rescued", F.col(f"{VALUE}rescued"))
        marks.append("_rescued")
    if config.null_value == "delete":
        frame = frame.withColumn("_deleted", F.col("_raw_value").isNull())
        marks.append("_deleted")
    if pipeline.config.keeps_last_rows:
        frame = frame.withColumn(replayed.COLUMN, replayed.place(F.col("_raw_headers")))
        marks.append(replayed.COLUMN)
    return Decoded(
        frame.select(*columns, *marks, *SOURCE_COLUMNS, *RAW, "_error"), columns, tuple(marks), _checks(config)
    )


def _checks(config: Decode) -> tuple[tuple[str, str], ...]:
    key = {"utf8": ("utf8",), "binary": (), "json": ("utf8", *(f"key_{name}" for name in json_text.CHECKS))}[config.key]
    text = ("utf8",) if config.format in ("json", "csv") else ()
    event_time = ("event_time",) if config.timestamp is not None else ()
    names = ("null_value", *text, *key, *_VALUE_CHECKS[config.format], *event_time)
    return tuple(("decode", name) for name in dict.fromkeys(names))


def _reader(pipeline: Pipeline, nonce: str) -> Reader | None:
    config, schema = pipeline.config.decode, pipeline.schema_
    if schema is None:
        return None
    if isinstance(schema, AvroSchema):
        return Avro(schema.document, schema.names, VALUE, nonce=nonce)
    if config.format == "csv":
        return Delimited(schema, config.delimiter, VALUE, nonce=nonce)
    return JsonText(schema, VALUE, "value", unknown=config.unknown_fields, nonce=nonce)


def _with_key(frame: DataFrame, pipeline: Pipeline, nonce: str) -> tuple[DataFrame, list[Finding]]:
    """Add `_key`: text, bytes, or a struct of the fields of a JSON key."""
    form = pipeline.config.decode.key
    if form == "binary":
        return frame.withColumn("_key", F.col("_raw_key")), []
    text = f"{KEY}text"
    frame = frame.withColumn(text, utf8("_raw_key"))
    there = F.col("_raw_key").isNotNull()
    findings: list[Finding] = [(there & F.col(text).isNull(), "utf8", F.lit("the key is not UTF-8"))]
    if pipeline.key_schema is None:
        return frame.withColumn("_key", F.col(text)), findings
    unknown: Literal["reject", "ignore"] = "ignore" if pipeline.config.decode.unknown_fields == "ignore" else "reject"
    reader = JsonText(pipeline.key_schema, KEY, "key", field_prefix=KEY_FIELD, unknown=unknown, nonce=nonce)
    fields = [F.col(f"{KEY_FIELD}{name}").alias(name) for name in pipeline.key_schema.names]
    frame = reader.decoded(frame).withColumn("_key", F.when(there, F.struct(*fields)))
    for condition, rule, message in reader.findings():
        findings.append((there & condition, f"key_{rule}", F.concat(F.lit("key: "), message)))
    return frame, findings


def _header(name: str) -> Column:
    """Return the text of the last header of a name; null if there is none or it is not UTF-8."""
    named = F.filter("_raw_headers", lambda header: header["key"] == F.lit(name))
    value = F.try_element_at(named, F.lit(-1))["value"]
    return F.when(F.is_valid_utf8(value), value.cast("string"))


def _error(config: Decode, key: list[Finding], value: list[Finding]) -> Column:
    null = F.col("_raw_value").isNull()
    text = config.format in ("json", "csv")
    findings = [*key, *value]
    if text:
        findings.insert(0, (F.col(f"{VALUE}text").isNull(), "utf8", F.lit("the value is not UTF-8")))
    if config.timestamp is not None:
        message = F.lit(f"{config.timestamp.field} is null")
        findings.append((F.col(config.timestamp.field).isNull(), "event_time", message))
    if config.null_value != "delete":
        return first("decode", [(null, "null_value", F.lit("the value is null")), *findings])
    no_key = (F.col("_raw_key").isNull(), "null_value", F.lit("the value and the key are null"))
    deleted = F.when(null, first("decode", [no_key, *key]))
    return deleted.otherwise(first("decode", findings)) if findings else deleted
