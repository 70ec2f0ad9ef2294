"""Avro of a registry: each record is decoded with the schema that it names, into the schema of the columns.

Avro resolves one into the other: defaults, wider numbers, fields that are gone. As in avro.py, a nonce after the record
shows whether it is one whole record; here the head of the frame precedes it.
"""

import json
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from spark_etl.decode import frames
from spark_etl.decode.avro import NONCE_BYTES, OPTIONS, not_text
from spark_etl.decode.faults import Finding
from spark_etl.schemas.avro_schema import AvroSchema
from spark_etl.schemas.writers import Writers

CHECKS = (*frames.CHECKS, "avro", "text")


class FramedAvro:
    """The keys or values (`part`) of records. With `column` that column has all of it, else each field has one."""

    def __init__(self, schema: AvroSchema, writers: Writers, part: str, *, nonce: str, column: str = "") -> None:
        self._schema = schema
        self._writers = writers
        self._part = part
        self._nonce = nonce  # as hexadecimal digits
        self._column = column

    def decoded(self, records: DataFrame) -> DataFrame:
        """Add the columns and the working columns to records with the raw columns."""
        part, reader = self._part, json.dumps(_whole(self._schema.document, 0))
        framed = F.concat(f"_{part}_framed", F.unhex(F.lit(self._nonce)))
        options = {**OPTIONS, "avroSchema": reader}
        known = {
            head: from_avro(framed, json.dumps(_whole(json.loads(writer.content), len(head))), options)
            for head, writer in self._writers.known.items()
        }
        # A plan without a known head has the columns too.
        none = from_avro(F.lit(None).cast("binary"), reader, OPTIONS)
        whole = frames.chosen(part, self._writers, known, none)
        parsed = frames.with_heads(records, part).withColumn(f"_{part}_avro", whole)
        record = f"_{part}_avro.record"
        kind = parsed.select(record).schema[0].dataType
        faulty = F.coalesce(not_text(F.col(record), kind), F.lit(False)).alias(f"_{part}_not_text")
        names = self._schema.names
        if self._column:
            columns = [F.col(record).alias(self._column)]
        elif isinstance(self._schema.document, dict) and self._schema.document.get("type") == "record":
            columns = [F.col(f"{record}.{name}").alias(name) for name in names]
        else:
            columns = [F.col(record).alias(names[0])]
        return parsed.select("*", *columns, faulty)

    def findings(self) -> list[Finding]:
        part = self._part
        read = F.col(f"_{part}_avro.nonce") == F.unhex(F.lit(self._nonce))
        unread = F.col(f"_{part}_framed").isNotNull() & ~F.coalesce(read, F.lit(False))
        message = F.lit(f"the {part} is not one whole value of the schema that it names")
        return [
            *frames.findings(part, self._writers),
            (unread, "avro", message),
            (F.col(f"_{part}_not_text"), "text", F.lit(f"a string of the {part} is not UTF-8")),
        ]


def _whole(document: Any, head_bytes: int) -> dict[str, Any]:
    """Return the schema of a head, a value and the nonce; of a reader, which has no head."""
    fields = [
        *([_bytes("head", head_bytes)] if head_bytes else []),
        {"name": "record", "type": document},
        _bytes("nonce", NONCE_BYTES),
    ]
    return {"type": "record", "name": "Whole", "namespace": "spark_etl", "fields": fields}


def _bytes(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "type": {"type": "fixed", "name": f"Of_{name}", "size": size}}
