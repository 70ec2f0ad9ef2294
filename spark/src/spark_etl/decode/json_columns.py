"""Many JSON texts → their columns by one call of Arrow's reader, in a third of the time of Python's.

It reads only what json_values reads with the same value, and leaves the rest to that module: faults need words. A batch
may be cut otherwise at its next try. The reader refuses values of other types, unknown fields and names that appear
twice.

Its texts are those of a file, which has no border between two records. So each record must begin with `{` and end with
`}`, and a line break follows it. Such a break is in no text of JSON, and nothing goes on with `{` after a `}`. Each
record has one object, then, or more. All have one if there are as many objects as records.

A part of what runs on executors, which may have no more than Python and pyarrow: it imports nothing of ours but such
parts.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from spark_etl.decode.json_values import Faults, reader
from spark_etl.schemas.fields import Field

ROWS_MIN = 16  # of one call: fewer are read one by one
PARTS = 16  # of records that are tried again if one of them cannot be read so
SHARE_MIN = 0.25  # of a batch's records: if fewer could be read so, only each RESTth batch is tried
REST = 16
_READ_AS = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_AS_THEY_ARE = ("string", "integer", "boolean")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class DoubtError(Exception):
    """Arrow's reader may have taken a record for another one than json_values does."""


class Columns:
    """Reads records of one schema."""

    def __init__(self, root: Field, of: Callable[[Field], pa.DataType]) -> None:
        """Read records of the object `root`; `of` returns the type of a field's column."""
        self._root = root
        self._of = of
        self._rest = 0  # batches that are not tried
        #: The names of required fields that may be null, no other field has, and JSON writes as they are.
        names = Counter(_names(root))
        self._names = {
            field.name
            for field in root.fields
            if field.nullable
            and names[field.name] == 1
            and json.dumps(field.name, ensure_ascii=False)[1:-1] == field.name
        }
        schema = pa.schema([(field.name, _read_as(field)) for field in root.fields])
        self._form = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")

    @staticmethod
    def can_read(root: Field) -> bool:
        """Return whether a record's schema has such values only as Arrow reads without loss of digits or names."""
        return root.kind == "object" and not root.limits and all(map(_can_read, root.fields)) and bool(root.fields)

    def read(self, texts: pa.BinaryArray) -> tuple[pa.StructArray, pa.Array]:
        """Return the rows that could be read, without a fault, and their places in `texts`, in its order."""
        pieces: list[tuple[pa.StructArray, pa.Array]] = []
        if self._rest:
            self._rest -= 1
        else:
            fit = pc.fill_null(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}")), False)
            places = pc.indices_nonzero(fit)
            self._read(texts if len(places) == len(texts) else texts.take(places), places, pieces)
            if sum(len(places) for _, places in pieces) < SHARE_MIN * len(texts):
                self._rest = REST - 1
        if not pieces:
            return pa.array([], self._of(self._root)), pa.array([], pa.uint64())
        rows, places = zip(*pieces, strict=True)
        return pa.concat_arrays(rows), pa.concat_arrays(places)

    def _read(self, texts: pa.BinaryArray, places: pa.Array, pieces: list[tuple[pa.StructArray, pa.Array]]) -> None:
        """Read records that are at some places; if that fails, the smaller parts of them."""
        if len(texts) < ROWS_MIN:
            return
        try:
            found, sure = self._rows(texts)
        except (pa.ArrowInvalid, DoubtError):
            step = max(ROWS_MIN, -(-len(texts) // PARTS))
            for begin in range(0, len(texts) if len(texts) > step else 0, step):
                self._read(texts.slice(begin, step), places.slice(begin, step), pieces)
            return
        pieces.append((found, places) if sure is None else (found.filter(sure), places.filter(sure)))

    def _rows(self, texts: pa.BinaryArray) -> tuple[pa.StructArray, pa.BooleanArray | None]:
        """Return the rows of texts, and which ones are sure (None: all). An error: they are not these records."""
        lines = pc.binary_join_element_wise(texts, b"", b"\n")
        lines.cast(pa.string())  # mutant: lines-are-utf8
        joined = lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py()).to_pybytes()
        if b"\0" in joined:  # the end of a text for some readers
            raise DoubtError
        form = arrow_json.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        table = arrow_json.read_json(pa.BufferReader(joined), form, self._form)
        if table.num_rows != len(texts):  # mutant: one-object-a-record
            raise DoubtError
        if b"\\u" in joined and _SURROGATE.search(joined):
            table.validate(full=True)  # of half a pair, some versions of Arrow make a text that is not UTF-8
        columns = [column.combine_chunks() for column in table.columns]
        fields = list(zip(self._root.fields, columns, strict=True))
        absent = [
            self._absent(field, column, texts) for field, column in fields if field.required and column.null_count
        ]
        absent = [missing for missing in absent if pc.any(missing).as_py()]
        made = [self._column(field, column, absent) for field, column in fields]
        sure = pc.invert(reduce(pc.or_, absent)) if absent else None
        return pa.StructArray.from_arrays(made, fields=list(self._of(self._root))), sure

    def _absent(self, field: Field, column: pa.Array, texts: pa.BinaryArray) -> pa.BooleanArray:
        """Return which records lack a required field, or may lack it: Arrow reads null for none.

        A name that a colon follows is in no text: a quotation mark has a backslash there.
        """
        if field.name not in self._names:
            return column.is_null()
        return pc.and_not(column.is_null(), pc.match_substring(texts, f'"{field.name}":'))  # mutant: name-seen

    def _fields(self, field: Field, column: pa.Array, absent: list[pa.BooleanArray] | None) -> list[pa.Array]:
        """Return the columns of the fields of an object's column.

        The masks of objects that lack a required field, or have a null there, are added to `absent`. It is None within
        arrays, whose items are no rows.
        """
        columns = [column.field(number) for number in range(len(field.fields))]
        for inner, each in zip(field.fields, columns, strict=True):
            if inner.required and each.null_count:
                missing = pc.and_(each.is_null(), column.is_valid())
                if absent is not None:
                    absent.append(missing)
                elif pc.any(missing).as_py():
                    raise DoubtError
        return [self._column(inner, each, absent) for inner, each in zip(field.fields, columns, strict=True)]

    def _column(self, field: Field, column: pa.Array, absent: list[pa.BooleanArray] | None) -> pa.Array:
        """Return a field's column as it is written. DoubtError: a value has a fault, or may have lost its form."""
        if field.kind == "object":
            made = self._fields(field, column, absent)
            return pa.StructArray.from_arrays(made, fields=list(self._of(field)), mask=column.is_null())
        if field.items is not None:
            if column.values.null_count and not field.items.nullable:
                raise DoubtError
            items = self._column(field.items, column.values, None)
            if items is column.values:
                return column
            return pa.ListArray.from_arrays(column.offsets, items, mask=column.is_null())
        if field.kind == "number" and not _exact(column):  # mutant: floats-as-json-has-them
            raise DoubtError
        if not field.limits and field.kind in (*_AS_THEY_ARE, "number"):
            return column
        encoded, faults, read = column.dictionary_encode(), Faults(), reader(field, "", "reject")
        values = [read(value, faults) for value in encoded.dictionary.to_pylist()]
        if faults.first() is not None:
            raise DoubtError
        return pa.array(values, self._of(field)).take(encoded.indices)


def _can_read(field: Field) -> bool:
    if field.kind == "object":
        return not field.limits and bool(field.fields) and all(map(_can_read, field.fields))
    if field.kind == "array" and field.items is not None:
        return not field.limits and _can_read(field.items)
    return field.kind not in ("map", "json", "decimal")


def _names(field: Field) -> list[str]:
    """Return the names of all fields below one."""
    inner = (*field.fields, *([field.items] if field.items is not None else []))
    return [*(each.name for each in field.fields), *(name for each in inner for name in _names(each))]


def _read_as(field: Field) -> Any:
    if field.kind == "object":
        return pa.struct([(inner.name, _read_as(inner)) for inner in field.fields])
    return pa.list_(_read_as(field.items)) if field.items is not None else _READ_AS.get(field.kind, pa.string())


def _exact(numbers: pa.Array) -> bool:
    """Return whether floats are what json_values reads: it refuses NaN, and -0 is 0 without a fraction."""
    negative_zero = pc.equal(pc.divide(1.0, numbers), float("-inf"))
    return pc.all(pc.is_finite(numbers)).as_py() is not False and not pc.any(negative_zero).as_py()
