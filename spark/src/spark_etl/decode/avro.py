"""Avro: bytes → typed fields, or the reason why not.

from_avro alone would ignore bytes after the record, and makes an unreadable record a row of nulls. The schema is
therefore wrapped in a record of two fields, the user's record and a nonce: Avro writes a record as its fields one after
the other, so value + nonce is such a record exactly if the value is one whole record.

from_avro also passes bytes of a string on that are not UTF-8. One of them would make a Parquet file unreadable for
readers other than Spark.
"""

import json
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from spark_etl.decode.faults import Finding

CHECKS = ("framed", "avro", "text")
NONCE_BYTES = 8
#: Dates are those of the calendar of now, however old.
OPTIONS = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}


class Avro:
    def __init__(self, schema: dict[str, Any], names: list[str], prefix: str, *, nonce: str) -> None:
        self._names = names
        self._prefix = prefix
        self._nonce = nonce  # as hexadecimal digits
        fields = [
            {"name": "record", "type": schema},
            {"name": "nonce", "type": {"type": "fixed", "name": "Nonce", "size": NONCE_BYTES}},
        ]
        whole = {"type": "record", "name": "Whole", "namespace": "spark_etl", "fields": fields}
        self._schema = json.dumps(whole)

    def decoded(self, records: DataFrame) -> DataFrame:
        """Add the typed fields and the working columns to records with `_raw_value`."""
        nonce = F.unhex(F.lit(self._nonce))
        whole = from_avro(F.concat("_raw_value", nonce), self._schema, OPTIONS)
        parsed = records.select("*", whole.alias(f"{self._prefix}avro"))
        record = f"{self._prefix}avro.record"
        kind = parsed.select(record).schema[0].dataType
        faulty = F.coalesce(not_text(F.col(record), kind), F.lit(False))
        fields = (F.col(f"{record}.{name}").alias(name) for name in self._names)
        return parsed.select("*", *fields, faulty.alias(f"{self._prefix}not_text"))

    def findings(self) -> list[Finding]:
        avro = f"{self._prefix}avro"
        nonce = F.unhex(F.lit(self._nonce))
        # mutant: avro-rest-refused
        unread = F.col(f"{avro}.record").isNull() | ~F.coalesce(F.col(f"{avro}.nonce") == nonce, F.lit(False))
        magic = F.expr("substring(_raw_value, 1, 1) = X'00' AND octet_length(_raw_value) > 5")
        schema_id = F.conv(F.hex(F.expr("substring(_raw_value, 2, 4)")), 16, 10)
        framed = F.concat(F.lit("the value is framed by a schema registry, with schema "), schema_id)
        return [
            (unread & magic, "framed", framed),
            (unread, "avro", F.lit("the value is not one whole record of the Avro schema")),
            (F.col(f"{self._prefix}not_text"), "text", F.lit("a string is not UTF-8")),
        ]


def not_text(value: Column, kind: DataType) -> Column:
    """Return whether a string within a value is not UTF-8; null or false if none is."""
    match kind:
        case StringType():
            return ~F.is_valid_utf8(value)
        case StructType():
            parts = [F.coalesce(not_text(value[field.name], field.dataType), F.lit(False)) for field in kind.fields]
            return reduce(or_, parts, F.lit(False))
        case ArrayType() if has_text(kind.elementType):
            return F.exists(value, lambda item: F.coalesce(not_text(item, kind.elementType), F.lit(False)))
        case MapType():
            keys = F.exists(F.map_keys(value), lambda key: ~F.is_valid_utf8(key))
            return keys | not_text(F.map_values(value), ArrayType(kind.valueType))
    return F.lit(False)


def has_text(kind: DataType) -> bool:
    return "string" in kind.simpleString()
