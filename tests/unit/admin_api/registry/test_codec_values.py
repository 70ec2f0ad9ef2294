"""Any values by any schemas: the process that decodes and encodes agrees with fastavro and protobuf, its oracles."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import math
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from admin_api.registry.calls import DECODE, ENCODE
from admin_api.registry.codec import Call, Codec
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from service_chassis.schema_registry.schema import Schema

if TYPE_CHECKING:
    from support.loop_thread import LoopThread

Answers = list[Any]
_keys = itertools.count(1)
_names = itertools.count(1)


@pytest.fixture(scope="module")
def codec(loop: LoopThread) -> Iterator[Codec]:
    async def made() -> Codec:
        return Codec()

    found = loop.run(made())
    yield found
    loop.run(found.close())


def answers(loop: LoopThread, codec: Codec, schema: Schema, *calls: tuple[int, bytes]) -> Answers:
    return loop.run(codec.run([Call(operation, schema, data) for operation, data in calls]))


def exact(text: bytes | str) -> Any:
    return json.loads(text, parse_float=Decimal)


#: A type: the schema, that of the oracle, and the pairs of a value for the oracle and what is shown of it.
Kind = tuple[Any, Any, st.SearchStrategy[tuple[Any, Any]]]


def same(name: str, values: st.SearchStrategy[Any]) -> Kind:
    return name, name, values.map(lambda value: (value, value))


def shown_float(value: float) -> tuple[float, Any]:
    if math.isfinite(value):
        return value, Decimal(repr(value))
    if math.isnan(value):
        return math.nan, "NaN"  # its other bits are not kept
    return value, "Infinity" if value > 0 else "-Infinity"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PRIMITIVES: list[Kind] = [
    same("null", st.none()),
    same("boolean", st.booleans()),
    same("int", st.integers(-(2**31), 2**31 - 1)),
    same("long", st.integers(-(2**63), 2**63 - 1)),
    same("string", TEXTS),
    ("float", "float", st.floats(width=32).map(shown_float)),
    ("double", "double", st.floats().map(shown_float)),
    ("bytes", "bytes", st.binary(max_size=8).map(lambda value: (value, value.decode("latin-1")))),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        "long",
        st.integers(-(2**63), 2**63 - 1).map(lambda value: (value, value)),
    ),
]


@st.composite
def decimals(draw: st.DrawFn) -> Kind:
    precision = draw(st.integers(1, 40))
    scale = draw(st.integers(0, precision))
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def value(unscaled: int) -> tuple[bytes, Decimal | int]:
        size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        number = Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
        return unscaled.to_bytes(size, "big", signed=True), number if scale else unscaled

    return schema, "bytes", st.integers(-(10**precision) + 1, 10**precision - 1).map(value)


def named(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "name": f"N{next(_names)}", **members}


def array(item: Kind) -> Kind:
    values = st.lists(item[2], max_size=3).map(lambda pairs: ([a for a, _ in pairs], [b for _, b in pairs]))
    return {"type": "array", "items": item[0]}, {"type": "array", "items": item[1]}, values


def mapping(item: Kind) -> Kind:
    values = st.dictionaries(TEXTS, item[2], max_size=3).map(
        lambda pairs: ({k: a for k, (a, _) in pairs.items()}, {k: b for k, (_, b) in pairs.items()})
    )
    return {"type": "map", "values": item[0]}, {"type": "map", "values": item[1]}, values


def optional(item: Kind) -> Kind:
    if item[0] == "null" or isinstance(item[0], list):
        return item
    return ["null", item[0]], ["null", item[1]], st.one_of(st.just((None, None)), item[2])


def record(items: list[Kind]) -> Kind:
    fields = [(f"f{number}", item) for number, item in enumerate(items)]
    schema = named("record", fields=[{"name": name, "type": item[0]} for name, item in fields])
    oracle = {**schema, "fields": [{"name": name, "type": item[1]} for name, item in fields]}
    values = st.tuples(*(item[2] for item in items)).map(
        lambda pairs: tuple({name: pair[at] for (name, _), pair in zip(fields, pairs, strict=True)} for at in (0, 1))
    )
    return schema, oracle, values  # type: ignore[return-value]  # a tuple of two


def enum(symbols: list[str]) -> Kind:
    schema = named("enum", symbols=symbols)
    return schema, schema, st.sampled_from(symbols).map(lambda value: (value, value))


def fixed(size: int) -> Kind:
    schema = named("fixed", size=size)
    return schema, schema, st.binary(min_size=size, max_size=size).map(lambda value: (value, value.decode("latin-1")))


KINDS: st.SearchStrategy[Kind] = st.recursive(
    st.one_of(
        st.sampled_from(PRIMITIVES),
        decimals(),
        st.sampled_from([["A"], ["A", "B", "C"]]).map(enum),
        st.integers(0, 5).map(fixed),
    ),
    lambda inner: st.one_of(
        inner.map(array), inner.map(mapping), inner.map(optional), st.lists(inner, max_size=4).map(record)
    ),
    max_leaves=6,
)


@settings(max_examples=100)
@given(st.data())
def test_any_avro(loop: LoopThread, codec: Codec, data: st.DataObject) -> None:
    schema, oracle, values = data.draw(KINDS)
    value, shown = data.draw(values)
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(oracle), value)
    by = Schema(next(_keys), 1, "AVRO", json.dumps(schema))
    (text,) = answers(loop, codec, by, (DECODE, target.getvalue()))
    assert isinstance(text, bytes), text
    assert exact(text) == shown
    (encoded,) = answers(loop, codec, by, (ENCODE, text))
    assert encoded == target.getvalue(), text


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  enum State { NEW = 0; DONE = 7; }
  double a = 1; float b = 2; int32 c = 3; int64 d = 4; uint32 e = 5; uint64 f = 6; sint32 g = 7; sint64 h = 8;
  fixed32 i = 9; fixed64 j = 10; sfixed32 k = 11; sfixed64 l = 12; bool m = 13; string n = 14; bytes o = 15;
  State p = 16; repeated sint64 q = 17; map<string, uint64> r = 18; Order s = 19; repeated Order t = 20;
  google.protobuf.Timestamp u = 21; oneof which { string v = 22; int64 w = 23; } optional int32 x = 24;
}
"""


