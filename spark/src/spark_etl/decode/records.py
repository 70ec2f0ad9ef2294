"""Decoding of whole records: value, key, headers and event time.

The frame keeps every record. `_error` is the first fault; the data columns of a faulty record may hold anything. Python
on the executors reads JSON (json_rows.py), Spark's SQL functions read other forms.
"""

import json
import secrets
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType, TimestampType

from spark_etl.config import Decode, Pipeline
from spark_etl.config.model import seconds
from spark_etl.decode import avro, delimited, framed_avro, frames, json_rows, json_values, protobuf_rows, replayed
from spark_etl.decode.avro import Avro
from spark_etl.decode.delimited import Delimited
from spark_etl.decode.faults import barrier, first, utf8
from spark_etl.decode.framed_avro import FramedAvro
from spark_etl.decode.protobuf_rows import Part
from spark_etl.schemas.avro_schema import AvroSchema
from spark_etl.schemas.fields import RecordSchema
from spark_etl.schemas.protobuf_schema import ProtobufSchema

RAW = ("_raw_key", "_raw_value", "_raw_headers")
SOURCE_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")
TEXT = "_value_text"  # working columns
RESCUED, FAULT, KEY, KEY_FAULT = JSON_COLUMNS = ("_rescued", "_value_fault", "_key", "_key_fault")
_VALUE_CHECKS = {
    "json": json_values.CHECKS,
    "csv": ("utf8", *delimited.CHECKS),
    "avro": avro.CHECKS,
    "protobuf": protobuf_rows.CHECKS,
    "raw": (),
}


@dataclass(frozen=True, slots=True)
class Decoded:
    rows: DataFrame  # columns, marks, SOURCE_COLUMNS, RAW, _error
    columns: tuple[str, ...]  # data columns
    marks: tuple[str, ...]  # those of _rescued, _deleted and _replayed that the pipeline has
    checks: tuple[tuple[str, str], ...]


