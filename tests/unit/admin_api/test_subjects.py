"""Subjects and versions of the schema registry over REST."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from support.schema_server import SchemaServer

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

PATH = "/api/v1/schemas/subjects"
ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
PROTO = 'syntax = "proto3"; import "common/id.proto"; message Order { Id id = 1; }'


def test_subjects_with_their_versions(schema_server: SchemaServer, with_registry: Callable[..., httpx.Client]) -> None:
    schema_server.add("orders-value", '"string"')
    number = schema_server.add("orders-value", ORDER)
    schema_server.add("common/id.proto", 'syntax = "proto3"; message Id { int64 n = 1; }', "PROTOBUF")
    references = [{"name": "common/id.proto", "subject": "common/id.proto", "version": 1}]
    proto = schema_server.add("orders-key", PROTO, "PROTOBUF", references)
    client = with_registry()
    names = ["common/id.proto", "orders-key", "orders-value"]
    assert client.get(PATH).json() == {"data": [{"subject": name} for name in names], "next": None}
    first = client.get(PATH, params={"page_size": 2}).json()
    assert [row["subject"] for row in first["data"]] == names[:2]
    assert [row["subject"] for row in client.get(first["next"]).json()["data"]] == names[2:]
    assert client.get(f"{PATH}/orders-value/versions").json() == {"subject": "orders-value", "versions": [1, 2]}
    latest = client.get(f"{PATH}/orders-value/versions/latest").json()
    assert latest == {
        "subject": "orders-value",
        "version": 2,
        "schema_id": number,
        "type": "AVRO",
        "text": ORDER,
        "references": [],
    }
    assert client.get(f"{PATH}/orders-value/versions/2").json() == latest
    assert client.get(f"{PATH}/orders-key/versions/1").json() == {
        "subject": "orders-key",
        "version": 1,
        "schema_id": proto,
        "type": "PROTOBUF",
        "text": PROTO,
        "references": references,
    }
    assert client.get(f"{PATH}/common%2Fid.proto/versions").json()["versions"] == [1]


@pytest.mark.parametrize(
    ("path", "status", "code", "message"),
    [
        ("/no-such/versions", 404, 404, "There is no such subject, or it has no such version."),
        ("/no-such/versions/1", 404, 404, "There is no such subject, or it has no such version."),
        ("/orders/versions/2", 404, 404, "There is no such subject, or it has no such version."),
        ("/%2E%2E/versions", 404, 404, "There is no such subject, or it has no such version."),
        ("/orders/versions/0", 400, 400, "version: String should match pattern"),
    ],
)
def test_what_is_not_there(
    schema_server: SchemaServer,
    with_registry: Callable[..., httpx.Client],
    path: str,
    status: int,
    code: int,
    message: str,
) -> None:
    schema_server.add("orders", ORDER)
    answer = with_registry().get(PATH + path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    ("status", "delay_s", "said"),
    [
        (401, 0, "The schema registry refuses the login (401)."),
        (500, 0, "The schema registry answers 500: no."),
        (0, 30, "The schema registry did not answer within 1 s."),
    ],
)
def test_a_registry_in_trouble(
    schema_server: SchemaServer, with_registry: Callable[..., httpx.Client], status: int, delay_s: float, said: str
) -> None:
    client = with_registry(schema_registry_timeout_s=1.0 if delay_s else 30.0)
    schema_server.status, schema_server.delay_s = status, delay_s
    answer = client.get(PATH)
    assert (answer.status_code, answer.json()) == (503, {"error_code": 50303, "message": said})
    asked = len(schema_server.requests)
    assert client.get(PATH).json()["message"] == said
    assert (len(schema_server.requests) == asked) == bool(delay_s)  # one that is away is not asked again for seconds


def test_odd_answers_and_no_registry(
    stack: Stack,
    schema_server: SchemaServer,
    with_registry: Callable[..., httpx.Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = with_registry()
    for odd in ({"a": 1}, [1], b"[", b"[" * 100_000, b'["' + b"a" * 1_100_000 + b'"]'):
        monkeypatch.setattr(schema_server, "got", lambda _, odd=odd: (200, odd))
        answer = client.get(PATH)
        assert answer.status_code == 503, odd
        size = len(odd if isinstance(odd, bytes) else json.dumps(odd))
        long = "The answer has more than 1048576 bytes."
        short = "The schema registry answers with something else than was asked for."
        assert answer.json()["message"] == (long if size > 1_000_000 else short)
    none = {"error_code": 404, "message": "No schema registry is set (MILLRACE_SCHEMA_REGISTRY)."}
    assert stack.http.get(PATH).json() == with_registry(schema_registry="").get(PATH).json() == none
