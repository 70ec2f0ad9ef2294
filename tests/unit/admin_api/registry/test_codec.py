"""Records by schemas in their process: exact values, and hostile schemas and data."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from admin_api.registry import codec as codec_module
from admin_api.registry.calls import DECODE, ENCODE, NAME
from admin_api.registry.codec import (
    DEADLY_S,
    LOADED_CHARACTERS_MAX,
    MEMORY_BYTES,
    PROCESSOR_S,
    Call,
    Codec,
    CodecError,
)
from google.protobuf import descriptor_pb2
from service_chassis.schema_registry.schema import Schema

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "paid", "type": [{"type": "record", "name": "Cash", "fields": []},
                                  {"type": "record", "name": "Card", "fields": [{"name": "n", "type": "int"}]}]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
    ],
}  # fmt: skip
#: An order as text of its JSON: 2**63 - 1, 33 digits of a decimal, a time after the year 9999.
SHOWN = (
    '{"id":9223372036854775807,"total":-12345678901234567890123456789.0120,"at":253402300800000001,"note":"ü",'
    '"raw":"\x00ÿ","paid":{"shop.Card":{"n":-1}},"tags":{"a":[0.1,"NaN","-Infinity"]}}'
).replace("\x00", "\\u0000")

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}

_keys = iter(range(1, 10_000))


def schema(text: object, kind: str = "AVRO", *references: tuple[str, str]) -> Schema:
    return Schema(next(_keys), 1, kind, text if isinstance(text, str) else json.dumps(text), references)


@pytest.fixture
async def codec() -> AsyncIterator[Codec]:
    found = Codec()
    yield found
    await found.close()


async def answer(codec: Codec, operation: int, by: Schema, data: bytes) -> bytes | CodecError:
    (found,) = await codec.run([Call(operation, by, data)])
    return found


async def test_avro_without_rounding(codec: Codec) -> None:
    by = schema(ORDER)
    encoded = await answer(codec, ENCODE, by, SHOWN.encode())
    assert isinstance(encoded, bytes), encoded
    oracle = fastavro.schemaless_reader(io.BytesIO(encoded), {**ORDER, "fields": ORDER["fields"][:1]}, None)
    assert oracle == {"id": 2**63 - 1}
    assert int.from_bytes(encoded[11:25], "big", signed=True) == -123456789012345678901234567890120
    assert await answer(codec, DECODE, by, encoded) == SHOWN.encode()


@pytest.mark.parametrize(
    ("avro", "given", "wanted"),
    [
        ('"int"', "2147483648", "$: 2147483648 is not of the type int"),
        ('"int"', "true", "$: True is not of the type int"),
        ('"long"', "1.5", "$: Decimal('1.5') is not of the type long"),
        ('"string"', "1", "$: 1 is not of the type string"),
        ('"double"', "NaN", "NaN is not JSON"),
        ('"double"', "1e400", "$: 1E+400 is too large for the type double"),
        ('"float"', "-1e39", "$: -1E+39 is too large for the type float"),
        ('"double"', "1" + "0" * 400, f"$: 1{'0' * 59} is too large for the type double"),
        ({"type": "map", "values": "int"}, '{"a":1,"a":2}', "two members have the name 'a'"),
        (DECIMAL, "true", "$: True is not of the type bytes"),
        (["null", "int"], '"a"', "$: 'a' is not of the type null or int"),
        (ORDER, "{}", "$: no field 'id', which has no default"),
        (DECIMAL, "1.234", "$: more than 2 digits after the point"),
        (DECIMAL, "123.4", "$: more than 4 digits"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, '"B"', "$: 'B' is not of the type E"),
        ({"type": "fixed", "name": "F", "size": 2}, '"a"', "$: 1 bytes, F has 2"),
    ],
)  # fmt: skip
async def test_what_is_not_of_an_avro_schema_is_refused(codec: Codec, avro: object, given: str, wanted: str) -> None:
    found = await answer(codec, ENCODE, schema(avro), given.encode())
    assert str(found) == wanted


async def test_a_branch_of_a_union_by_name_as_confluent_wants_it(codec: Codec) -> None:
    by = schema(["null", "int", "long", "string"])
    for given, first in ((b'{"long":1}', 4), (b"1", 2), (b"null", 0), (b'{"string":"a"}', 6), (b'"a"', 6)):
        encoded = await answer(codec, ENCODE, by, given)
        assert isinstance(encoded, bytes), encoded
        assert encoded[0] == first


async def test_references(codec: Codec) -> None:
    inner = {"type": "enum", "name": "a.Color", "symbols": ["RED", "BLUE"]}
    middle = {"type": "record", "name": "a.Car", "fields": [{"name": "color", "type": "a.Color"}]}
    by = schema({"type": "array", "items": "a.Car"}, "AVRO", ("Color", json.dumps(inner)), ("Car", json.dumps(middle)))
    assert await answer(codec, DECODE, by, b"\x02\x02\x00") == b'[{"color":"BLUE"}]'
    assert await answer(codec, ENCODE, by, b'[{"color":"BLUE"}]') == b"\x02\x02\x00"


PROTO = """
syntax = "proto3";
package shop;
import "common/money.proto";
import "google/protobuf/timestamp.proto";
message Ignored {}
message Order {
  message Line { int64 count = 1; }
  uint64 id = 1;
  common.Money total = 2;
  google.protobuf.Timestamp at = 3;
  repeated Line lines = 4;
}
"""
MONEY = 'syntax = "proto3"; package common; message Money { sint64 units = 1; }'


async def test_protobuf_and_its_message_indexes(codec: Codec) -> None:
    by = schema(PROTO, "PROTOBUF", ("common/money.proto", MONEY))
    order = bytes.fromhex("08ffffffffffffffffff01 1202 0803 2202 0805")
    shown = b'{"id": "18446744073709551615", "total": {"units": "-2"}, "lines": [{"count": "5"}]}'
    assert await answer(codec, DECODE, by, b"\x02\x02" + order) == shown
    assert await answer(codec, DECODE, by, b"\x04\x02\x00" + b"\x08\x07") == b'{"count": "7"}'
    assert await answer(codec, DECODE, by, b"\x00") == b"{}"
    assert str(await answer(codec, DECODE, by, b"\x02\x08")) == "the schema has no message [4]"
    assert str(await answer(codec, DECODE, by, b"\x80")) == "it ends within the indexes of its message"
    money = schema(MONEY, "PROTOBUF")
    assert await answer(codec, ENCODE, money, b'{"units":"-2"}') == b"\x00\x08\x03"
    assert "unknown" in str(await answer(codec, ENCODE, money, b'{"cents":1}')) or "no field" in str(
        await answer(codec, ENCODE, money, b'{"cents":1}')
    )


def descriptor(name: str, text: str, folder: Path) -> str:
    """Return what Confluent's serializer for Python registers in place of a text."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    out = folder / "set"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}", f"--descriptor_set_out={out}", name]
    subprocess.run(command, check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    return base64.b64encode(file.SerializeToString()).decode()


async def test_descriptors_in_place_of_texts_of_protobuf(codec: Codec, tmp_path: Path) -> None:
    money = descriptor("common/money.proto", MONEY, tmp_path)
    order = descriptor("any.proto", PROTO, tmp_path)
    data = b"\x02\x02\x12\x02\x08\x03"
    for text, reference in ((order, money), (PROTO, money), (order, MONEY)):
        by = schema(text, "PROTOBUF", ("common/money.proto", reference))
        assert await answer(codec, DECODE, by, data) == b'{"total": {"units": "-2"}}'
    lone = await answer(codec, DECODE, schema(order, "PROTOBUF"), data)
    assert "common/money.proto" in str(lone)
    odd = await answer(codec, DECODE, schema(base64.b64encode(b"\xff" * 60).decode(), "PROTOBUF"), data)
    assert str(odd).startswith("protoc: ")


MAP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  repeated .shop.Order.TagsEntry tags = 3;
  google.protobuf.Timestamp at = 4;
  message TagsEntry {
    option map_entry = true;
    string key = 1;
    double value = 2;
  }
}
"""


async def test_a_map_of_protobuf_as_the_messages_that_it_is_stored_as(codec: Codec) -> None:
    """The serializers of Apicurio for Java register such a text, which protoc alone refuses."""
    by = schema(MAP, "PROTOBUF")
    shown = b'{"tags": {"a": 0.1}, "at": "2026-01-31T12:00:00Z"}'
    encoded = await answer(codec, ENCODE, by, shown)
    assert isinstance(encoded, bytes), encoded
    assert await answer(codec, DECODE, by, encoded) == shown
    user = 'syntax = "proto3"; import "map.proto"; message Cart { shop.Order order = 1; }'
    referring = schema(user, "PROTOBUF", ("map.proto", MAP))
    assert await answer(codec, DECODE, referring, b"\0\x0a\x00") == b'{"order": {}}'
    for odd in (("string key", "double key"), ("repeated .shop", ".shop"), ("double value = 2", "double value = 3")):
        found = await answer(codec, ENCODE, schema(MAP.replace(*odd), "PROTOBUF"), shown)
        assert str(found).startswith("protoc: "), found


async def test_json_schema(codec: Codec) -> None:
    person = '{"type":"object","properties":{"n":{"type":"number","multipleOf":0.01}},"required":["n"]}'
    by = schema({"type": "array", "items": {"$ref": "person.json"}}, "JSON", ("person.json", person))
    assert await answer(codec, DECODE, by, b'[{"n":\n1.10}]') == b'[{"n": 1.10}]'
    assert await answer(codec, ENCODE, by, b'[{"n":1.10}]') == b'[{"n":1.10}]'
    assert (
        str(await answer(codec, ENCODE, by, b'[{"n":1.101}]')) == "$[0].n: Decimal('1.101') is not a multiple of 0.01"
    )
    assert str(await answer(codec, ENCODE, by, b"[{}]")) == "$[0]: 'n' is a required property"
    twice = await answer(codec, ENCODE, by, b'[{"n":"a","n":1}]')  # readers may take the first
    assert str(twice) == "two members have the name 'n'"
    whole = schema({"type": "integer"}, "JSON")
    assert await answer(codec, ENCODE, whole, b"1.0") == b"1.0"
    assert str(await answer(codec, ENCODE, whole, b"1.5")) == "$: Decimal('1.5') is not of type 'integer'"


@pytest.mark.parametrize("given", ["9007199254740993.0", "9.007199254740993e15", '"9007199254740993"'])
async def test_a_whole_number_of_protobuf_is_not_rounded(codec: Codec, given: str) -> None:
    by = schema('syntax = "proto3"; message M { int64 n = 1; double d = 2; }', "PROTOBUF")
    encoded = await answer(codec, ENCODE, by, f'{{"n":{given},"d":1.5}}'.encode())
    assert isinstance(encoded, bytes), encoded
    assert await answer(codec, DECODE, by, encoded) == b'{"n": "9007199254740993", "d": 1.5}'


@pytest.mark.parametrize("reference", ["file:///etc/hostname", "http://127.0.0.1:1/a.json", "other.json"])
async def test_a_reference_that_is_not_in_the_registry_is_not_fetched(codec: Codec, reference: str) -> None:
    found = await answer(codec, ENCODE, schema({"$ref": reference}, "JSON"), b"1")
    assert str(found) == f"the schema refers to {reference}, which is not in the registry"


def nested(levels: int, opening: str, closing: str, inner: str) -> str:
    return opening * levels + inner + closing * levels


FIELDS = "".join(f"int32 a{number}={number};" for number in range(1, 18_000))
HOSTILE: dict[str, tuple[str, Any, bytes]] = {
    "avro of 20,000 levels": ("AVRO", nested(20_000, '{"type":"array","items":', "}", '"int"'), b"\0"),
    "json of 20,000 levels": ("JSON", nested(20_000, '{"not":', "}", "{}"), b"1"),
    "proto of 20,000 levels": ("PROTOBUF", nested(20_000, "message A {", "}", ""), b"\0"),
    "an array of nulls without an end": ("AVRO", '{"type":"array","items":"null"}', b"\xfe" + b"\xff" * 8 + b"\x01"),
    "a length of 2^62": ("AVRO", '"bytes"', b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
    "a list of a million levels": (
        "AVRO",
        '{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]}]}',
        b"\x02" * 1_000_000,
    ),
    "a regular expression that never ends": ("JSON", '{"pattern":"^(a+)+$"}', b'"' + b"a" * 40 + b'b"'),
    "a scale of 2^31": ("AVRO", json.dumps({**DECIMAL, "precision": 2**31 - 1, "scale": 2**31 - 1}), b"\x02\x01"),
    "a schema in a circle": ("JSON", '{"$ref":"#"}', b"1"),
    "an import of a file": ("PROTOBUF", 'syntax="proto3"; import "/etc/hostname"; message A {}', b"\0"),
    "an import from above": ("PROTOBUF", 'syntax="proto3"; import "../a.proto"; message A {}', b"\0"),
    "a number twice, in a megabyte": ("PROTOBUF", f'syntax="proto3"; message A {{{FIELDS} int32 b=1;}}', b"\0"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_hostile_is_refused_and_the_next_call_is_served(codec: Codec, name: str) -> None:
    kind, text, data = HOSTILE[name]
    operation = ENCODE if kind == "JSON" else DECODE
    good = Call(DECODE, schema('"int"'), b"\x02")
    first, bad, last = await codec.run([good, Call(operation, schema(text, kind), data), good])
    assert isinstance(bad, CodecError), bad
    assert (first, last) == (b"1", b"1")
    assert await codec.run([good]) == [b"1"]


async def test_a_name_of_a_reference_is_no_path_out_of_the_folder(codec: Codec, tmp_path: Path) -> None:
    for name in ("../a.proto", str(tmp_path / "a.proto"), "google/protobuf/any.proto", "a\nb.proto"):
        found = await answer(codec, DECODE, schema(MONEY, "PROTOBUF", (name, MONEY)), b"\0")
        assert str(found) == f"a reference has the name {name!r}"
    for names in (("a", "a/b"), ("",), (".",), ("x" * 300,)):
        references = [(name, MONEY) for name in names]
        found = await answer(codec, DECODE, schema(MONEY, "PROTOBUF", *references), b"\0")
        assert str(found) == "the names of its references cannot be those of files"
    assert os.listdir(tmp_path) == []


async def test_a_run_ends_on_the_clock_and_so_does_the_wait_for_those_before_it(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [Call(ENCODE, schema('"int"'), b"1")] * 2
    assert await codec.run(calls) == [b"\x02", b"\x02"]
    monkeypatch.setattr(codec_module, "RUN_S", 0.0)
    unknown = [Call(ENCODE, schema('"long"'), b"1")] * 2
    assert [str(each) for each in await codec.run(unknown)] == ["other schemas took too long or are too large"] * 2
    async with codec._lock:
        said = "other records are decoded or encoded at this time"
        assert [str(each) for each in await codec.run(calls)] == [said] * 2
    monkeypatch.setattr(codec_module, "RUN_S", 30.0)
    assert await codec.run(calls) == [b"\x02", b"\x02"]


async def test_many_large_schemas_leave_memory_for_others(codec: Codec) -> None:
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(9_000)]
    large = [schema({"type": "record", "name": "R", "fields": fields}) for _ in range(60)]
    first: int | None = None
    for at in range(0, 60, 5):
        found = await codec.run([Call(ENCODE, each, b"{}") for each in large[at : at + 5]])
        assert [each if isinstance(each, CodecError) else len(each) for each in found] == [9_000] * 5
        first = first or codec.pid
    together = await codec.run([Call(ENCODE, each, b"{}") for each in large[:30]])
    assert [str(each) for each in together if isinstance(each, CodecError)] == [
        "other schemas took too long or are too large"
    ] * (30 - LOADED_CHARACTERS_MAX // (len(large[0].text) + len("AVRO")))
    assert codec.pid == first


async def test_a_schema_that_took_too_long_on_a_busy_machine_is_tried_again() -> None:
    codec = Codec(processor_s=0.005)
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(9_000)]
    call = Call(ENCODE, schema({"type": "record", "name": "R", "fields": fields}), b"{}")
    assert [str(each) for each in await codec.run([call])] == ["the schema takes more than a second"]
    await codec.close()
    codec._limits = (str(PROCESSOR_S), str(MEMORY_BYTES))
    assert [str(each) for each in await codec.run([call])] == ["the schema takes more than a second"]
    until, refused = codec._deadly[call.schema.key]
    codec._deadly[call.schema.key] = (until - DEADLY_S, refused)
    assert await codec.run([call]) == [b"\0" * 9_000]
    await codec.close()


async def test_answers_of_one_run_are_bounded_together(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "ANSWERS_BYTES_MAX", 5)
    first, second, third = await codec.run([Call(ENCODE, schema('"string"'), b'"ab"')] * 3)
    assert first == b"\x04ab"
    assert str(second) == str(third) == "it and those before it are too large together"


@pytest.mark.parametrize(
    ("by", "name"),
    [
        (schema(ORDER), b"shop.Order"),
        (schema('"Car"', "AVRO", ("Car", '{"type":"record","name":"Car","fields":[]}')), b"Car"),
        (schema({"title": "Order"}, "JSON"), b"Order"),
        (schema('syntax = "proto3"; package a.b; message M {}', "PROTOBUF"), b"a.b.M"),
        (schema('"int"'), "the schema is not of a record, which would name its subject"),
        (
            schema({"type": "enum", "name": "E", "symbols": []}),
            "the schema is not of a record, which would name its subject",
        ),
        (schema("true", "JSON"), "the schema has no title, which would name its subject"),
    ],
)
async def test_names_of_records(codec: Codec, by: Schema, name: bytes | str) -> None:
    found = await answer(codec, NAME, by, b"")
    assert found == name if isinstance(name, bytes) else str(found) == name
