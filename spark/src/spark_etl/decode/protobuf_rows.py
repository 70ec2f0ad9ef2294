"""Batches of Kafka records whose value or key is Protobuf of a registry → the same batches with columns and faults.

`rows` makes the function for Spark's mapInArrow. It travels to the executors by value (`shipped`). They need Python
with pyarrow and protobuf, and no package of ours.

    indexes of the message | message                  indexes: their number and each of them, zigzag varints; 0 is [0]
"""

import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle

from spark_etl.schemas import protobuf_schema
from spark_etl.schemas.protobuf_schema import ProtoField

FAULT = pa.struct([("rule", pa.string()), ("message", pa.string())])
CHECKS = ("protobuf", "message")
_INDEXES_MAX = 64
#: Seconds of 0001-01-01 and 10000-01-01.
_TIME_MIN, _TIME_MAX = -62_135_596_800, 253_402_300_800
_PLAIN = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "json": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
Getter = Callable[[Any], Any]
Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Part(NamedTuple):
    """A key or value: its message, and the columns of a batch that it is in and that it gets."""

    message: str
    descriptors: str
    root: ProtoField
    payload: str
    head: str
    fault: str
    #: Head → indexes of the messages that have the columns.
    indexes: Mapping[bytes, frozenset[tuple[int, ...]]]
    #: Name of one column for the whole message; without it each field has one.
    column: str = ""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Names and Spark's types of the columns."""
        fields = [(self.column, self.root.spark_type)] if self.column else []
        fields += [] if self.column else [(field.name, field.spark_type) for field in self.root.fields]
        return [*fields, (self.fault, "STRUCT<rule: STRING, message: STRING>")]


class MisfitError(ValueError):
    """A record that is not of its schema; arguments: rule and message."""


def shipped() -> None:
    """Have the functions of these modules sent to executors by value."""
    for module in (protobuf_schema, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def rows(parts: list[Part]) -> Batches:
    """Return the function that adds the columns of the parts."""

    def added(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        readers = [Messages(part) for part in parts]
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for reader in readers:
                columns |= reader.read(batch)
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    return added


class Messages:
    """Reads the messages of one part."""

    def __init__(self, part: Part) -> None:
        from google.protobuf import message, message_factory  # on executors
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool

        pool: Any = DescriptorPool()
        for file in FileDescriptorSet.FromString(b64decode(part.descriptors)).file:
            pool.AddSerializedFile(file.SerializeToString())
        self._new: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(part.message))
        self._errors = (message.DecodeError, UnicodeDecodeError)
        self._part = part
        self._getters = [getter(field) for field in part.root.fields]

    def read(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        part = self._part
        prefix = "key_" if part.column else ""
        found: list[list[Any]] = [[] for _ in self._getters]
        faults: list[tuple[str, str] | None] = []
        absent: tuple[Any, ...] = (None,) * len(self._getters)
        known: list[bool] = []
        for payload, head in zip(batch.column(part.payload), batch.column(part.head), strict=True):
            values, fault = absent, None
            if payload.is_valid:
                try:
                    values = self._values(payload.as_py(), head.as_py())
                except MisfitError as error:
                    fault = (f"{prefix}{error.args[0]}", error.args[1])
                except self._errors:
                    fault = (f"{prefix}protobuf", f"it is no message of the type {part.message}")
            known.append(values is not absent)
            faults.append(fault)
            for column, value in zip(found, values, strict=True):
                column.append(value)
        arrays = [pa.array(each, of(field)) for each, field in zip(found, part.root.fields, strict=True)]
        columns = dict(zip((field.name for field in part.root.fields), arrays, strict=True))
        if part.column:
            names = [field.name for field in part.root.fields]
            unknown = pa.array([not each for each in known])
            columns = {part.column: pa.StructArray.from_arrays(arrays, names=names, mask=unknown)}
        return {**columns, part.fault: pa.array(faults, FAULT)}

    def _values(self, payload: bytes, head: bytes) -> tuple[Any, ...]:
        indexes, at = read_indexes(payload)
        if indexes not in self._part.indexes[head]:  # mutant: indexes-honoured
            raise MisfitError("message", f"it is the message {list(indexes)} of its schema, not {self._part.message}")
        message = self._new.FromString(payload[at:])
        return tuple([get(message) for get in self._getters])


def read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a message, and the number of their bytes."""
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise MisfitError("message", f"{count} indexes of a message")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    return tuple(found), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise MisfitError("message", "it ends within the indexes of its message")
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise MisfitError("message", "an index of a message has too many bytes")


def of(field: ProtoField) -> pa.DataType:
    """Return the type of a field's column, as Spark has it for `spark_type`."""
    if field.kind == "message":
        one = pa.struct([(each.name, of(each)) for each in field.fields])
    elif field.kind == "map":
        one = pa.map_(of(field.fields[0]), of(field.fields[1]))
    elif field.kind == "wrapper":
        one = of(field.fields[0])
    else:
        one = _PLAIN[field.kind]
    return pa.list_(one) if field.repeated else one


def getter(field: ProtoField) -> Getter:
    """Return the function that takes a field's value, as Arrow takes it, from a message."""
    name = field.name
    if field.kind == "map":
        value = converter(field.fields[1])
        key = converter(field.fields[0])

        def pairs(message: Any) -> Any:
            found = getattr(message, name)
            return [(key(each), value(found[each])) for each in found]

        return pairs
    convert = converter(field)
    if field.repeated:
        return lambda message: [convert(each) for each in getattr(message, name)]
    if field.presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    if field.kind in ("uint64", "enum"):
        return lambda message: convert(getattr(message, name))
    return lambda message: getattr(message, name)


def converter(field: ProtoField) -> Getter:
    """Return the function that makes one value of a field's what Arrow takes."""
    match field.kind:
        case "uint64":
            return Decimal
        case "enum":
            names = dict(field.symbols)
            return lambda number: names.get(number, str(number))
        case "timestamp":
            return _microseconds
        case "wrapper":
            inner = converter(field.fields[0])
            return lambda message: inner(message.value)
        case "json":
            return _json
        case "message":
            getters = [(each.name, getter(each)) for each in field.fields]
            return lambda message: {name: get(message) for name, get in getters}
    return _same


def _same(value: Any) -> Any:
    return value


def _microseconds(time: Any) -> int:
    if not (_TIME_MIN <= time.seconds < _TIME_MAX and 0 <= time.nanos < 1_000_000_000):
        raise MisfitError("protobuf", "a time is not between the years 1 and 9999")
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1_000


def _json(message: Any) -> str:
    from google.protobuf import json_format

    try:
        return json_format.MessageToJson(message, indent=None, ensure_ascii=False)
    except (json_format.Error, ValueError, RecursionError) as error:
        raise MisfitError("protobuf", f"it has no JSON: {error}"[:300]) from None
