"""Protobuf that a schema registry frames: indexes of messages, every type, versions that do not fit."""

import json
from base64 import b64decode
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

pytestmark = pytest.mark.etl

from google.protobuf import json_format, message_factory  # noqa: E402
from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: E402
from google.protobuf.descriptor_pool import DescriptorPool  # noqa: E402
from service_chassis.schema_registry import protoc  # noqa: E402
from spark_etl.config import Pipeline  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.registry import pins  # noqa: E402
from support.kafka_frames import errors, judge  # noqa: E402
from support.pipelines import pipeline  # noqa: E402

SUBJECT = "orders-value"
FIRST = """
syntax = "proto3";
package shop;
message Other { string text = 1; }
message Order {
  message Line { string sku = 1; }
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
}
"""
#: A field more, in a file where the message has another place.
SECOND = FIRST.replace("message Other { string text = 1; }", "").replace(
    "repeated Line", "double more = 9; repeated Line"
)


def message(text: str, name: str, document: dict[str, Any]) -> bytes:
    """Return a message as Google's library writes it."""
    pool: Any = DescriptorPool()
    for file in FileDescriptorSet.FromString(protoc.descriptors(text, [])[0]).file:
        pool.AddSerializedFile(file.SerializeToString())
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    return bytes(json_format.ParseDict(document, made).SerializeToString())


