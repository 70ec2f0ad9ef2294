"""Strict JSON: a text → typed fields, or the reason why not.

from_json alone would let these pass: a missing required field, unknown or duplicate fields, a second document after the
first, and a number or object where a string belongs. It therefore keeps text and nested fields as VARIANT, which
remembers the JSON type, and more checks follow:

- the names of the value's fields (json_object_keys): missing, unknown and duplicate ones;
- the names of the fields of `{"r":VALUE,"NONCE":1}`: exactly r and NONCE when VALUE is one whole JSON value. Each plan
  has a new nonce, so no producer can write a value that closes the wrapper;
- the JSON type of each text field, and of everything inside nested fields (nested.py).

A canonical text (canonical_json.py) needs none of them: they get null in its place.

All working columns begin with a prefix, so that a record's key and value can both be JSON. Expressions that grow with
the fields are SQL texts, since each part of a Column is a call to the JVM. Names: letters, digits and _ (schema.py).
"""

from collections.abc import Iterable
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.decode import canonical_json, nested
from spark_etl.decode.faults import Finding, listed, listing, time
from spark_etl.schema import Field, RecordSchema

OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "allowUnquotedControlChars": "false",
}
EVERYTHING = "map<string,string>"  # all fields of an object, each as text
CHECKS = ("json", "object", "duplicate_field", "type", "required", "unknown_field")