def decode(records: DataFrame, pipeline: Pipeline, batch_ms: int | None = None) -> Decoded:
    """Return the typed rows of Kafka records."""
    config = pipeline.config.decode
    if not records.isStreaming:  # of a stream, a batch with a new schema fails, and comes again
        for part, writers in pipeline.writers.items():
            writers.learn(frames.heads(records, part))
    nonce = secrets.token_hex(avro.NONCE_BYTES)
    frame = records.select(
        *(F.col(name).alias(f"_raw_{name}") for name in ("key", "value", "headers")),
        *(F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")),
    )
    frame = _with_protobuf(_with_json(frame, pipeline), pipeline)
    frame, fault = _with_value(frame, pipeline, nonce)
    frame, key_fault = _with_key(frame, pipeline, nonce)
    frame = frame.select("*", *(_header(name).alias(column) for column, name in config.headers.items()))
    frame = frame.withColumn("_error", barrier(_error(config, key_fault, fault, _ahead(config, frame, batch_ms))))
    columns = tuple(pipeline.names)
    marks = []
    if config.unknown_fields == "rescue":
        marks.append(RESCUED)
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
    of_json = ("utf8", *(f"key_{name}" for name in json_values.CHECKS if name != "utf8"))
    of_json = (*of_json, *(f"key_{name}" for name in frames.CHECKS)) if config.key_registry is not None else of_json
    of_avro = tuple(f"key_{name}" for name in framed_avro.CHECKS)
    key: dict[str, tuple[str, ...]] = {"utf8": ("utf8",), "binary": (), "json": of_json, "avro": of_avro}
    key["protobuf"] = tuple(f"key_{name}" for name in (*frames.CHECKS, *protobuf_rows.CHECKS))
    event_time = ("event_time",) if config.timestamp is not None else ()
    framed = frames.CHECKS if config.registry is not None else ()
    names = ("null_value", *key[config.key], *framed, *_VALUE_CHECKS[config.format], *event_time)
    return tuple(("decode", name) for name in dict.fromkeys(names))


def _with_json(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Add the columns of a JSON value and of a JSON key."""
    config = pipeline.config.decode
    schema = pipeline.schema_ if config.format == "json" else None
    value = schema.root if isinstance(schema, RecordSchema) else None
    key = pipeline.key_schema.root if isinstance(pipeline.key_schema, RecordSchema) else None
    fields = [f"`{field.column}` {field.spark_type}" for field in value.fields] if value is not None else []
    if value is not None:
        fields += [f"{RESCUED} STRING"] if config.unknown_fields == "rescue" else []
        fields.append(f"{FAULT} STRUCT<rule: STRING, message: STRING>")
    if key is not None:
        fields += [f"{KEY} {key.spark_type}", f"{KEY_FAULT} STRUCT<rule: STRING, message: STRING>"]
    if not fields:
        return frame
    texts = {"value": "_raw_value", "key": "_raw_key"}
    for part, root in (("value", value), ("key", key)):
        if root is not None and part in pipeline.writers:
            frame = frames.with_payload(frame, part, pipeline.writers[part])
            texts[part] = frames.payload_of(part)
    json_rows.shipped()
    added = StructType.fromDDL(", ".join(fields))
    columns = StructType([*frame.schema.fields, *added])  # type: ignore[misc]
    places = (texts["value"], texts["key"])
    return frame.mapInArrow(json_rows.rows(value, key, config.unknown_fields, JSON_COLUMNS, places), columns)


def _with_protobuf(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Add the columns of a Protobuf value and of a Protobuf key."""
    parts = []
    for part, schema in (("value", pipeline.schema_), ("key", pipeline.key_schema)):
        if isinstance(schema, ProtobufSchema):
            writers = pipeline.writers[part]
            frame = frames.with_payload(frame, part, writers)
            places = (frames.payload_of(part), frames.head_of(part), FAULT if part == "value" else KEY_FAULT)
            indexes = {head: json.loads(writer.content) for head, writer in writers.known.items()}
            known = {head: frozenset(map(tuple, each)) for head, each in indexes.items()}
            whole = KEY if part == "key" else ""
            parts.append(Part(schema.message, schema.descriptors, schema.root, *places, known, whole))
    if not parts:
        return frame
    protobuf_rows.shipped()
    added = StructType.fromDDL(", ".join(f"`{name}` {kind}" for part in parts for name, kind in part.columns))
    columns = StructType([*frame.schema.fields, *added])  # type: ignore[misc]
    return frame.mapInArrow(protobuf_rows.rows(parts), columns)


def _with_value(frame: DataFrame, pipeline: Pipeline, nonce: str) -> tuple[DataFrame, Column]:
    """Add the columns of the value, and return its fault."""
    config, schema = pipeline.config.decode, pipeline.schema_
    if schema is None:
        return frame.withColumn("value", F.col("_raw_value")), F.lit(None)
    if isinstance(schema, AvroSchema) and "value" in pipeline.writers:
        framed = FramedAvro(schema, pipeline.writers["value"], "value", nonce=nonce)
        return framed.decoded(frame), first("decode", framed.findings())
    if isinstance(schema, AvroSchema):
        reader = Avro(schema.document, schema.names, "_value_", nonce=nonce)
        return reader.decoded(frame), first("decode", reader.findings())
    if config.format in ("json", "protobuf"):
        return frame, _of_frame(pipeline, "value", _fault(FAULT))
    assert isinstance(schema, RecordSchema)  # of CSV
    lines = Delimited(schema, config.delimiter, "_value_", nonce=nonce)
    frame = lines.decoded(frame.withColumn(TEXT, utf8("_raw_value")))
    no_text = (F.col(TEXT).isNull(), "utf8", F.lit("the value is not UTF-8"))
    return frame, first("decode", [no_text, *lines.findings()])


def _with_key(frame: DataFrame, pipeline: Pipeline, nonce: str) -> tuple[DataFrame, Column]:
    """Add `_key`, unless it is there as a struct of the fields of a JSON key; return its fault."""
    form = pipeline.config.decode.key
    if form == "binary":
        return frame.withColumn(KEY, F.col("_raw_key")), F.lit(None)
    if form in ("json", "protobuf"):
        return frame, _of_frame(pipeline, "key", _fault(KEY_FAULT))
    if isinstance(pipeline.key_schema, AvroSchema):
        framed = FramedAvro(pipeline.key_schema, pipeline.writers["key"], "key", nonce=nonce, column=KEY)
        findings = [(condition, f"key_{rule}", message) for condition, rule, message in framed.findings()]
        return framed.decoded(frame), first("decode", findings)
    frame = frame.withColumn(KEY, utf8("_raw_key"))
    wrong = F.col("_raw_key").isNotNull() & F.col(KEY).isNull()
    return frame, first("decode", [(wrong, "utf8", F.lit("the key is not UTF-8"))])


def _of_frame(pipeline: Pipeline, part: str, fault: Column) -> Column:
    """Return a fault, or that of the frame before it if a registry frames the part."""
    if part not in pipeline.writers:
        return fault
    named = "key_" if part == "key" else ""
    found = frames.findings(part, pipeline.writers[part])
    return F.coalesce(first("decode", [(applies, f"{named}{rule}", text) for applies, rule, text in found]), fault)


def _fault(column: str) -> Column:
    """Return the fault that is in a column of json_rows."""
    found = F.struct(F.lit("decode").alias("stage"), F.col(f"{column}.rule"), F.col(f"{column}.message"))
    return F.when(F.col(column).isNotNull(), found)


def _header(name: str) -> Column:
    """Return the text of the last header of a name; null if there is none or it is not UTF-8."""
    named = F.filter("_raw_headers", lambda header: header["key"] == F.lit(name))
    value = F.try_element_at(named, F.lit(-1))["value"]
    return F.when(F.is_valid_utf8(value), value.cast("string"))


def _ahead(config: Decode, frame: DataFrame, batch_ms: int | None) -> Column:
    """Return the fault of an event time too far in the future: it would move the watermark for good.

    It is compared with the record's own time, or with that of the batch if this is earlier, or the record has none.
    Spark gives each try of a batch the same time; `batch_ms` is that time where a batch is read again without a stream.
    """
    timed = config.timestamp
    if timed is None or not isinstance(frame.schema[timed.field].dataType, TimestampType):
        return F.lit(None)
    batch = F.current_timestamp() if batch_ms is None else F.timestamp_millis(F.lit(batch_ms))
    own = F.col("_timestamp")
    known = F.when(own >= F.timestamp_seconds(F.lit(0)), F.least(own, batch)).otherwise(batch)
    bound = F.unix_millis(known) + seconds(timed.ahead_max) * 1000  # milliseconds have room for every sum
    ahead = F.unix_millis(timed.field) > bound  # mutant: clocks-bounded
    of = "batch" if timed.field == "_timestamp" else "record"
    message = F.lit(f"{timed.field} is more than {timed.ahead_max} after the time of its {of}")
    return first("decode", [(ahead, "event_time", message)])


def _error(config: Decode, key: Column, value: Column, ahead: Column) -> Column:
    null = F.col("_raw_value").isNull()
    faults = [key, value]
    if config.timestamp is not None:
        name = config.timestamp.field
        faults += [first("decode", [(F.col(name).isNull(), "event_time", F.lit(f"{name} is null"))]), ahead]
    if config.null_value != "delete":
        return F.coalesce(first("decode", [(null, "null_value", F.lit("the value is null"))]), *faults)
    no_key = first("decode", [(F.col("_raw_key").isNull(), "null_value", F.lit("the value and the key are null"))])
    return F.when(null, F.coalesce(no_key, key, ahead)).otherwise(F.coalesce(*faults))
