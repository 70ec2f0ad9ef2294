"""Strict JSON: a text → typed fields, or the reason why not.

from_json alone would let these pass: a missing required field, unknown or duplicate fields, a second document after the
first, and a number or object where a string belongs. It therefore keeps text and nested fields as VARIANT, which
remembers the JSON type, and more checks follow:

- the names of the value's fields (json_object_keys): missing, unknown and duplicate ones;
- the names of the fields of `{"r":VALUE,"NONCE":1}`: exactly r and NONCE when VALUE is one whole JSON value. Each plan
  has a new nonce, so no producer can write a value that closes the wrapper;
- the JSON type of each text field, and of everything inside nested fields (nested.py).

All working columns begin with a prefix, so that a record's key and value can both be JSON.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.decode import nested
from spark_etl.decode.faults import Finding, listed, listing, time
from spark_etl.schema import Field, RecordSchema

OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "allowUnquotedControlChars": "false",
}
CHECKS = ("json", "object", "duplicate_field", "type", "required", "unknown_field")


class JsonText:
    """The columns that check one JSON text column; `prefix` begins the names of working columns."""

    def __init__(
        self, schema: RecordSchema, prefix: str, noun: str, *, field_prefix: str = "", rescue: bool = False, nonce: str
    ) -> None:
        self._schema = schema
        self._prefix = prefix
        self._field_prefix = field_prefix  # begins the names of the typed fields
        self._noun = noun  # "value" or "key", for messages
        self._rescue = rescue
        self._nonce = nonce
        self._text = f"{prefix}text"
        self._nested = [field for field in schema.fields if field.nested]

    def decoded(self, records: DataFrame) -> DataFrame:
        """Add the typed fields, `{prefix}rescued` and the working columns to records with `{prefix}text`."""
        known = F.array(*(F.lit(name) for name in self._schema.names))
        names = self._col("names")
        parsed = records.select(
            "*",
            F.from_json(self._text, self._parsed_schema(), OPTIONS).alias(f"{self._prefix}json"),
            F.json_object_keys(self._text).alias(f"{self._prefix}names"),
        ).withColumn(f"{self._prefix}whole", self._whole())
        as_declared = names == known  # the usual case: each field once, in the schema's order
        typed = parsed.select(
            "*",
            *(self._value(field).alias(self._field_prefix + field.name) for field in self._schema.fields),
            F.when(~as_declared, F.array_except(names, known)).alias(f"{self._prefix}unknown"),
            F.when(~as_declared, F.size(names) != F.size(F.array_distinct(names))).alias(f"{self._prefix}duplicate"),
            *([self._inside().alias(f"{self._prefix}inside")] if self._nested else []),
        )
        required = [field for field in self._schema.fields if field.required]
        return typed.select(
            "*",
            self._wrong().alias(f"{self._prefix}wrong"),
            listed([*map(self._missing, required), self._from_inside("missing")]).alias(f"{self._prefix}missing"),
            *([self._rescued().alias(f"{self._prefix}rescued")] if self._rescue else []),
        )

    def findings(self) -> list[Finding]:
        """Return the checks in their order. They need the columns of `decoded`."""
        corrupt = F.col(f"{self._prefix}json._corrupt").isNotNull()
        lax = corrupt & F.try_parse_json(self._text).isNull()  # single quotes and the like
        names = F.array_join(self._col("unknown"), ", ")
        unknown = listed([F.nullif(names, F.lit("")), self._from_inside("unknown")])
        has_unknown = (F.size(self._col("unknown")) > 0) | self._from_inside("unknown").isNotNull()
        noun = self._noun
        lax_message = " or a nested field appears twice" if self._nested else ""
        findings: list[Finding] = [
            (~F.coalesce(self._col("whole"), F.lit(False)), "json", F.lit(f"the {noun} is not one whole JSON value")),
            (self._col("names").isNull(), "object", F.lit(f"the {noun} is not a JSON object")),
            (self._col("duplicate"), "duplicate_field", F.lit("a field appears twice")),
            (lax, "json", F.lit(f"the {noun} is not strict JSON{lax_message}")),
            (self._col("wrong") != "", "type", listing("wrong type: ", self._col("wrong"))),
            (corrupt, "type", F.lit("a field has the wrong type")),
            (self._col("missing") != "", "required", listing("missing or null: ", self._col("missing"))),
        ]
        return findings if self._rescue else [*findings, (has_unknown, "unknown_field", listing("unknown: ", unknown))]

    def _col(self, name: str) -> Column:
        return F.col(self._prefix + name)

    def _json(self, field: Field) -> Column:
        return F.col(f"{self._prefix}json.{field.name}")

    def _parsed_schema(self) -> str:
        columns = [
            f"`{f.name}` {'VARIANT' if f.nested or f.json_type == 'string' else f.spark_type}"
            for f in self._schema.fields
        ]
        return ", ".join([*columns, "`_corrupt` STRING"])

    def _whole(self) -> Column:
        """Return whether the text is one JSON value with nothing after it.

        An object whose first } is its last byte needs no wrapper. (Bytes: counting characters reads the whole text.)
        """
        text = F.col(self._text)
        wrapper = F.concat(F.lit('{"r":'), text, F.lit(f',"{self._nonce}":1}}'))
        to_brace = F.octet_length(F.substring_index(text, "}", 1))
        surely = self._col("names").isNotNull() & (to_brace + 1 == F.octet_length(text))
        wrapped = F.json_object_keys(wrapper) == F.array(F.lit("r"), F.lit(self._nonce))
        return F.when(surely, F.lit(True)).otherwise(wrapped)

    def _value(self, field: Field) -> Column:
        value = self._json(field)
        if field.nested:
            return F.try_variant_get(value, "$", field.spark_type)
        if field.json_type != "string":
            return value
        text = F.try_variant_get(value, "$", "string")
        return time(text) if field.date_time else text

    def _inside(self) -> Column:
        """Return the faults inside nested fields: a struct of three texts."""
        return F.struct(
            *(
                listed(
                    F.nullif(search(self._json(field), field, field.name), F.lit("")) for field in self._nested
                ).alias(name)
                for name, search in nested.SEARCHES.items()
            )
        )

    def _from_inside(self, name: str) -> Column:
        """Return the faults of one kind inside nested fields, null if there are none."""
        if not self._nested:
            return F.lit(None).cast("string")
        return F.nullif(F.col(f"{self._prefix}inside.{name}"), F.lit(""))

    def _wrong(self) -> Column:
        """Return the fields of a wrong type. Texts are always checked, since from_json accepts any VARIANT.

        The other fields are checked if from_json found a fault.
        """
        texts = [self._wrong_text(field) for field in self._schema.fields if field.json_type == "string"]
        others = [
            self._wrong_other(field)
            for field in self._schema.fields
            if field.json_type != "string" and not field.nested
        ]
        corrupt = F.col(f"{self._prefix}json._corrupt").isNotNull()
        others_wrong = F.when(corrupt, F.nullif(listed(others), F.lit("")))
        return listed([*texts, others_wrong, self._from_inside("wrong")])

    def _wrong_text(self, field: Field) -> Column:
        """Return the field's name if it is present and not a text (or not the text of a time), else null."""
        variant = self._json(field)
        wrong = variant.isNotNull() & ~F.schema_of_variant(variant).isin("STRING", "VOID")
        if field.date_time:
            typed = F.col(self._field_prefix + field.name)
            wrong = wrong | (F.try_variant_get(variant, "$", "string").isNotNull() & typed.isNull())
        return F.when(wrong, F.lit(field.name))

    def _wrong_other(self, field: Field) -> Column:
        raw = F.get_json_object(self._text, f"$.{field.name}")
        return F.when(self._json(field).isNull() & raw.isNotNull(), F.lit(field.name))

    def _missing(self, field: Field) -> Column:
        if field.nullable:
            absent = ~F.array_contains(self._col("names"), field.name)
        elif field.nested:
            absent = self._json(field).isNull() | F.is_variant_null(self._json(field))
        else:
            absent = F.col(self._field_prefix + field.name).isNull()
        return F.when(absent, F.lit(field.name))

    def _rescued(self) -> Column:
        """Return the unknown fields as one JSON object of texts; null if there are none, which saves a second parse.

        A nested field with an unknown field inside is kept whole.
        """
        everything = F.from_json(self._text, "map<string,string>")
        holders = [
            F.when(nested.SEARCHES["unknown"](self._json(field), field, field.name) != "", F.lit(field.name))
            for field in self._nested
        ]
        kept = self._col("unknown")
        if holders:
            kept = F.concat(F.coalesce(kept, F.array().cast("array<string>")), F.array_compact(F.array(*holders)))
        unknown = F.map_filter(everything, lambda name, _: F.array_contains(kept, name))
        return F.when(F.size(kept) > 0, F.to_json(unknown))