@pytest.fixture(scope="module")
def order() -> Any:
    """The oracle's class of a message."""
    package = importlib.util.find_spec("grpc_tools")
    assert package is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "order.proto").write_text(PROTO)
        include = f"--proto_path={Path(str(package.origin)).parent / '_proto'}"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}", include, "--include_imports"]
        subprocess.run([*command, "--descriptor_set_out=out", "order.proto"], cwd=folder, check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "out").read_bytes())
    pool = DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("Order"))


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


INT32, INT64 = integers(32), integers(64)
UINT32, UINT64 = integers(32, signed=False), integers(64, signed=False)
#: The library refuses the text that it writes for the largest ones.
FLOATS = st.floats(-(2.0**127), 2.0**127, width=32)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "a": st.floats(allow_nan=False), "b": FLOATS, "c": INT32, "d": INT64, "e": UINT32,
    "f": UINT64, "g": INT32, "h": INT64, "i": UINT32, "j": UINT64, "k": INT32, "l": INT64, "m": st.booleans(),
    "n": TEXTS, "o": st.binary(max_size=8), "p": st.sampled_from([0, 7, 5]), "q": st.lists(INT64, max_size=3),
    "r": st.dictionaries(TEXTS, UINT64, max_size=3), "v": TEXTS, "w": INT64, "x": INT32,
}  # fmt: skip
ORDERS = st.recursive(
    st.fixed_dictionaries({}, optional=FIELDS),
    lambda inner: st.fixed_dictionaries({}, optional={**FIELDS, "s": inner, "t": st.lists(inner, max_size=2)}),
    max_leaves=2,
)


def message(order: Any, fields: dict[str, Any]) -> Any:
    inner = {"s": lambda value: message(order, value), "t": lambda value: [message(order, each) for each in value]}
    return order(**{name: inner[name](value) if name in inner else value for name, value in fields.items()})


@settings(max_examples=60)
@given(fields=ORDERS, seconds=st.none() | st.integers(-62135596800, 253402300799))
def test_any_protobuf(
    loop: LoopThread, codec: Codec, order: Any, protobuf: Schema, fields: dict[str, Any], seconds: int | None
) -> None:
    made = message(order, fields)
    if seconds is not None:
        made.u.seconds = seconds
    (text,) = answers(loop, codec, protobuf, (DECODE, b"\0" + made.SerializeToString()))
    assert isinstance(text, bytes), text
    assert json_format.Parse(text, order()) == made
    assert json.loads(text) == json.loads(json_format.MessageToJson(made))
    (encoded,) = answers(loop, codec, protobuf, (ENCODE, text))
    assert isinstance(encoded, bytes), encoded
    assert encoded[:1] == b"\0"
    assert order.FromString(encoded[1:]) == made


@pytest.fixture(scope="module")
def protobuf() -> Schema:
    return Schema(next(_keys), 1, "PROTOBUF", PROTO)


@given(st.integers(0, 2**32 - 1).map(lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0]))
def test_any_float_keeps_its_bits(loop: LoopThread, codec: Codec, value: float) -> None:
    if math.isnan(value):
        return
    data = struct.pack("<f", value)
    text, again = answers(loop, codec, FLOAT, (DECODE, data), (DECODE, data))
    assert text == again
    assert answers(loop, codec, FLOAT, (ENCODE, text)) == [data]


FLOAT = Schema(next(_keys), 1, "AVRO", '"float"')
