"""`millrace schema`, `produce --schema` and `consume --decode` with a small registry."""

import json

import pytest
from support.schema_server import SchemaServer

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
SECOND = ORDER.replace("]}", ',{"name":"note","type":"string","default":""}]}')
MONEY = '{"type":"bytes","logicalType":"decimal","precision":30,"scale":2}'
ALL = ("-o", "beginning", "-e")


@pytest.fixture
def server(monkeypatch):
    with SchemaServer() as found:
        monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY", found.url)
        yield found


def test_schemas_are_registered_listed_printed_and_checked(run, server, tmp_path):
    first, second, wrong = tmp_path / "1.avsc", tmp_path / "2.avsc", tmp_path / "3"
    first.write_text(ORDER)
    second.write_text(SECOND)
    wrong.write_text('"int"')
    assert run("schema", "list") == (0, ["SUBJECT"], "")
    assert run("schema", "check", "orders-value", str(first)) == (0, ["it fits orders-value"], "")
    said = ["registered: orders-value version 1, id 1"]
    assert run("schema", "register", "orders-value", str(first)) == (0, said, "")
    assert run("schema", "register", "orders-value", str(first)) == (0, said, "")
    row = {"subject": "orders-value", "version": 2, "id": 2}
    assert run.json("schema", "register", "orders-value", str(second)) == row
    assert run.json("schema", "list") == [{"subject": "orders-value"}]
    assert run("schema", "list", "orders-value")[1] == ["VERSION  ID  TYPE", "1        1   AVRO", "2        2   AVRO"]
    assert run("schema", "get", "orders-value") == (0, [SECOND], "")
    assert run("schema", "get", "orders-value:1") == run("schema", "get", "orders-value:1") == (0, [ORDER], "")
    shown = run.json("schema", "get", "orders-value:latest")
    assert shown == {**row, "type": "AVRO", "text": SECOND, "references": []}
    server.incompatible.add('"int"')
    refused = "millrace: it does not fit the latest version of orders-value: a field was added\n"
    assert run("schema", "check", "orders-value", str(wrong), "-t", "avro") == (1, [], refused)
    status, lines, _ = run("schema", "check", "orders-value", str(wrong), "-t", "avro", "-o", "json")
    assert (status, json.loads("\n".join(lines))["reasons"]) == (1, ["a field was added"])
    refused = "millrace: The schema registry answers 409: incompatible with an earlier schema.\n"
    assert run("schema", "register", "orders-value", str(wrong), "-t", "avro") == (1, [], refused)


def test_a_schema_with_a_reference(run, server, tmp_path):
    server.add("common/id.proto", 'syntax = "proto3"; message Id { int64 n = 1; }', "PROTOBUF")
    file = tmp_path / "order.proto"
    file.write_text('syntax = "proto3"; import "common/id.proto"; message Order { Id id = 1; }')
    given = ("-r", "common/id.proto=common/id.proto:1")
    assert run("schema", "register", "orders-value", str(file), *given)[0] == 0
    (reference,) = run.json("schema", "get", "orders-value")["references"]
    assert reference == {"name": "common/id.proto", "subject": "common/id.proto", "version": 1}
    run("topic", "create", "referred")
    run.produced(b'{"id":{"n":"5"}}\n', "referred", "--schema", "orders-value")
    assert run.consumed("referred", *ALL, "-f", "%R") == (10).to_bytes(4, "big")
    assert run.consumed("referred", *ALL, "--decode") == b'{"id": {"n": "5"}}\n'


def test_records_are_encoded_and_decoded(run, server):
    number = server.add("orders-value", ORDER)
    server.add("orders-value", SECOND)
    server.add("orders-key", '"string"')
    run("topic", "create", "orders")
    run.produced(b'{"id":9223372036854775807}\n', "orders", "--schema", "orders-value:1")
    run.produced(b'{"id":1,"note":"a"}\n{"id":2}\n', "orders", "--schema", "orders-value")
    lines = b'{"key":"k","value":{"id":3}}\n{"key":"k","value":null}\n'
    both = ("--schema", "orders-value", "--key-schema", "orders-key")
    run.produced(lines, "orders", "--input", "json-each-row", *both)
    raw = run.consumed("orders", "-o", "0:1", "-f", "%s")
    assert raw == b"\0" + number.to_bytes(4, "big") + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    shown = run.consumed("orders", *ALL, "--decode", "-f", r"%k %s\n")
    assert shown == (
        b' {"id":9223372036854775807}\n {"id":1,"note":"a"}\n {"id":2,"note":""}\n"k" {"id":3,"note":""}\n"k" \n'
    )
    rows = run.consumed("orders", "-o", "2:", "-e", "--decode", "--output", "json-each-row")
    assert [(each["key"], each["value"]) for each in map(json.loads, rows.splitlines())] == [
        (None, {"id": 2, "note": ""}), ("k", {"id": 3, "note": ""}), ("k", None)
    ]  # fmt: skip
    run("topic", "create", "copy")
    run.produced(rows, "copy", "--input", "json-each-row", *both)
    again = run.consumed("copy", *ALL, "--decode", "--output", "json-each-row")
    assert [json.loads(line)["value"] for line in again.splitlines()] == [
        json.loads(line)["value"] for line in rows.splitlines()
    ]