def framed(number: int, indexes: bytes, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + content


def pinned(spark, folder, decode: dict[str, Any] | None = None, **registry) -> Pipeline:
    sections = {"format": "protobuf", "registry": {"subject": SUBJECT, **registry}, **(decode or {})}
    return pins.pinned(pipeline(folder, decode=sections), spark)


def test_messages_are_found_by_their_indexes(spark, tmp_path, server):
    first = server.add(SUBJECT, FIRST, "PROTOBUF")
    second = server.add(SUBJECT, SECOND, "PROTOBUF")
    pipe = pinned(spark, tmp_path, version=1, message="shop.Order")
    order = message(FIRST, "shop.Order", {"id": "9223372036854775807", "lines": [{"sku": "a"}, {}]})
    newer = message(SECOND, "shop.Order", {"id": "-1", "note": "", "more": 1.5})
    header = [("__value_schema_id", framed(first, b"\x02\x02", b""))]
    values = [
        framed(first, b"\x02\x02", order),
        framed(second, b"\0", newer),
        framed(first, b"\0", order),
        framed(first, b"\x04\x02\0", order),
        framed(first, b"\x02\x02", order[:-1]),
        framed(first, b"\xff", b""),
        framed(77, b"\0", order),
        order,
        None,
        order,
    ]
    rows = judge(spark, pipe, values, headers=[*[[]] * 9, header])
    assert errors(rows) == [
        None,
        None,
        ("decode", "message", "it is the message [0] of its schema, not shop.Order"),
        ("decode", "message", "it is the message [1, 0] of its schema, not shop.Order"),
        ("decode", "protobuf", "it is no message of the type shop.Order"),
        ("decode", "message", "it ends within the indexes of its message"),
        ("decode", "schema", "schema 77: The schema registry does not have it"),
        ("decode", "frame", "the value names no schema of a registry"),
        ("decode", "null_value", "the value is null"),
        None,
    ]
    found = [json.loads(json.dumps(row.asDict(recursive=True), default=str)) for row in (rows[0], rows[1], rows[9])]
    assert [(each["id"], each["note"], each["lines"]) for each in found] == [
        (2**63 - 1, None, [{"sku": "a"}, {"sku": ""}]),
        (-1, "", []),
        (2**63 - 1, None, [{"sku": "a"}, {"sku": ""}]),
    ]


EVERY = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/duration.proto";
enum Kind { NONE = 0; SOME = 7; }
message Every {
  bool flag = 1; int32 small = 2; sint64 signed = 3; fixed32 fixed = 4; uint64 large = 5; float single = 6;
  double wide = 7; string text = 8; bytes raw = 9; Kind kind = 10; repeated Kind kinds = 11;
  map<string, int64> counts = 12; map<int32, Every.Inner> inners = 13;
  google.protobuf.Timestamp at = 14; google.protobuf.Int64Value boxed = 15; google.protobuf.Int64Value empty = 16;
  google.protobuf.Struct any = 17; google.protobuf.Duration span = 18; Inner absent = 19;
  oneof choice { string left = 20; uint64 right = 21; }
  repeated uint64 larges = 22;
  message Inner { google.protobuf.Timestamp at = 1; optional bool known = 2; }
}
"""


def test_every_type(spark, tmp_path, server):
    number = server.add(SUBJECT, EVERY, "PROTOBUF")
    document = {
        "flag": True,
        "small": -(2**31),
        "signed": -(2**63),
        "fixed": 2**32 - 1,
        "large": 2**64 - 1,
        "single": 0.5,
        "wide": 0.1,
        "text": "ü",
        "raw": "AP8=",
        "kind": "SOME",
        "kinds": [7, 9],
        "counts": {"a": 2**63 - 1},
        "inners": {"5": {"at": "9999-12-31T23:59:59.999999999Z", "known": False}},
        "at": "1969-12-31T23:59:59.5Z",
        "boxed": "0",
        "any": {"a": [1, None]},
        "span": "1.5s",
        "right": 2**64 - 1,
        "larges": [1, 2**64 - 1],
    }
    content = message(EVERY, "Every", document)
    late = message(EVERY, "Every", {}) + b"\x72\x07\x08\x80\xdc\xc7\xf7\xdf\x75"  # at: seconds beyond 9999
    rows = judge(spark, pinned(spark, tmp_path), [framed(number, b"\0", content), framed(number, b"\0", late)])
    assert errors(rows) == [None, ("decode", "protobuf", "a time is not between the years 1 and 9999")]
    found = rows[0].asDict(recursive=True)
    expected = {
        **document,
        "raw": b64decode("AP8="),
        "large": Decimal(2**64 - 1),
        "kinds": ["SOME", "9"],
        "inners": {5: {"at": datetime(9999, 12, 31, 23, 59, 59, 999999), "known": False}},
        "at": datetime(1969, 12, 31, 23, 59, 59, 500000),
        "boxed": 0,
        "empty": None,
        "any": '{"a": [1.0, null]}',
        "span": {"seconds": 1, "nanos": 500_000_000},
        "absent": None,
        "left": None,
        "right": Decimal(2**64 - 1),
        "larges": [Decimal(1), Decimal(2**64 - 1)],
    }
    assert {name: bytes(value) if isinstance(value, bytearray) else value for name, value in found.items()} == {
        **{name: found[name] for name in found if name.startswith("_")},
        **expected,
    }


def test_references(spark, tmp_path, server):
    server.add("kinds", 'syntax = "proto3"; package of; enum Kind { NONE = 0; SOME = 1; }', "PROTOBUF")
    text = 'syntax = "proto3"; import "of/kinds.proto"; message M { of.Kind kind = 1; }'
    number = server.add(SUBJECT, text, "PROTOBUF", [{"name": "of/kinds.proto", "subject": "kinds", "version": 1}])
    (row,) = judge(spark, pinned(spark, tmp_path), [framed(number, b"\0", b"\x08\x01")])
    assert (row["kind"], row["_error"]) == ("SOME", None)


def test_a_key(spark, tmp_path, server):
    value = server.add(SUBJECT, FIRST, "PROTOBUF")
    key = server.add("orders-key", 'syntax = "proto3"; message Key { int32 id = 1; }', "PROTOBUF")
    decode = {"key": "protobuf", "key_registry": {"subject": "orders-key"}}
    pipe = pinned(spark, tmp_path, decode, message="shop.Order")
    good = framed(value, b"\x02\x02", b"\x08\x05")
    rows = judge(spark, pipe, [good] * 3, [framed(key, b"\0", b"\x08\x07"), None, framed(key, b"\0", b"\x08")])
    assert errors(rows) == [None, None, ("decode", "key_protobuf", "it is no message of the type Key")]
    assert [row["_key"] and row["_key"]["id"] for row in rows] == [7, None, None]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            FIRST.replace("int64 id", "string id"),
            "the field 1, shop.Order.id, has another",
        ),
        (
            FIRST.replace("int64 id", "sint64 id"),
            "the field 1, shop.Order.id, has another",
        ),
        (
            FIRST.replace("string sku", "int32 sku"),
            "the field 1, shop.Order.Line.sku, has",
        ),
        (FIRST.replace("int64 id", "repeated int64 id"), "the field 1, shop.Order.id, is"),
        (
            FIRST.replace("message Order", "message Orders"),
            "has no message shop.Order, whose fields the columns",
        ),
        ('syntax = "proto3"; import "/etc/passwd";', "protoc: "),
        ('syntax = "proto3"; message ' + "M { message " * 20_000, "protoc"),
    ],
)
def test_a_schema_that_does_not_fit(spark, tmp_path, server, schema, reason):
    """Protobuf would leave the field out, and read another value of a signed number."""
    server.add(SUBJECT, FIRST, "PROTOBUF")
    number = server.add("others", schema, "PROTOBUF")
    (row,) = judge(spark, pinned(spark, tmp_path, message="shop.Order"), [framed(number, b"\x02\x02", b"\x08\x05")])
    assert row["_error"]["rule"] == "schema"
    assert row["_error"]["message"].startswith(f"schema {number}: it ")
    assert reason in row["_error"]["message"]


def test_symbols_that_a_closed_enum_lacks(spark, tmp_path, server):
    """Protobuf would leave the value out: such an enum, of proto2, has no numbers without a name."""
    closed = 'syntax = "proto2"; enum E { A = 0; } message M { optional E e = 1; repeated E all = 2; }'
    server.add(SUBJECT, closed, "PROTOBUF")
    number = server.add("others", closed.replace("A = 0;", "A = 0; B = 1;"), "PROTOBUF")
    known = server.add("again", closed + " ", "PROTOBUF")
    values = [framed(number, b"\0", b"\x08\x01\x10\x00"), framed(known, b"\0", b"\x08\x00\x10\x00")]
    lost, kept = judge(spark, pinned(spark, tmp_path), values)
    assert lost["_error"]["message"] == (
        f"schema {number}: it does not fit the columns: the field 1, M.e, has symbols that its closed enum lacks: 1"
    )
    assert (kept["_error"], kept["e"], kept["all"]) == (None, "A", ["A"])


def test_references_whose_names_are_none_of_files(spark, tmp_path, server):
    server.add(SUBJECT, FIRST, "PROTOBUF")
    server.add("a", 'syntax = "proto3";', "PROTOBUF")
    references = [{"name": name, "subject": "a", "version": 1} for name in ("a", "a/b")]
    number = server.add("others", FIRST + " ", "PROTOBUF", references)
    (row,) = judge(spark, pinned(spark, tmp_path, message="shop.Order"), [framed(number, b"\x02\x02", b"\x08\x05")])
    said = "it is no schema of Protobuf: the names of its references cannot be those of files"
    assert row["_error"]["message"] == f"schema {number}: {said}"


SELF = 'syntax = "proto3"; message M { int32 id = 1; M next = 2; }'
WIDE = 'syntax = "proto3"; message M0 { int32 a = 1; } ' + " ".join(
    f"message M{number} {{ M{number - 1} a = 1; M{number - 1} b = 2; }}" for number in range(1, 31)
)


@pytest.mark.parametrize(
    ("schema", "message", "reason"),
    [
        (SELF, None, "the message M has itself as a part, and a column cannot"),
        (WIDE, "M30", "it has more than 2000 fields, where each mention of a message counts"),
        (FIRST, "shop.None", "it has no message shop.None"),
    ],
)
def test_columns_that_are_refused(spark, tmp_path, server, schema, message, reason):
    server.add(SUBJECT, schema, "PROTOBUF")
    with pytest.raises(ConfigError) as refused:
        pinned(spark, tmp_path, **({"message": message} if message else {}))
    assert str(refused.value) == f"{tmp_path}/pipeline.yaml:9: decode.registry: {reason}"