class JsonText:
    """The columns that check one JSON text column; `prefix` begins the names of working columns."""

    def __init__(
        self,
        schema: RecordSchema,
        prefix: str,
        noun: str,
        *,
        nonce: str,
        field_prefix: str = "",
        unknown: Literal["reject", "rescue", "ignore"] = "reject",
    ) -> None:
        self._schema = schema
        self._prefix = prefix
        self._field_prefix = field_prefix  # begins the names of the typed fields
        self._noun = noun  # "value" or "key", for messages
        self._rescue = unknown == "rescue"
        self._rejects = unknown == "reject"
        self._nonce = nonce
        self._text = f"{prefix}text"
        self._doubtful = f"{prefix}doubtful"  # the text, null if it is canonical
        self._canonical_types = canonical_json.types(schema)
        self._nested = [field for field in schema.fields if field.nested]

    def decoded(self, records: DataFrame) -> DataFrame:
        """Add the typed fields, `{prefix}rescued` and the working columns to records with `{prefix}text`."""
        parsed = self._with_names(self._with_canonical(records)).select(
            "*",
            F.from_json(self._doubtful, self._parsed_schema(), OPTIONS).alias(f"{self._prefix}json"),
            *([self._rescued().alias(f"{self._prefix}rescued")] if self._rescue and not self._nested else []),
        )
        typed = parsed.select(
            "*", self._whole().alias(f"{self._prefix}whole"), F.expr(self._fields()).alias(f"{self._prefix}fields")
        ).select(
            "*",
            *(self._typed(field).alias(self._field_prefix + field.name) for field in self._schema.fields),
            *([self._inside().alias(f"{self._prefix}inside")] if self._nested else []),
        )
        return typed.select(
            "*",
            F.expr(self._wrong()).alias(f"{self._prefix}wrong"),
            F.expr(self._missing()).alias(f"{self._prefix}missing"),
            *([self._rescued_nested().alias(f"{self._prefix}rescued")] if self._rescue and self._nested else []),
        )

    def findings(self) -> list[Finding]:
        """Return the checks in their order. They need the columns of `decoded`."""
        corrupt = F.col(f"{self._prefix}json._corrupt").isNotNull()
        lax = corrupt & F.try_parse_json(self._doubtful).isNull()  # single quotes and the like
        names = F.array_join(self._col("unknown"), ", ")
        unknown = listed([F.nullif(names, F.lit("")), self._from_inside("unknown")])
        has_unknown = (F.size(self._col("unknown")) > 0) | self._from_inside("unknown").isNotNull()
        noun, doubtful = self._noun, self._col("doubtful").isNotNull()
        lax_message = " or a nested field appears twice" if self._nested else ""
        findings: list[Finding] = [
            (doubtful & ~self._col("whole"), "json", F.lit(f"the {noun} is not one whole JSON value")),
            (doubtful & self._col("names").isNull(), "object", F.lit(f"the {noun} is not a JSON object")),
            (self._col("duplicate"), "duplicate_field", F.lit("a field appears twice")),
            (lax, "json", F.lit(f"the {noun} is not strict JSON{lax_message}")),
            (self._col("wrong") != "", "type", listing("wrong type: ", self._col("wrong"))),
            (corrupt, "type", F.lit("a field has the wrong type")),
            (self._col("missing") != "", "required", listing("missing or null: ", self._col("missing"))),
        ]
        unknown_field: Finding = (has_unknown, "unknown_field", listing("unknown: ", unknown))
        return [*findings, unknown_field] if self._rejects else findings

    def _col(self, name: str) -> Column:
        return F.col(self._prefix + name)

    def _json(self, field: Field) -> Column:
        return F.col(f"{self._prefix}json.{field.name}")

    def _with_canonical(self, records: DataFrame) -> DataFrame:
        """Add the fields of canonical texts, null for others, and the text of the others."""
        text = F.col(self._text)
        if self._canonical_types is None:
            return records.withColumn(self._doubtful, text)
        read = F.from_json(text, self._canonical_types, OPTIONS)
        found = records.withColumn(f"{self._prefix}read", read)
        canonical = canonical_json.is_canonical(text, F.col(f"{self._prefix}read"), self._schema)
        return found.withColumn(self._doubtful, F.when(~canonical, text))

    def _with_names(self, records: DataFrame) -> DataFrame:
        """Add the names of a doubtful text's fields: all, the unknown ones, and whether one is there twice."""
        names, known = self._col("names"), F.expr(f"array({', '.join(map(quoted, self._schema.names))})")
        as_declared = names == known  # each field once, in the schema's order
        return records.withColumn(f"{self._prefix}names", F.json_object_keys(self._doubtful)).select(
            "*",
            F.when(~as_declared, F.array_except(names, known)).alias(f"{self._prefix}unknown"),
            F.when(~as_declared, F.size(names) != F.size(F.array_distinct(names))).alias(f"{self._prefix}duplicate"),
        )

    def _parsed_schema(self) -> str:
        columns = [
            f"`{f.name}` {'VARIANT' if f.nested or f.json_type == 'string' else f.spark_type}"
            for f in self._schema.fields
        ]
        return ", ".join([*columns, "`_corrupt` STRING"])

    def _whole(self) -> Column:
        """Return whether the text is one JSON value with nothing after it; false for no text.

        An object whose first } is its last byte needs no wrapper. (Bytes: counting characters reads the whole text.)
        """
        text = F.col(self._doubtful)
        wrapper = F.concat(F.lit('{"r":'), text, F.lit(f',"{self._nonce}":1}}'))
        to_brace = F.octet_length(F.substring_index(text, "}", 1))
        surely = self._col("names").isNotNull() & (to_brace + 1 == F.octet_length(text))
        wrapped = F.json_object_keys(wrapper) == F.array(F.lit("r"), F.lit(self._nonce))
        return F.coalesce(F.when(surely, F.lit(True)).otherwise(wrapped), F.lit(False))

    def _fields(self) -> str:
        """Return the fields of any text as a struct; a time is still a text."""
        found = ", ".join(f"{quoted(field.name)}, {self._value(field)}" for field in self._schema.fields)
        if self._canonical_types is None:
            return f"named_struct({found})"
        return f"CASE WHEN {self._doubtful} IS NULL THEN {self._prefix}read ELSE named_struct({found}) END"

    def _value(self, field: Field) -> str:
        """Return a field of a doubtful text."""
        if not field.nested and field.json_type != "string":
            return self._variant(field)
        kind = field.spark_type if field.nested else "STRING"
        return f"try_variant_get({self._variant(field)}, '$', '{kind}')"

    def _variant(self, field: Field) -> str:
        return f"{self._prefix}json.`{field.name}`"

    def _typed(self, field: Field) -> Column:
        value = F.col(f"{self._prefix}fields.{field.name}")
        return time(value) if field.date_time else value

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

    def _wrong(self) -> str:
        """Return the fields of a wrong type as one text. Texts are always checked, since from_json accepts any VARIANT.

        The other fields are checked if from_json found a fault.
        """
        texts = [self._wrong_text(field) for field in self._schema.fields if field.json_type == "string"]
        others = [
            self._wrong_other(field)
            for field in self._schema.fields
            if field.json_type != "string" and not field.nested
        ]
        if others:
            listed_others = f"nullif(concat_ws(', ', {', '.join(others)}), '')"
            texts.append(f"CASE WHEN {self._prefix}json._corrupt IS NOT NULL THEN {listed_others} END")
        return self._listed([*texts, *self._inside_text("wrong")])

    def _wrong_text(self, field: Field) -> str:
        """Return the field's name if it is present and not a text (or not the text of a time), else null."""
        variant = self._variant(field)
        wrong = f"{variant} IS NOT NULL AND schema_of_variant({variant}) NOT IN ('STRING', 'VOID')"
        if field.date_time:
            text = f"{self._prefix}fields.`{field.name}`"
            wrong = f"({wrong}) OR ({text} IS NOT NULL AND `{self._field_prefix}{field.name}` IS NULL)"
        return f"CASE WHEN {wrong} THEN {quoted(field.name)} END"

    def _wrong_other(self, field: Field) -> str:
        raw = f"get_json_object({self._doubtful}, '$.{field.name}')"
        wrong = f"{self._variant(field)} IS NULL AND {raw} IS NOT NULL"
        return f"CASE WHEN {wrong} THEN {quoted(field.name)} END"

    def _missing(self) -> str:
        """Return the required fields that are absent, or null where they may not be, as one text."""
        absent = [
            f"CASE WHEN {self._absent(field)} THEN {quoted(field.name)} END"
            for field in self._schema.fields
            if field.required
        ]
        return self._listed([*absent, *self._inside_text("missing")])

    def _absent(self, field: Field) -> str:
        if field.nullable:
            return f"NOT array_contains({self._prefix}names, {quoted(field.name)})"
        if not field.nested:
            return f"`{self._field_prefix}{field.name}` IS NULL"
        variant = self._variant(field)
        return f"{self._doubtful} IS NOT NULL AND ({variant} IS NULL OR is_variant_null({variant}))"

    def _inside_text(self, name: str) -> list[str]:
        return [f"nullif({self._prefix}inside.{name}, '')"] if self._nested else []

    def _listed(self, names: Iterable[str]) -> str:
        """Return the non-null names as one text. (concat_ws is compiled, array functions with lambdas are not.)"""
        return f"concat_ws({', '.join([quoted(', '), *names])})"

    def _rescued(self) -> Column:
        """Return the unknown fields as one JSON object of texts; null if there are none, which saves a parse."""
        text = F.when(F.size(self._col("unknown")) > 0, F.col(self._doubtful))
        return F.to_json(F.map_filter(F.from_json(text, EVERYTHING), lambda name, _: ~name.isin(self._schema.names)))

    def _rescued_nested(self) -> Column:
        """Return the same, together with each nested field that has an unknown field inside, whole."""
        holders = [
            F.when(nested.SEARCHES["unknown"](self._json(field), field, field.name) != "", F.lit(field.name))
            for field in self._nested
        ]
        unknown = F.coalesce(self._col("unknown"), F.array().cast("array<string>"))
        kept = F.concat(unknown, F.array_compact(F.array(*holders)))
        everything = F.from_json(self._doubtful, EVERYTHING)
        return F.when(
            F.size(kept) > 0, F.to_json(F.map_filter(everything, lambda name, _: F.array_contains(kept, name)))
        )


def quoted(text: str) -> str:
    """Return a text without quotes and backslashes as an SQL literal."""
    return f"'{text}'"
