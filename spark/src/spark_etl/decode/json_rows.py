"""Batches of Kafka records whose value or key is JSON → the same batches with typed columns and faults, on executors.

`rows` makes the function for Spark's mapInArrow. It travels to the executors by value (`shipped`), so that they need
Python and pyarrow, and no package of ours.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from spark_etl.decode import json_columns, json_limits, json_values, times
from spark_etl.decode.json_columns import Columns
from spark_etl.decode.json_values import DEPTH_MAX, DuplicateNameError, Faults, needs_decimals, parser, reader, rescued
from spark_etl.schemas import fields
from spark_etl.schemas.fields import Field

BYTES_MAX = 4 << 20  # of the texts that are parsed at once: a parsed text is up to 25 times as large
FRAMES = 500  # of Python and Spark below a parser
FAULT = pa.struct([("rule", pa.string()), ("message", pa.string())])
_PLAIN = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date-time": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def shipped() -> None:
    """Have the functions of these modules sent to executors by value."""
    for module in (fields, times, json_limits, json_values, json_columns, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def rows(
    value: Field | None, key: Field | None, unknown: str, names: tuple[str, str, str, str], texts: tuple[str, str]
) -> Batches:
    """Return the function that adds columns to batches whose columns `texts` are values and keys.

    A value has its fields, the unknown ones (with `rescue`) and a fault; a key has one struct and a fault. Without a
    schema of the value or the key, its columns are left out. `names` are those of the four columns that are no fields:
    unknown fields, fault, key, fault of the key. No value has no fault.
    """
    of_rescued, of_fault, of_key, of_key_fault = names
    values, keys = texts

    def added(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 3 * DEPTH_MAX + FRAMES))
        judges = (
            Judge(value, "value", unknown) if value is not None else None,
            Judge(key, "key", "ignore" if unknown == "ignore" else "reject") if key is not None else None,
        )
        for batch in batches:
            for part in parts(batch, texts):
                yield with_columns(part, *judges)

    def with_columns(batch: pa.RecordBatch, of_value: "Judge | None", of_keys: "Judge | None") -> pa.RecordBatch:
        columns: list[tuple[str, pa.Array]] = list(zip(batch.schema.names, batch.columns, strict=True))
        if of_value is not None:
            found, others, faults = of_value.judged(batch.column(values))
            columns += zip((field.column for field in of_value.field.fields), found.flatten(), strict=True)
            columns += [(of_rescued, others)] if unknown == "rescue" else []
            columns.append((of_fault, faults))
        if of_keys is not None:
            found, _, faults = of_keys.judged(batch.column(keys))
            columns += [(of_key, found), (of_key_fault, faults)]
        return pa.RecordBatch.from_arrays([array for _, array in columns], names=[name for name, _ in columns])

    return added


def parts(batch: pa.RecordBatch, texts: tuple[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most BYTES_MAX of keys and values, or one record."""
    if batch.get_total_buffer_size() <= BYTES_MAX:
        yield batch
        return
    begin = size = 0
    columns = [batch.column(name) for name in texts]
    for row in range(batch.num_rows):
        own = sum(len(text.as_buffer()) for text in (column[row] for column in columns) if text.is_valid)
        if size + own > BYTES_MAX and row > begin:
            yield batch.slice(begin, row - begin)
            begin, size = row, 0
        size += own
    yield batch.slice(begin)


class Judge:
    """Reads the JSON texts of one schema."""

    def __init__(self, field: Field, noun: str, unknown: str) -> None:
        self.field = field
        self._noun = noun
        self._read = reader(field, "", unknown)
        self._parsed = parser(exact=needs_decimals(field))
        self._type = arrow_type(field)
        self._columns = Columns(field, arrow_type) if Columns.can_read(field) else None

    def judged(self, texts: pa.BinaryArray) -> tuple[pa.StructArray, pa.Array, pa.Array]:
        """Return the fields (null for no text and faulty ones), the unknown fields to keep, and the faults."""
        if self._columns is None:
            return self._one_by_one(texts.to_pylist())
        columns, places = self._columns.read(texts)
        read = (columns, pa.nulls(len(places), pa.string()), pa.nulls(len(places), FAULT))
        if len(places) == len(texts):
            return read
        left = pc.indices_nonzero(pc.invert(pc.is_in(pa.array(range(len(texts)), pa.uint64()), places)))
        rest = self._one_by_one(texts.take(left).to_pylist())
        order = pc.array_sort_indices(pa.concat_arrays([places, left]))
        fields, kept, faults = (pa.concat_arrays(both).take(order) for both in zip(read, rest, strict=True))
        return fields, kept, faults

    def _one_by_one(self, texts: list[bytes | None]) -> tuple[pa.StructArray, pa.Array, pa.Array]:
        found: list[Any] = [None] * len(texts)
        kept: list[str | None] = [None] * len(texts)
        faults: list[tuple[str, str] | None] = [None] * len(texts)
        noted = Faults()
        for row, content in enumerate(texts):
            if content is None:
                continue
            value, fault = self._value(content, noted)
            if fault is None:
                found[row] = value
                if noted.kept:
                    kept[row] = rescued(content.decode(), noted.kept)
            faults[row] = fault
            if fault is not None or noted.kept:
                noted = Faults()
        return self._array(found, faults), pa.array(kept, pa.string()), pa.array(faults, FAULT)

    def _array(self, found: list[Any], faults: list[tuple[str, str] | None]) -> pa.StructArray:
        """Return the fields of records. A record that Arrow cannot hold gets a fault: it must not stop the batch."""
        try:
            return pa.array(found, self._type)
        except (pa.ArrowException, ValueError, OverflowError):
            for row, value in enumerate(found):
                try:
                    pa.array([value], self._type)
                except (pa.ArrowException, ValueError, OverflowError) as error:
                    found[row], faults[row] = None, self._fault("type", f"no column holds a value: {error}"[:500])
            return pa.array(found, self._type)

    def _value(self, content: bytes, noted: Faults) -> tuple[Any, tuple[str, str] | None]:
        try:
            value = self._parsed(content.decode())
        except UnicodeDecodeError:
            return None, ("utf8", f"the {self._noun} is not UTF-8")
        except DuplicateNameError as error:
            return None, self._fault("duplicate_field", f"a field appears twice: {str(error)[:100]}")
        except (ValueError, ArithmeticError, RecursionError):
            return None, self._fault("json", f"the {self._noun} is not one whole JSON value")
        if type(value) is not dict:
            return None, self._fault("object", f"the {self._noun} is not a JSON object")
        found, fault = self._read(value, noted), noted.first()
        return (found, None) if fault is None else (None, self._fault(*fault))

    def _fault(self, rule: str, message: str) -> tuple[str, str]:
        return (rule, message) if self._noun == "value" else (f"{self._noun}_{rule}", f"{self._noun}: {message}")


def arrow_type(field: Field) -> pa.DataType:
    """Return the type of a field's values, as Spark has it for `spark_type`."""
    if field.kind == "object":
        return pa.struct([(inner.column, arrow_type(inner)) for inner in field.fields])
    if field.items is not None:
        inner = arrow_type(field.items)
        return pa.list_(inner) if field.kind == "array" else pa.map_(pa.string(), inner)
    return pa.decimal128(*field.digits) if field.kind == "decimal" else _PLAIN.get(field.kind, pa.string())
