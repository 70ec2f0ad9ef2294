"""Records produced over HTTP by schemas: each way to name one, exact bytes, refusals, a registry in trouble."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from service_chassis.schema_registry.connection import FAILURE_S
from support.schema_server import TROUBLES, SchemaServer

from tests.unit.admin_api.test_produce import reports, stored

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'
SECOND = ORDER.replace("]}", ',{"name":"note","type":"string","default":""}]}')
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'
TEXT = '{"title":"Order","type":"object","properties":{"n":{"type":"number"}},"required":["n"]}'
JSON = {"content-type": "application/json"}


@pytest.fixture
def topic(stack: Stack, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"p-{abs(hash(request.node.name))}"
    stack.create_topic(name)
    yield name
    stack.http.delete(f"{stack.cluster}/topics/{name}")


@pytest.fixture
def client(with_registry: Callable[..., httpx.Client]) -> httpx.Client:
    return with_registry()


def produce(client: httpx.Client, topic: str, *records: dict[str, Any] | str) -> list[dict[str, Any]]:
    """Send records as one stream, and return the reports."""
    body = "".join(each if isinstance(each, str) else json.dumps(each) for each in records)
    answer = client.post(f"/v3/clusters/-/topics/{topic}/records", content=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    return reports(answer.text)


def values(stack: Stack, topic: str) -> list[bytes | None]:
    return [each[3] for each in stored(stack, topic, 0)]


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def test_keys_and_values_of_each_type(
    stack: Stack, schema_server: SchemaServer, client: httpx.Client, topic: str
) -> None:
    key = {"type": "PROTOBUF", "schema": PROTO, "data": {"id": "9223372036854775807"}}
    value = {"type": "AVRO", "schema": ORDER, "data": {"id": -(2**63)}}
    (first,) = produce(client, topic, {"key": key, "value": value})
    key_id, value_id = first["key"]["schema_id"], first["value"]["schema_id"]
    assert {key_id, value_id} == {1, 2}  # they are registered at once
    assert first["key"] == {
        "type": "PROTOBUF", "subject": f"{topic}-key", "schema_id": key_id, "schema_version": 1, "size": 16
    }  # fmt: skip
    assert first["value"] == {
        "type": "AVRO", "subject": f"{topic}-value", "schema_id": value_id, "schema_version": 1, "size": 15
    }  # fmt: skip
    text = {"type": "JSONSCHEMA", "subject": "texts", "schema": TEXT, "data": 0}
    record = json.dumps({"value": text}).replace('"data": 0', '"data": {"n": 1.10, "m": [1e400]}')
    (second,) = produce(client, topic, record)
    assert second["value"]["type"] == "JSONSCHEMA"
    records = stored(stack, topic, 0)
    assert records[0][2:4] == (
        framed(key_id, b"\0\x08" + b"\xff" * 8 + b"\x7f"),
        framed(value_id, b"\xff" * 9 + b"\x01"),
    )
    assert records[1][3] == framed(3, b'{"n":1.10,"m":[1e400]}')
    shown = client.get(f"/api/v1/topics/{topic}/records/0/0", params={"value_format": "schema", "key_format": "schema"})
    assert (shown.json()["key"], shown.json()["value"]) == ({"id": "9223372036854775807"}, {"id": -(2**63)})


def test_each_way_to_name_a_schema(stack: Stack, schema_server: SchemaServer, client: httpx.Client, topic: str) -> None:
    value = f"{topic}-value"
    first, second = schema_server.add(value, ORDER), schema_server.add(value, SECOND)
    named, both = schema_server.add("shop.Order", ORDER + " "), schema_server.add(f"{topic}-shop.Order", ORDER + "  ")
    ways: list[tuple[dict[str, Any], tuple[str, int, int]]] = [
        ({}, (value, second, 2)),
        ({"type": "AVRO"}, (value, second, 2)),
        ({"schema_version": 1}, (value, first, 1)),
        ({"schema_id": first}, (value, first, 1)),
        ({"schema_id": first, "type": "AVRO", "subject_name_strategy": "TOPIC_NAME"}, (value, first, 1)),
        ({"subject": value, "schema_id": second}, (value, second, 2)),
        ({"subject": "shop.Order"}, ("shop.Order", named, 1)),
        ({"subject_name_strategy": "RECORD_NAME", "schema_id": named}, ("shop.Order", named, 1)),
        ({"subject_name_strategy": "TOPIC_RECORD_NAME", "schema_id": both}, (f"{topic}-shop.Order", both, 1)),
        ({"type": "AVRO", "schema": SECOND}, (value, second, 2)),
        (
            {"type": "AVRO", "schema": ORDER + "  ", "subject_name_strategy": "TOPIC_RECORD_NAME"},
            (f"{topic}-shop.Order", both, 1),
        ),
        ({"type": "AVRO", "schema": SECOND, "subject_name_strategy": "RECORD_NAME"}, ("shop.Order", second, 2)),
    ]
    found = produce(client, topic, *({"value": {**way, "data": {"id": 7}}} for way, _ in ways))
    shown = [(each["value"]["subject"], each["value"]["schema_id"], each["value"]["schema_version"]) for each in found]
    assert shown == [wanted for _, wanted in ways]
    payloads = [b"\x0e\0" if number == second else b"\x0e" for _, (_, number, _) in ways]
    assert values(stack, topic) == [
        framed(number, payload) for (_, (_, number, _)), payload in zip(ways, payloads, strict=True)
    ]
    asked = len(schema_server.requests)
    assert produce(client, topic, {"value": {"schema_id": first, "data": {"id": 7}}})[0]["error_code"] == 200
    assert len(schema_server.requests) == asked


def test_a_batch_and_null(stack: Stack, schema_server: SchemaServer, client: httpx.Client, topic: str) -> None:
    number = schema_server.add(f"{topic}-value", ORDER)
    entries = [
        {"id": "1", "value": {"data": {"id": 1}}},
        {"id": "2", "value": {"data": {"id": "1"}}},
        {"id": "3", "value": {"schema_id": number, "data": None}},
        {"id": "4", "value": {"type": "JSON", "data": 0.50}},
    ]
    answer = client.post(f"/v3/clusters/-/topics/{topic}/records:batch", json={"entries": entries})
    assert answer.status_code == 207
    assert [each["id"] for each in answer.json()["successes"]] == ["1", "3", "4"]
    assert answer.json()["successes"][0]["value"] == {
        "type": "AVRO", "subject": f"{topic}-value", "schema_id": number, "schema_version": 1, "size": 6
    }  # fmt: skip
    assert answer.json()["failures"] == [
        {"id": "2", "error_code": 400, "message": "Bad Request: $.id: '1' is not of the type long."}
    ]
    assert values(stack, topic) == [framed(number, b"\x02"), None, b"0.5"]


def test_decimals_and_large_numbers_keep_every_digit(stack: Stack, client: httpx.Client, topic: str) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 4}
    digits = "-12345678901234567890123456789.0120"
    schema = json.dumps(json.dumps(money))
    (report,) = produce(client, topic, f'{{"value":{{"type":"AVRO","schema":{schema},"data":{digits}}}}}')
    assert report["error_code"] == 200
    (value,) = values(stack, topic)
    assert value is not None
    assert int.from_bytes(value[6:], "big", signed=True) == -123456789012345678901234567890120
    row = client.get(f"/api/v1/topics/{topic}/records/0/0", params={"value_format": "schema"})
    assert f'"value":{digits},' in row.text


SCHEMA: dict[str, Any] = {"type": "AVRO", "schema": ORDER}


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        (
            {"subject": "a", "subject_name_strategy": "RECORD_NAME", "data": 1},
            400,
            "Error processing message: value: Only one of 'subject_name_strategy' or 'subject' can be used.",
        ),
        (
            {"schema_id": 1, "schema_version": 1, "data": 1},
            400,
            "Error processing message: value: Only one of 'schema_id', 'schema_version' or 'schema' can be used.",
        ),
        (
            {"type": "JSON", "schema_id": 1, "data": 1},
            400,
            "Error processing message: value: 'type=JSON' cannot be used with 'schema_id'.",
        ),
        (
            {"schema": ORDER, "data": 1},
            400,
            "Error processing message: value: 'schema' needs a 'type': AVRO, JSONSCHEMA or PROTOBUF.",
        ),
        (
            {"subject_name_strategy": "RECORD_NAME", "data": 1},
            400,
            "Bad Request: Cannot use schema_subject_strategy=RECORD_NAME without schema_id or schema.",
        ),
        (
            {"subject": "orders", "schema_version": 9, "data": 1},
            400,
            "Bad Request: Schema does not exist for subject: orders, version: 9",
        ),
        ({"type": "PROTOBUF", "subject": "orders", "data": 1}, 400, "Bad Request: the schema is of the type AVRO."),
        ({**SCHEMA, "data": {"id": 2**63}}, 400, f"Bad Request: $.id: {2**63} is not of the type long."),
        ({**SCHEMA, "data": {}}, 400, "Bad Request: $: no field 'id', which has no default."),
        ({"type": "AVRO", "schema": "{", "data": 1}, 42205, "Invalid schema: Expecting property name enclosed"),
        ({"type": "AVRO", "schema": '"no"', "data": 1}, 42205, "Invalid schema: no."),
        ({"type": "PROTOBUF", "schema": "message {", "data": 1}, 42205, "Invalid schema: protoc: "),
        ({"type": "JSONSCHEMA", "schema": '{"type":1}', "data": 1}, 42205, "Invalid schema: not a JSON Schema: 1 is"),
        (
            {"type": "JSONSCHEMA", "schema": '{"$ref":"file:///etc/hostname"}', "data": 1},
            42205,
            "Invalid schema: the schema refers to file:///etc/hostname, which is not in the registry.",
        ),
        (
            {"type": "AVRO", "schema": json.dumps({"type": "string", "doc": "x" * 600_000}), "data": "a"},
            42207,
            "Error serializing message. It has more than 524288 bytes with its references.",
        ),
        (
            {"type": "AVRO", "schema": '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000, "data": []},
            42205,
            "Invalid schema: it nests too deep.",
        ),
        ({"data": {"id": 1}}, 42207, "Error serializing message. The schema registry does not have it."),
        ({"schema_id": 99, "data": 1}, 42207, "Error serializing message. The schema registry does not have it."),
        (
            {"schema_id": 1, "data": {"id": 1}},
            42207,
            "Error serializing message. Schema 1 is not a version of the subject TOPIC-value.",
        ),
        (
            {"schema_id": 1, "subject": "other", "data": {"id": 1}},
            42207,
            "Error serializing message. Schema 1 is not a version of the subject other.",
        ),
        (
            {**SCHEMA, "schema": '"long"', "subject_name_strategy": "RECORD_NAME", "data": 1},
            400,
            "Bad Request: the schema is not of a record, which would name its subject.",
        ),
        ({**SCHEMA, "schema": SECOND, "data": {"id": 1}}, 42207, "Error serializing message. The schema registry answ"),
        ({**SCHEMA, "subject": "", "data": 1}, 400, "Error processing message: value.subject: "),
        ({**SCHEMA, "subject": "..", "data": {"id": 1}}, 42207, "Error serializing message. The schema registry does"),
        ({"type": "AVRO", "schema": ORDER, "more": 1, "data": 1}, 400, "Error processing message: value.more: Extra"),
    ],
)
def test_what_is_refused(
    stack: Stack,
    schema_server: SchemaServer,
    client: httpx.Client,
    topic: str,
    value: dict[str, Any],
    code: int,
    message: str,
) -> None:
    schema_server.add("orders", ORDER)
    schema_server.incompatible.add(SECOND)
    begin = time.monotonic()
    refused, good = produce(client, topic, {"value": value}, {"value": {"type": "STRING", "data": "after"}})
    assert time.monotonic() - begin < 20
    assert refused["error_code"] == code, refused
    assert refused["message"].startswith(message.replace("TOPIC", topic))
    assert good["error_code"] == 200
    assert values(stack, topic) == [b"after"]
    assert schema_server.got("/subjects") == (200, ["orders"])  # what is refused registers nothing


def test_data_that_do_not_fit_register_nothing_and_one_that_fits_once(
    stack: Stack, schema_server: SchemaServer, client: httpx.Client, topic: str
) -> None:
    wrong, right = {"value": {**SCHEMA, "data": {"id": "a"}}}, {"value": {**SCHEMA, "data": {"id": 1}}}
    assert [each["error_code"] for each in produce(client, topic, wrong, wrong)] == [400, 400]
    assert not schema_server.requests
    found = produce(client, topic, wrong, *[right] * 150)
    assert [each["error_code"] for each in found] == [400, *[200] * 150]
    registrations = [path for path in schema_server.requests if path == f"/subjects/{topic}-value/versions"]
    assert registrations == [f"/subjects/{topic}-value/versions"]


def test_a_value_that_takes_too_long_or_too_much_harms_no_other(
    stack: Stack, schema_server: SchemaServer, client: httpx.Client, topic: str
) -> None:
    large = {"type": "record", "name": "L", "fields": [{"name": "a", "type": "string", "default": "x" * 100_000}]}
    many = {"type": "AVRO", "schema": json.dumps({"type": "array", "items": large}), "data": [{}] * 20_000}
    slow = {"type": "JSONSCHEMA", "schema": '{"pattern":"^(a|a)*$"}', "data": "a" * 40 + "b"}
    first, second, good = produce(
        client, topic, {"value": many}, {"value": slow}, {"value": {**SCHEMA, "data": {"id": 1}}}
    )
    assert first["error_code"] == 400
    assert first["message"] in (
        "Bad Request: it needs more memory than is allowed, or nests too deep.",
        "Bad Request: it needs more memory than is allowed.",
        "Bad Request: it takes more than a second.",
    )
    assert (second["error_code"], second["message"]) == (400, "Bad Request: it takes more than a second.")
    assert good["error_code"] == 200


@pytest.mark.parametrize(("status", "delay_s", "said"), TROUBLES)
def test_a_registry_in_trouble_is_a_sentence_and_is_not_asked_again_for_seconds(
    stack: Stack,
    schema_server: SchemaServer,
    with_registry: Callable[..., httpx.Client],
    topic: str,
    status: int,
    delay_s: float,
    said: str,
) -> None:
    client = with_registry(schema_registry_timeout_s=1.0 if delay_s else 30.0)
    schema_server.status, schema_server.delay_s = status, delay_s
    number = schema_server.add(f"{topic}-value", ORDER)
    records = [{"value": {**SCHEMA, "data": {"id": 1}}}, {"value": {"schema_id": number, "data": {"id": 1}}}]
    failed = {"error_code": 42207, "message": f"Error serializing message. {said}"}
    plain = {"value": {"type": "STRING", "data": "a"}}
    assert produce(client, topic, *records) == [failed, failed]
    asked = len(schema_server.requests)
    assert produce(client, topic, *records) == [failed, failed]
    assert len(schema_server.requests) == asked
    assert produce(client, topic, plain)[0]["error_code"] == 200
    schema_server.status, schema_server.delay_s = 0, 0
    time.sleep(FAILURE_S)
    assert [each["error_code"] for each in produce(client, topic, *records)] == [200, 200]


def test_a_registry_that_is_away_and_none(stack: Stack, with_registry: Callable[..., httpx.Client], topic: str) -> None:
    record = {"value": {**SCHEMA, "data": {"id": 1}}}
    away = produce(with_registry(schema_registry="http://127.0.0.1:9"), topic, record)
    assert away == [
        {"error_code": 42207, "message": "Error serializing message. The schema registry cannot be reached."}
    ]
    none = produce(with_registry(schema_registry=""), topic, record, {"value": {"data": 5}})
    said = "Error serializing message. No schema registry is set (MILLRACE_SCHEMA_REGISTRY)."
    assert none == [{"error_code": 42207, "message": said}] * 2
