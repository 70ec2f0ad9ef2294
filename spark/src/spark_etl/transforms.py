"""Kafka records → typed rows, or the reason why not. SQL functions only; no Python runs per record.

from_json alone would let these pass: a missing required field, unknown or duplicate fields, a second document after the
first, a null value, and a number or object where a string belongs. It therefore keeps text fields as VARIANT, which
remembers the JSON type, and three more checks follow:

- the names of the value's fields (json_object_keys): missing, unknown and duplicate ones;
- the names of the fields of `{"r":VALUE,"NONCE":1}`: exactly r and NONCE when VALUE is one whole JSON value. Each batch
  has a new nonce, so no producer can write a value that closes the wrapper;
- the JSON type of each text field.

The first check that fails is the record's reason: (stage, rule, message). Stages: decode, rules, partition.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own convention)

from spark_etl.config import PipelineConfig
from spark_etl.schema import Field, RecordSchema

JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "allowUnquotedControlChars": "false",
}
MESSAGE_CHARACTERS_MAX = 500
DECODE_CHECKS = ("null_value", "utf8", "json", "object", "duplicate_field", "type", "required", "unknown_field")
RAW = ("key", "value", "headers")
SOURCE_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")


@dataclass(frozen=True, slots=True)
class Checked:
    """One frame of all records; `_error` is null for the good ones, raw key, value and headers are null for those."""

    rows: DataFrame
    columns: tuple[str, ...]  # of a good row, in the order they are written

    def good(self) -> DataFrame:
        return self.rows.where("_error IS NULL").select(*self.columns)

    def refused(self) -> DataFrame:
        return self.rows.where("_error IS NOT NULL")


def check(records: DataFrame, config: PipelineConfig, schema: RecordSchema) -> Checked:
    """Decode, derive and judge; keep every record."""
    rescue = config.decode.unknown_fields == "rescue"
    decoded = _decode(records, schema, rescue=rescue, nonce=secrets.token_hex(8))
    derived = decoded.select("*", *(F.expr(expression).alias(name) for name, expression in config.derive.items()))
    error = F.coalesce("_decode_error", *_rule_errors(config), *_partition_errors(config))
    columns = (*schema.names, *config.derive, *(["_rescued"] if rescue else []), *SOURCE_COLUMNS)
    judged = derived.withColumn("_error", error)
    raw = [
        F.when(F.col("_error").isNotNull(), F.col(name)).alias(f"_raw_{name}") for name in ("key", "value", "headers")
    ]
    return Checked(judged.select(*columns, *raw, "_error"), columns)


def _decode(records: DataFrame, schema: RecordSchema, *, rescue: bool, nonce: str) -> DataFrame:
    text = F.expr("CASE WHEN is_valid_utf8(value) THEN CAST(value AS STRING) END")
    parsed = records.withColumn("_text", text).select(
        "*",
        F.from_json("_text", _json_schema(schema), JSON_OPTIONS).alias("_json"),
        F.json_object_keys("_text").alias("_names"),
    )
    parsed = parsed.withColumn("_whole", _whole(nonce))
    known = F.array(*(F.lit(name) for name in schema.names))
    as_declared = F.col("_names") == known  # the usual case: each field once, in the schema's order
    fields = [_field_value(field).alias(field.name) for field in schema.fields]
    typed = parsed.select(
        "*",
        *fields,
        F.expr("CASE WHEN is_valid_utf8(key) THEN CAST(key AS STRING) END").alias("_key"),
        *(F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")),
        F.when(~as_declared, F.array_except("_names", known)).alias("_unknown"),
        F.when(~as_declared, F.size("_names") != F.size(F.array_distinct("_names"))).alias("_duplicate"),
    )
    found = typed.select(
        "*",
        _wrong_types(schema).alias("_wrong"),
        _listed(_missing(field) for field in schema.fields if field.required).alias("_missing"),
        *([_rescued().alias("_rescued")] if rescue else []),
    )
    error = _decode_error(reject_unknown=not rescue)
    working = ("_text", "_json", "_names", "_whole", "_unknown", "_duplicate", "_wrong", "_missing")
    return found.select("*", error.alias("_decode_error")).drop(*working)


def _whole(nonce: str) -> Column:
    """Return whether the value is one JSON value with nothing after it.

    An object whose first } is its last character needs no wrapper.
    """
    wrapper = F.concat(F.lit('{"r":'), F.col("_text"), F.lit(f',"{nonce}":1}}'))
    surely = F.col("_names").isNotNull() & (F.instr("_text", "}") == F.length("_text"))
    return F.when(surely, F.lit(True)).otherwise(F.json_object_keys(wrapper) == F.array(F.lit("r"), F.lit(nonce)))


def _json_schema(schema: RecordSchema) -> str:
    columns = [f"`{f.name}` {'VARIANT' if f.json_type == 'string' else f.spark_type}" for f in schema.fields]
    return ", ".join([*columns, "`_corrupt` STRING"])


def _field_value(field: Field) -> Column:
    value = F.col(f"_json.{field.name}")
    if field.json_type != "string":
        return value
    text = F.try_variant_get(value, "$", "string")
    return F.try_to_timestamp(text) if field.date_time else text


def _rescued() -> Column:
    """Return the unknown fields as one JSON object of texts; null if there are none, which saves a second parse."""
    everything = F.from_json("_text", "map<string,string>")
    unknown = F.map_filter(everything, lambda name, _: F.array_contains("_unknown", name))
    return F.when(F.size("_unknown") > 0, F.to_json(unknown))


def _decode_error(*, reject_unknown: bool) -> Column:
    unknown = F.lit(reject_unknown) & (F.size("_unknown") > 0)
    lax = F.col("_json._corrupt").isNotNull() & F.try_parse_json("_text").isNull()  # single quotes and the like
    checks: list[tuple[Column, str, Column]] = [
        (F.col("value").isNull(), "null_value", F.lit("the value is null")),
        (F.col("_text").isNull(), "utf8", F.lit("the value is not UTF-8")),
        (F.col("key").isNotNull() & F.col("_key").isNull(), "utf8", F.lit("the key is not UTF-8")),
        (~F.coalesce("_whole", F.lit(False)), "json", F.lit("the value is not one whole JSON value")),
        (F.col("_names").isNull(), "object", F.lit("the value is not a JSON object")),
        (F.col("_duplicate"), "duplicate_field", F.lit("a field appears twice")),
        (lax, "json", F.lit("the value is not strict JSON")),
        (F.col("_wrong") != "", "type", _listing("wrong type: ", F.col("_wrong"))),
        (F.col("_json._corrupt").isNotNull(), "type", F.lit("a field has the wrong type")),
        (F.col("_missing") != "", "required", _listing("missing or null: ", F.col("_missing"))),
        (unknown, "unknown_field", _listing("unknown: ", F.array_join("_unknown", ", "))),
    ]
    return _first_failing(checks, "decode")


def _listing(text: str, names: Column) -> Column:
    """List the first field names of an unknown producer, so that a header stays small."""
    return F.concat(F.lit(text), F.substring(names, 1, MESSAGE_CHARACTERS_MAX))


def _listed(names: Iterable[Column]) -> Column:
    """Return the non-null names as one text. (concat_ws is compiled, array functions with lambdas are not.)"""
    return F.concat_ws(", ", *names)


def _wrong_types(schema: RecordSchema) -> Column:
    """Return the fields of a wrong type. Texts are always checked, since from_json accepts any VARIANT.

    The other fields are checked if from_json found a fault.
    """
    texts = [_wrong_text(field) for field in schema.fields if field.json_type == "string"]
    others = [_wrong_other(field) for field in schema.fields if field.json_type != "string"]
    return _listed([*texts, F.when(F.col("_json._corrupt").isNotNull(), F.nullif(_listed(others), F.lit("")))])


def _wrong_text(field: Field) -> Column:
    """Return the field's name if it is present and not a text (or not the text of a time), else null."""
    variant = F.col(f"_json.{field.name}")
    wrong = variant.isNotNull() & ~F.schema_of_variant(variant).isin("STRING", "VOID")
    if field.date_time:
        wrong = wrong | (F.try_variant_get(variant, "$", "string").isNotNull() & F.col(field.name).isNull())
    return F.when(wrong, F.lit(field.name))


