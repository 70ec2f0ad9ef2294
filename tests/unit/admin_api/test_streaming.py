"""The list of all topics' configurations: streamed in pieces, so that no number of clients or topics costs memory."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from admin_api import paging
from admin_api.errors import ApiError
from admin_api.paging import Paging
from admin_api.schemas.resources import CollectionMetadata, Resource
from admin_api.streaming import streamed
from service_chassis.http.ring import LASTING_KEY
from starlette.types import Message

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import OwnStorage

#: Topics with 34 configurations each, and clients that request all of them at once.
TOPICS = 100
CLIENTS = 20
CONFIGS = 35
#: An answer has 1.8 MB. Made whole, 16 of them at once take 50 MB here, and those of 400 topics 200 MB.
GROWTH_KB_MAX = 24 * 1024


class Process(NamedTuple):
    """An admin-api as a process: its address and the largest memory it has had, in KB."""

    client: httpx.Client
    pid: int

    @property
    def peak_kb(self) -> int:
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


@pytest.fixture
def process(own_storage: OwnStorage) -> Iterator[Process]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_ADMIN_")}
    environment |= {
        "MILLRACE_STORAGE_ADDRESS": own_storage.address,
        "MILLRACE_ADMIN_HTTP": "127.0.0.1:0",
        "MILLRACE_ADMIN_HEALTH_HTTP": "127.0.0.1:0",
        "MILLRACE_ADMIN_GATEWAYS": "127.0.0.1:1",
    }
    running = subprocess.Popen([sys.executable, "-m", "admin_api"], env=environment, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    port = next(line["port"] for line in map(json.loads, running.stderr) if line["event"] == "listening")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        until_ready(lambda: client.get("/readyz").status_code == 200)
        yield Process(client, running.pid)
    running.terminate()
    running.wait(60)
    running.stderr.close()


def test_many_long_lists_at_once_take_the_memory_of_their_pieces(process: Process) -> None:
    cluster = process.client.get("/v3/clusters").json()["data"][0]["metadata"]["self"]
    for number in range(TOPICS):
        assert process.client.post(f"{cluster}/topics", json={"topic_name": f"t-{number:03}"}).status_code == 201
    url = f"{cluster}/topics/-/configs"
    before = process.peak_kb

    def list_all(_client: int) -> tuple[int, str, str, None]:
        answer = httpx.get(url, timeout=60).json()
        rows = answer["data"]
        return len(rows), rows[0]["topic_name"], rows[-1]["topic_name"], answer["metadata"]["next"]

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(list_all, range(CLIENTS)))
    assert answers == [(TOPICS * CONFIGS, "t-000", f"t-{TOPICS - 1:03}", None)] * CLIENTS
    assert process.peak_kb - before <= GROWTH_KB_MAX


def test_a_failure_in_the_middle_ends_the_answer_without_its_end(own_storage: OwnStorage, process: Process) -> None:
    cluster = process.client.get("/v3/clusters").json()["data"][0]["metadata"]["self"]
    for number in range(60):
        assert process.client.post(f"{cluster}/topics", json={"topic_name": f"t-{number:03}"}).status_code == 201
    with process.client.stream("GET", f"{cluster}/topics/-/configs") as answer:
        assert answer.status_code == 200
        for _ in range(20):  # the list fills the connection, and then asks for no more pieces
            assert httpx.get(f"{cluster}/topics/t-000", timeout=60).status_code == 200
        own_storage.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
    refused = process.client.get(f"{cluster}/topics/-/configs")
    assert (refused.status_code, refused.json()["error_code"]) == (503, 50302)


async def test_the_time_limit_of_a_request_ends_when_the_list_begins() -> None:
    async def pieces() -> AsyncIterator[paging.Rows[Resource]]:
        yield paging.Rows([], None)

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return await asyncio.Future()

    answer = await streamed(
        "Kind", pieces(), lambda row: row, lambda _: CollectionMetadata(self_url="http://x", next=None)
    )
    await answer({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
    assert sent[0][LASTING_KEY] is True
    body = json.loads(b"".join(message["body"] for message in sent[1:]))
    assert body == {"kind": "Kind", "data": [], "metadata": {"self": "http://x", "next": None}}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, None])
async def test_pages_are_made_of_pieces(size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine names with two rows each, except one that has gone, in pieces of two and at most five of a page."""
    monkeypatch.setattr(paging, "PIECE_NAMES", 2)
    monkeypatch.setattr(paging, "STREAMED_NAMES_MAX", 5)

    async def rows_of(some: list[str]) -> list[tuple[str, str]]:
        assert len(some) <= 2
        return [(name, number) for name in some if name != "d" for number in "yx"]

    found, token, pages = [], None, 0
    while token is not None or pages == 0:
        pieces = [piece async for piece in Paging(size, token).pieces(list("ihgfedcba"), rows_of, key=lambda row: row)]
        assert all(piece.next_query is None for piece in pieces[:-1])
        rows = [row for piece in pieces for row in piece.rows]
        assert len(rows) <= (size or 10)
        found += rows
        pages += 1
        query = pieces[-1].next_query
        token = query.partition("page_token=")[2] if query is not None else None
    assert found == [(name, number) for name in "abcefghi" for number in "xy"]
    assert [piece async for piece in Paging(size, None).pieces([], rows_of, key=lambda row: row)] == []


@pytest.mark.parametrize("token", ["WzFd", "W10", "WyJhIiwxXQ"])
async def test_tokens_of_other_lists(token: str) -> None:
    async def rows_of(some: list[str]) -> list[tuple[str, str]]:
        return [(name, "x") for name in some]

    with pytest.raises(ApiError) as refused:
        await anext(Paging(1, token).pieces(["a"], rows_of, key=lambda row: row))
    assert refused.value.status_code == 400


def test_streams_of_the_worst_records_take_bounded_memory(process: Process) -> None:
    """More streams than run at once: objects of many values, and objects without end."""
    cluster = process.client.get("/v3/clusters").json()["data"][0]["metadata"]["self"]
    assert process.client.post(f"{cluster}/topics", json={"topic_name": "t", "partitions_count": 1}).status_code == 201
    values = b'{"value":{"type":"JSON","data":[' + b"[]," * 45_000 + b"0]}}"
    endless = b'{"value":{"type":"STRING","data":"' + b"x" * 3_000_000
    before = process.peak_kb

    def stream(number: int) -> int:
        body = values * 3 if number % 2 else endless
        headers = {"content-type": "application/json"}
        return httpx.post(f"{cluster}/topics/t/records", content=body, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(32) as clients:
        statuses = set(clients.map(stream, range(32)))
    assert statuses <= {200, 413, 503}
    assert process.peak_kb - before <= 128 * 1024
    assert process.client.get(f"{cluster}/topics/t").status_code == 200
