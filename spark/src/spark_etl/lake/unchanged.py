"""The placeholder of Debezium for a value that did not change, and that it does not know for that reason.

It is the default of its option `unavailable.value.placeholder`. PostgreSQL leaves long values that an update does not
change (TOAST) out of its log. Debezium's converters write them as

    text, JSON, numbers as text     "__debezium_unavailable_value", or the same as a JSON text, in quotes
    bytes                           its bytes; in JSON events, their base64
    arrays                          an array with the one item, of integers one item for each byte

The forms are those of io.debezium.connector.postgresql.UnchangedToastedPlaceholder.
"""

import json
from base64 import b64encode
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, LongType, StringType, StructType

PLACEHOLDER = "__debezium_unavailable_value"
_CODES = PLACEHOLDER.encode()
#: The placeholder as a text: itself, as JSON, and the base64 of its bytes.
TEXTS = (PLACEHOLDER, json.dumps(PLACEHOLDER), b64encode(_CODES).decode())
#: Arrays as JSON texts, as the sinks that hold nested values as JSON write them.
ARRAYS = tuple(json.dumps(each, separators=(",", ":")) for each in (*([text] for text in TEXTS), list(_CODES)))


def columns(schema: StructType, keys: Sequence[str]) -> list[str]:
    """Return the columns whose values may be the placeholder: a key or a column of ours never is."""
    return [
        field.name
        for field in schema.fields
        if field.name not in keys and not field.name.startswith("_") and _may_be(field.dataType)
    ]


def marked(value: Column, kind: DataType) -> Column:
    """Return whether a value of a type is the placeholder; never null."""
    match kind:
        case StringType():
            found = value.isin(*TEXTS)
        case BinaryType():
            found = value == F.lit(_CODES)
        case ArrayType(elementType=StringType()):
            found = (F.size(value) == 1) & F.try_element_at(value, F.lit(1)).isin(*TEXTS)
        case ArrayType(elementType=BinaryType()):
            found = (F.size(value) == 1) & (F.try_element_at(value, F.lit(1)) == F.lit(_CODES))
        case _:
            found = value.cast("array<bigint>") == F.array(*map(F.lit, _CODES)).cast("array<bigint>")
    return F.coalesce(found, F.lit(False))


def _may_be(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return isinstance(kind.elementType, StringType | BinaryType | IntegerType | LongType)
    return isinstance(kind, StringType | BinaryType)
