"""HEAD on every GET route: the same status and headers as GET, no body, and no stream that is opened."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from admin_api.kafka_clients import DOWNLOAD, TAIL

from tests.unit.admin_api.test_access import ROUTES

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

#: Fields that differ between two answers to one request.
VARYING = {"x-request-id", "date"}
#: Routes whose bodies may differ in length between two requests.
CHANGING = {"/metrics", "/api/v1/health", "/api/v1/metrics/range", "/api/v1/topics"}


@pytest.fixture(scope="module")
def topic(stack: Stack) -> str:
    stack.create_topic("headed")
    stack.append("headed", 0, 3)
    stack.commit("headed", {("headed", 0): 1})
    return "headed"


@pytest.mark.parametrize("path", [path for method, path in ROUTES if method == "GET" and not path.endswith("/tail")])
def test_head_is_get_without_its_body(stack: Stack, topic: str, path: str) -> None:
    names = {"topic_name": topic, "consumer_group_id": topic, "name": "retention.ms", "asset": "docs.js"}
    url = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "-" if found[1] == "cluster_id" else "0"), path)
    query = {"metric": "lag"} if path.endswith("/range") else {}
    varying = VARYING | ({"content-length"} if path in CHANGING else set())

    def fields(answer: httpx.Response) -> dict[str, str]:
        return {name: value for name, value in answer.headers.items() if name not in varying}

    expected = stack.http.get(url, params=query)
    answer = stack.http.head(url, params=query)
    assert expected.status_code in (200, 307, 400, 404)
    assert (answer.status_code, fields(answer), answer.content) == (expected.status_code, fields(expected), b"")


def test_the_next_answer_follows_the_head(stack: Stack) -> None:
    host, port = stack.base_url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        for request in (b"HEAD /v3/clusters/-/topics/-/configs", b"HEAD /healthz", b"GET /healthz"):
            connection.sendall(request + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while b'{"live":true}' not in received:
            part = connection.recv(65536)
            assert part, received
            received += part
    heads = received.split(b"\r\n\r\n")
    assert [head.partition(b"\r\n")[0] for head in heads[:3]] == [b"HTTP/1.1 200 OK"] * 3
    assert [b"transfer-encoding: chunked" in head.lower() for head in heads[:3]] == [True, False, False]
    assert [b"content-length: 13" in head.lower() for head in heads[:3]] == [False, True, True]
    assert heads[3:] == [b'{"live":true}']


@pytest.mark.parametrize(
    ("path", "media_type"),
    [("records:download", "application/x-ndjson"), ("tail", "text/event-stream; charset=utf-8")],
)
def test_no_stream_is_opened(
    stack: Stack, admin: Callable[..., httpx.Client], topic: str, path: str, media_type: str
) -> None:
    url = f"/api/v1/topics/{topic}/{path}"
    without_gateway = admin(stack.storage_address, admin_gateways="127.0.0.1:1", admin_gateway_timeout_s=60)
    for client in (stack.http, without_gateway):
        answer = client.head(url)
        assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, media_type, b"")
        assert answer.headers["cache-control"] == "no-store"
    assert not stack.clients.borrowed(TAIL)
    assert not stack.clients.borrowed(DOWNLOAD)
    with stack.http.stream("GET", url) as expected:
        assert expected.headers["content-type"] == media_type
    assert stack.http.head("/api/v1/topics/none/tail").status_code == 404


def test_head_is_counted_as_head(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    client = admin(stack.storage_address)
    assert client.head("/v3/clusters").status_code == 200
    expected = 'http_requests_total{method="HEAD",route="/v3/clusters",status="200"} 1.0'
    assert [line for line in client.get("/metrics").text.splitlines() if line.startswith(expected[:39])] == [expected]


def test_methods_without_get_have_no_head(stack: Stack) -> None:
    answer = stack.http.head("/v3/clusters/-/acls:batch")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST", b"")