def test_decimals_keep_every_digit(run, server):
    server.add("prices-value", MONEY)
    run("topic", "create", "prices")
    given = b"1.10\n-1234567890123456789012345678.9\n0\n"
    run.produced(given, "prices", "--schema", "prices-value")
    assert run.consumed("prices", *ALL, "--decode") == b"1.10\n-1234567890123456789012345678.90\n0.00\n"


def test_a_line_that_does_not_fit_is_named_and_those_before_it_are_stored(run, server):
    server.add("orders-value", ORDER)
    run("topic", "create", "partly")
    lines = b'{"id":1}\n{"id":2}\n{"id":"3"}\n{"id":4}\n'
    refused = "millrace: line 3 is not of schema 1: $.id: '3' is not of the type long\n"
    assert run("produce", "partly", "--schema", "orders-value", stdin=lines) == (1, [], refused)
    lines = b'{"value":{"id":3}}\n{"value":{"id":4}\n'
    status, _, error = run("produce", "partly", "--schema", "orders-value", "--input", "json-each-row", stdin=lines)
    assert (status, error.partition(":")[2][:35]) == (1, " line 2 is not a record in JSON: JS")
    assert run.consumed("partly", *ALL, "--decode") == b'{"id":1}\n{"id":2}\n{"id":3}\n'


def test_what_cannot_be_decoded_stays_and_is_said_once(run, server):
    server.add("orders-value", ORDER)
    run("topic", "create", "odd")
    run.produced(b"text\nmore\n", "odd")
    run.produced(b'{"id":1}\n', "odd", "--schema", "orders-value")
    run.produced(b"\0\0\0\0\x63a\n", "odd")
    status, lines, error = run("consume", "odd", "-q", *ALL, "--decode")
    assert (status, lines) == (0, ["text", "more", '{"id":1}', "\0\0\0\0ca"])
    assert error == (
        "millrace: odd-0 offset 0, value not decoded: it names no schema\n"
        "millrace: odd-0 offset 3, value not decoded: schema 99: The schema registry does not have it\n"
    )


@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        (("schema", "list", "no"), 1, "the schema registry has no no"),
        (("schema", "get", "no"), 1, "the schema registry has no no"),
        (("schema", "get", "orders-value:9"), 1, "the schema registry has no orders-value:9"),
        (("schema", "get", "orders-value:0"), 2, "'orders-value:0': versions are numbers from 1"),
        (("schema", "get", ":1"), 2, "':1' is not SUBJECT or SUBJECT:VERSION"),
        (("schema", "register", "a", "FILE"), 2, "FILE: --type is needed, avro, json or protobuf"),
        (("schema", "register", "a", "FILE", "-t", "avro"), 1, "FILE: No such file or directory"),
        (("schema", "check", "a", "FILE", "-t", "avro", "-r", "b"), 2, "--reference: 'b' is not NAME=SUBJECT:VERSION"),
        (("produce", "t", "--schema", "no"), 1, "the schema registry has no no"),
        (("produce", "t", "--schema", "orders-value:9"), 1, "the schema registry has no version 9 of orders-value"),
    ],
)  # fmt: skip
def test_mistakes(run, server, command, status, error):
    server.add("orders-value", ORDER)
    assert run(*command) == (status, [], f"millrace: {error}\n")


def test_a_registry_in_trouble_and_none(run, server, monkeypatch):
    server.status = 401
    assert run("schema", "list") == (1, [], "millrace: The schema registry refuses the login (401).\n")
    monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY_TIMEOUT_S", "0.2")
    server.status, server.delay_s = 0, 5
    assert run("schema", "list") == (1, [], "millrace: The schema registry did not answer within 0.2 s.\n")
    monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY", "http://127.0.0.1:9")
    away = (1, [], "millrace: The schema registry cannot be reached.\n")
    assert run("schema", "list") == run("produce", "t", "--schema", "a") == away
    monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY", "nonsense")
    status, _, error = run("schema", "list")
    assert (status, "MILLRACE_SCHEMA_REGISTRY" in error, error.count("\n")) == (2, True, 1)
    monkeypatch.delenv("MILLRACE_SCHEMA_REGISTRY")
    none = "millrace: no schema registry is set: MILLRACE_SCHEMA_REGISTRY=http://localhost:8081\n"
    for command in (("schema", "list"), ("consume", "t", "--decode"), ("produce", "t", "--schema", "a")):
        assert run(*command) == (2, [], none)