def _wrong_other(field: Field) -> Column:
    raw = F.get_json_object("_text", f"$.{field.name}")
    return F.when(F.col(f"_json.{field.name}").isNull() & raw.isNotNull(), F.lit(field.name))


def _missing(field: Field) -> Column:
    absent = ~F.array_contains("_names", field.name) if field.nullable else F.col(field.name).isNull()
    return F.when(absent, F.lit(field.name))


def _rule_errors(config: PipelineConfig) -> list[Column]:
    """Return an error for each rule that does not hold. A rule holds if its expression is true; false and null break
    it.
    """
    return [
        F.when(
            ~F.coalesce(F.expr(rule.expr).cast("boolean"), F.lit(False)),
            _error("rules", rule.name, F.lit(f"not true: {rule.expr}")),
        )
        for rule in config.rules
    ]


def partition_columns(config: PipelineConfig) -> list[str]:
    return config.table.partition_by if config.table is not None else []


def _partition_errors(config: PipelineConfig) -> list[Column]:
    return [
        F.when(F.col(name).isNull(), _error("partition", name, F.lit(f"{name} is null, no partition to write to")))
        for name in partition_columns(config)
    ]


def _first_failing(checks: list[tuple[Column, str, Column]], stage: str) -> Column:
    cases = [(condition, _error(stage, rule, message)) for condition, rule, message in checks]
    first, *others = cases
    return reduce(lambda chain, case: chain.when(*case), others, F.when(*first))


def _error(stage: str, rule: str, message: Column) -> Column:
    return F.struct(F.lit(stage).alias("stage"), F.lit(rule).alias("rule"), message.alias("message"))
