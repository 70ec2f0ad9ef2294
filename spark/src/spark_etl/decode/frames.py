"""The head of a key or value that was written with a schema of a registry: the bytes that name the schema.

    00 | id, 4 bytes | payload                         before the payload
    00 | id, 4 bytes, or 01 | GUID, 16 bytes           in the header __key_schema_id or __value_schema_id

Indexes of a Protobuf message follow the head, wherever it is. So head and payload of a header are joined into one text
of the first form.

A query is planned with the schemas that are known (schemas/writers.py). A record with another head fails its batch: the
run then looks the heads of the batch up, and a new plan repeats it. So the driver alone asks the registry.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.decode.faults import Finding
from spark_etl.errors import RunError
from spark_etl.schemas.writers import Writers

HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}
ID_BYTES, GUID_BYTES = 5, 17
#: Heads of one batch.
HEADS_MAX = 100_000
#: Text in Spark's error of a record with a new head.
UNKNOWN = "MILLRACE_SCHEMAS_TO_LOOK_UP"
CHECKS = ("frame", "schema")


def with_heads(frame: DataFrame, part: str) -> DataFrame:
    """Add the working columns of the `key` or `value`: head and payload as one, and the head. No frame: null."""
    raw = F.col(f"_raw_{part}")
    named = F.filter("_raw_headers", lambda header: (header["key"] == F.lit(HEADERS[part])) & _is_head(header["value"]))
    # Few records have such a header, and functions with lambdas are not compiled.
    has = F.array_contains(F.col("_raw_headers.key"), F.lit(HEADERS[part]))
    header = F.when(has, F.try_element_at(named, F.lit(1))["value"])
    own = F.when(_starts(raw, 0, ID_BYTES), raw)
    frame = frame.withColumn(f"_{part}_framed", F.coalesce(F.concat(header, raw), own))
    head = F.when(_starts(F.col(f"_{part}_framed"), 1, 0), _first(f"_{part}_framed", GUID_BYTES))
    return frame.withColumn(f"_{part}_head", head.otherwise(_first(f"_{part}_framed", ID_BYTES)))


def heads(records: DataFrame, part: str) -> set[bytes]:
    """Return the heads of the keys or values of Kafka records. RunError: they are too many for one batch."""
    raw = records.select(F.col(part).alias(f"_raw_{part}"), F.col("headers").alias("_raw_headers"))
    column = f"_{part}_head"
    found = with_heads(raw, part).select(column).where(F.col(column).isNotNull()).distinct().limit(HEADS_MAX + 1)
    rows = found.collect()
    if len(rows) > HEADS_MAX:
        raise RunError(f"a batch has more than {HEADS_MAX} ids of schemas: set source.max_offsets_per_trigger")
    return {bytes(row[0]) for row in rows}


def chosen(part: str, writers: Writers, known: Mapping[bytes, Column], other: Column) -> Column:
    """Return the column of each known head, `other` for no frame and refused ones; fail for an unknown head."""
    head = F.col(f"_{part}_head")
    found = F.when(head.isNull(), other)
    for each, column in known.items():
        found = found.when(head == F.lit(each), column)
    if writers.refused:
        found = found.when(head.isin([F.lit(each) for each in writers.refused]), other)
    return found.otherwise(F.raise_error(F.lit(UNKNOWN)))  # mutant: new-heads-looked-up


def with_payload(frame: DataFrame, part: str, writers: Writers) -> DataFrame:
    """Add the working columns, and the bytes after the head; null for no frame and refused schemas."""
    rest = {head: F.expr(f"substring(_{part}_framed, {len(head) + 1})") for head in writers.known}
    payload = chosen(part, writers, rest, F.lit(None).cast("binary"))
    return with_heads(frame, part).withColumn(payload_of(part), payload)


def payload_of(part: str) -> str:
    return f"_{part}_payload"


def head_of(part: str) -> str:
    return f"_{part}_head"


def findings(part: str, writers: Writers) -> list[Finding]:
    """Return the faults of a head: there is none, or its schema is refused."""
    raw, head = F.col(f"_raw_{part}"), F.col(f"_{part}_head")
    found = [(raw.isNotNull() & head.isNull(), "frame", F.lit(f"the {part} names no schema of a registry"))]
    alike: dict[tuple[str, str], list[bytes]] = {}
    for each, unfit in writers.refused.items():
        alike.setdefault((unfit.rule, unfit.message), []).append(each)
    for (rule, message), of_message in alike.items():
        text = F.concat(_name(head), F.lit(f": {message}"))
        found.append((head.isin([F.lit(each) for each in of_message]), rule, text))
    return found


def name_of(head: bytes) -> str:
    """Return a head's schema in words."""
    return f"schema {int.from_bytes(head[1:], 'big')}" if head[0] == 0 else f"schema {head[1:].hex()}"


def _name(head: Column) -> Column:
    number = F.conv(F.hex(F.substring(head, 2, ID_BYTES - 1)), 16, 10)
    guid = F.lower(F.hex(F.substring(head, 2, GUID_BYTES - 1)))
    return F.concat(F.lit("schema "), F.when(F.octet_length(head) == ID_BYTES, number).otherwise(guid))


def _is_head(content: Column) -> Column:
    return _starts(content, 0, ID_BYTES) | _starts(content, 1, GUID_BYTES)


def _starts(content: Column, magic: int, size: int) -> Column:
    return (F.substring(content, 1, 1) == F.lit(bytes([magic]))) & (F.octet_length(content) >= size)


def _first(column: str, size: int) -> Column:
    return F.substring(column, 1, size)
