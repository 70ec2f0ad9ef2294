"""Records by the schemas of a registry over REST: pages, one record, downloads, tails, and a registry in trouble."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis.schema_registry import client as registry_client
from support.schema_server import TROUBLES, SchemaServer

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
PROTO = 'syntax = "proto3"; message Other {} message Order { int64 id = 1; }'
#: An order with the id 7.
AVRO = b"\x0e"


@pytest.fixture
def topic(stack: Stack, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"t-{abs(hash(request.node.name))}"
    stack.create_topic(name)
    yield name
    stack.http.delete(f"{stack.cluster}/topics/{name}")


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def write(stack: Stack, topic: str, *values: bytes | None, key: bytes | None = None, **headers: bytes) -> None:
    named = tuple(headers.items())
    stack.append_batch(
        topic, 0, build_batch([Record(at, 1000 + at, key, each, named) for at, each in enumerate(values)])
    )


def browse(client: httpx.Client, topic: str, **query: str) -> list[dict[str, Any]]:
    parameters = {"mode": "oldest", "value_format": "schema", **query}
    answer = client.get(f"/api/v1/topics/{topic}/records", params=parameters)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["data"])


def test_a_page_with_subject_and_version(
    stack: Stack, schema_server: SchemaServer, topic: str, with_registry: Callable[..., httpx.Client]
) -> None:
    schema_server.add("another", ORDER)
    schema_server.add(f"{topic}-value", '"string"')
    number = schema_server.add(f"{topic}-value", ORDER)
    proto = schema_server.add(f"{topic}-key", PROTO, "PROTOBUF")
    text = schema_server.add("json", "{}", "JSON")
    write(stack, topic, framed(number, AVRO), None, framed(text, b'{"a": 1}'), key=framed(proto, b"\x02\x02\x08\x07"))
    client = with_registry()
    avro, tombstone, plain = browse(client, topic, key_format="schema")
    assert (avro["value"], avro["value_format"], avro["value_size"]) == ({"id": 7}, "avro", 6)
    assert avro["value_schema_id"] == number
    assert avro["value_schema"] == {"type": "AVRO", "subject": f"{topic}-value", "version": 2}
    assert (avro["key"], avro["key_format"]) == ({"id": "7"}, "protobuf")
    assert avro["key_schema"] == {"type": "PROTOBUF", "subject": f"{topic}-key", "version": 1}
    assert tombstone["value"] is None
    assert (plain["value"], plain["value_format"]) == ({"a": 1}, "json")
    assert plain["value_schema"] == {"type": "JSON", "subject": "json", "version": 1}
    asked = len(schema_server.requests)
    assert browse(client, topic, key_format="schema") == [avro, tombstone, plain]
    assert len(schema_server.requests) == asked  # schemas of ids never change
    newest = browse(client, topic, mode="newest", limit="1")
    assert [row["value"] for row in newest] == [{"a": 1}]
    one = client.get(f"/api/v1/topics/{topic}/records/0/0", params={"value_format": "schema"}).json()
    assert (one["value"], one["value_schema"]) == (avro["value"], avro["value_schema"])
    download = client.get(f"/api/v1/topics/{topic}/records:download", params={"value_format": "schema"}).text
    assert [json.loads(line)["value"] for line in download.splitlines()] == [{"id": 7}, None, {"a": 1}]


def test_a_tail(
    stack: Stack, schema_server: SchemaServer, topic: str, with_registry: Callable[..., httpx.Client]
) -> None:
    number = schema_server.add(f"{topic}-value", ORDER)
    client = with_registry()
    with client.stream("GET", f"/api/v1/topics/{topic}/tail", params={"value_format": "schema"}) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        write(stack, topic, framed(number, AVRO))
        data = next(line for line in lines if line.startswith("data: "))
    assert json.loads(data.removeprefix("data: "))["value"] == {"id": 7}


def test_ids_in_headers(
    stack: Stack, schema_server: SchemaServer, topic: str, with_registry: Callable[..., httpx.Client]
) -> None:
    number = schema_server.add("orders", ORDER)
    proto = schema_server.add("proto", PROTO, "PROTOBUF")
    write(stack, topic, AVRO, __value_schema_id=b"\x01" + schema_server.guid(number).bytes)
    write(stack, topic, b"\x08\x07", __value_schema_id=b"\x01" + schema_server.guid(proto).bytes + b"\x02\x02")
    avro, protobuf = browse(with_registry(), topic)
    assert (avro["value"], avro["value_format"]) == ({"id": 7}, "avro")
    assert (protobuf["value"], protobuf["value_format"]) == ({"id": "7"}, "protobuf")


def test_references_and_their_circle(
    stack: Stack, schema_server: SchemaServer, topic: str, with_registry: Callable[..., httpx.Client]
) -> None:
    schema_server.add("a", ORDER)
    one = [{"name": "Order", "subject": "a", "version": 1}]
    number = schema_server.add("b", '{"type":"array","items":"Order"}', references=one)
    circle = schema_server.add("c", ORDER + " ", references=[{"name": "C", "subject": "c", "version": 1}])
    large = schema_server.add("d", json.dumps({"type": "enum", "name": "E", "symbols": ["A"], "doc": "x" * 1_000_000}))
    write(stack, topic, framed(number, b"\x02\x0e\x00"), framed(circle, AVRO), framed(large, b"\0"))
    array, round_, doc = browse(with_registry(), topic)
    assert array["value"] == [{"id": 7}]
    assert round_["value_schema_fault"] == f"Schema {circle}: its references form a circle."
    assert doc["value_schema_fault"] == f"Schema {large}: it has more than 524288 bytes with its references."


def test_a_schema_that_nothing_can_encode_or_ask_for_harms_no_other(
    stack: Stack, schema_server: SchemaServer, topic: str, with_registry: Callable[..., httpx.Client]
) -> None:
    half = schema_server.add("half", '"\ud800"')
    place = schema_server.add("place", ORDER, references=[{"name": "A", "subject": "\ud800", "version": 1}])
    long = schema_server.add("long", ORDER, references=[{"name": "A", "subject": "s" * 70_000, "version": 1}])
    number = schema_server.add("orders", ORDER)
    write(stack, topic, *(framed(each, AVRO) for each in (half, place, long)))
    client = with_registry()
    assert [row["value_schema_fault"] for row in browse(client, topic)] == [
        f"Schema {half}: its text has halves of characters.",
        f"Schema {place}: its text has halves of characters.",
        f"Schema {long}: The schema registry does not have it.",
    ]
    write(stack, topic, framed(number, AVRO))
    assert browse(client, topic, mode="newest", limit="1")[0]["value"] == {"id": 7}  # the registry is not away


def test_what_names_no_schema_is_shown_as_it_is(
    stack: Stack, schema_server: SchemaServer, topic: str, with_registry: Callable[..., httpx.Client]
) -> None:
    number = schema_server.add("orders", ORDER)
    write(stack, topic, b"text", framed(99, b"a"), framed(number, AVRO + b"x"), framed(number, AVRO))
    text, unknown, longer, good = browse(with_registry(), topic)
    assert (text["value"], text["value_format"]) == ("text", "utf8")
    assert text["value_schema_fault"] == "It names no schema."
    assert unknown["value_schema_fault"] == "Schema 99: The schema registry does not have it."
    assert longer["value_schema_fault"] == f"Schema {number}: 1 bytes follow its value."
    assert good["value"] == {"id": 7}


@pytest.mark.parametrize(("status", "delay_s", "said"), TROUBLES)
def test_a_registry_in_trouble_is_a_sentence_and_is_not_asked_again_for_seconds(
    stack: Stack,
    schema_server: SchemaServer,
    topic: str,
    with_registry: Callable[..., httpx.Client],
    status: int,
    delay_s: float,
    said: str,
) -> None:
    number = schema_server.add("orders", ORDER)
    write(stack, topic, framed(number, AVRO))
    client = with_registry(schema_registry_timeout_s=1.0 if delay_s else 30.0)
    schema_server.status, schema_server.delay_s = status, delay_s
    (row,) = browse(client, topic)
    assert row["value_schema_fault"] == f"Schema {number}: {said}"
    assert row["value_format"] == "utf8"
    asked = len(schema_server.requests)
    assert browse(client, topic) == [row]
    assert len(schema_server.requests) == asked
    schema_server.status, schema_server.delay_s = 0, 0
    time.sleep(registry_client.FAILURE_S)
    assert browse(client, topic)[0]["value"] == {"id": 7}


def test_a_registry_that_is_away_and_none(
    stack: Stack, topic: str, with_registry: Callable[..., httpx.Client], schema_server: SchemaServer
) -> None:
    write(stack, topic, framed(1, AVRO))
    (away,) = browse(with_registry(schema_registry="http://127.0.0.1:9"), topic)
    assert away["value_schema_fault"] == "Schema 1: The schema registry cannot be reached."
    (none,) = browse(with_registry(schema_registry=""), topic)
    assert none["value_schema_fault"] == "No schema registry is set (MILLRACE_SCHEMA_REGISTRY)."


def test_logins(
    stack: Stack, schema_server: SchemaServer, topic: str, with_registry: Callable[..., httpx.Client], tmp_path: Path
) -> None:
    number = schema_server.add("orders", ORDER)
    write(stack, topic, framed(number, AVRO))
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    browse(with_registry(schema_registry_user="me", schema_registry_password_file=str(secret)), topic)
    browse(with_registry(schema_registry_token_file=str(secret)), topic)
    assert set(schema_server.authorizations) == {"Basic bWU6czNjcmV0", "Bearer s3cret"}
    (row,) = browse(with_registry(schema_registry_token_file=str(tmp_path / "none")), topic)
    assert "cannot be read" in row["value_schema_fault"]
    secret.write_text("s\u00e9cret\n")
    (row,) = browse(with_registry(schema_registry_token_file=str(secret)), topic)
    said = "The login to the schema registry is not of characters that HTTP has."
    assert row["value_schema_fault"] == f"Schema {number}: {said}"
