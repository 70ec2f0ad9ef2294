"""HEAD on every route that has GET, at a real socket; and `/`, which leads people to the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from admin_api.kafka_clients import DOWNLOAD, TAIL

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/docs/docs.js", "/healthz", "/readyz", "/openapi.json", "/v3/clusters", "/nope"]
)
def test_head_is_the_head_of_get(stack: Stack, path: str) -> None:
    get, head = stack.http.get(path), stack.http.head(path)
    differ = ("date", "x-request-id")
    assert head.status_code == get.status_code
    assert [pair for pair in head.headers.items() if pair[0] not in differ] == [
        pair for pair in get.headers.items() if pair[0] not in differ
    ]
    assert head.content == b""


@pytest.mark.parametrize("path", ["records:download", "tail"])
def test_head_of_an_answer_without_end(stack: Stack, path: str) -> None:
    stack.create_topic("endless", 1) if stack.http.get(f"{stack.cluster}/topics/endless").status_code == 404 else None
    stack.append("endless", 0, 3)
    for _ in range(3):  # also that the connection is in step
        answer = stack.http.head(f"/api/v1/topics/endless/{path}")
        assert (answer.status_code, answer.content) == (200, b"")
    until_ready(lambda: not stack.clients.borrowed(TAIL) and not stack.clients.borrowed(DOWNLOAD))


def test_head_is_counted_as_head(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    client = admin(stack.storage_address)
    assert client.head("/v3/clusters").status_code == 200
    expected = 'http_requests_total{method="HEAD",route="/v3/clusters",status="200"} 1.0'
    assert [line for line in client.get("/metrics").text.splitlines() if line.startswith(expected[:39])] == [expected]


def test_head_of_a_post(stack: Stack) -> None:
    answer = stack.http.head("/api/v1/consumer-groups/g/offsets:reset")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_the_root_leads_to_the_documentation(stack: Stack) -> None:
    answer = stack.http.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "docs")
    assert stack.http.get("/", follow_redirects=True).text == stack.http.get("/docs").text
