"""Avro: bytes → typed fields, or the reason why not.

from_avro alone would ignore bytes after the record, and makes an unreadable record a row of nulls. The schema is
therefore wrapped in a record of two fields, the user's record and a nonce: Avro writes a record as its fields one after
the other, so value + nonce is such a record exactly if the value is one whole record.
"""

import json
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from spark_etl.decode.faults import Finding

CHECKS = ("framed", "avro")
WORKING = ("avro",)
NONCE_BYTES = 8


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
        whole = from_avro(F.concat("_raw_value", nonce), self._schema, {"mode": "PERMISSIVE"})
        parsed = records.select("*", whole.alias(f"{self._prefix}avro"))
        return parsed.select("*", *(F.col(f"{self._prefix}avro.record.{name}").alias(name) for name in self._names))

    def findings(self) -> list[Finding]:
        avro = f"{self._prefix}avro"
        nonce = F.unhex(F.lit(self._nonce))
        unread = F.col(f"{avro}.record").isNull() | ~F.coalesce(F.col(f"{avro}.nonce") == nonce, F.lit(False))
        magic = F.expr("substring(_raw_value, 1, 1) = X'00' AND octet_length(_raw_value) > 5")
        schema_id = F.conv(F.hex(F.expr("substring(_raw_value, 2, 4)")), 16, 10)
        framed = F.concat(F.lit("the value is framed by a schema registry, with schema "), schema_id)
        return [
            (unread & magic, "framed", framed),
            (unread, "avro", F.lit("the value is not one whole record of the Avro schema")),
        ]
