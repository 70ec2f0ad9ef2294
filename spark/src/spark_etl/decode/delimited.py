"""CSV: a text of one line → typed fields, or the reason why not. Fields are in the schema's order, without a header.

from_csv alone would ignore a second line, and reads numbers with spaces or a fraction. It therefore reads texts only,
with a nonce as a last field: a text that ends its line early, or has an open quote, does not end in the nonce.
An empty field is null.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.decode.faults import Finding, listed, listing, time
from spark_etl.schemas.fields import Field, RecordSchema

CHECKS = ("csv", "type", "required")
_FORMS = {
    "integer": r"^-?[0-9]{1,19}$",
    "number": r"^-?[0-9]{1,308}(\.[0-9]{1,308})?([eE][+-]?[0-9]{1,3})?$",
    "boolean": "^(true|false)$",
}


class Delimited:
    def __init__(self, schema: RecordSchema, delimiter: str, prefix: str, *, nonce: str) -> None:
        self._schema = schema
        self._delimiter = delimiter
        self._prefix = prefix
        self._nonce = nonce

    def decoded(self, records: DataFrame) -> DataFrame:
        """Add the typed fields and the working columns to records with `{prefix}text`."""
        columns = [*(f"`{name}` STRING" for name in self._schema.names), "`_nonce` STRING", "`_corrupt` STRING"]
        text = F.concat(F.col(f"{self._prefix}text"), F.lit(self._delimiter + self._nonce))
        options = {"sep": self._delimiter, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
        options |= {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false", "escape": '"'}
        parsed = records.select("*", F.from_csv(text, ", ".join(columns), options).alias(f"{self._prefix}csv"))
        typed = parsed.select("*", *(self._value(field).alias(field.column) for field in self._schema.fields))
        required = [field for field in self._schema.fields if field.required and not field.nullable]
        wrong = [
            F.when(self._text(field).isNotNull() & F.col(field.column).isNull(), F.lit(field.name))
            for field in self._schema.fields
        ]
        missing = [F.when(self._text(field).isNull(), F.lit(field.name)) for field in required]
        return typed.select(
            "*", listed(wrong).alias(f"{self._prefix}wrong"), listed(missing).alias(f"{self._prefix}missing")
        )

    def findings(self) -> list[Finding]:
        whole = F.col(f"{self._prefix}csv._corrupt").isNull() & (F.col(f"{self._prefix}csv._nonce") == self._nonce)
        wrong, missing = F.col(f"{self._prefix}wrong"), F.col(f"{self._prefix}missing")
        fields = len(self._schema.fields)
        return [
            (~F.coalesce(whole, F.lit(False)), "csv", F.lit(f"the value is not one line of {fields} fields")),
            (wrong != "", "type", listing("wrong type: ", wrong)),
            (missing != "", "required", listing("missing: ", missing)),
        ]

    def _text(self, field: Field) -> Column:
        return F.col(f"{self._prefix}csv.{field.column}")

    def _value(self, field: Field) -> Column:
        text = self._text(field)
        if field.kind == "date-time":
            return time(text)
        if field.kind == "string":
            return text
        return F.when(text.rlike(_FORMS[field.kind]), text.try_cast(field.spark_type))
