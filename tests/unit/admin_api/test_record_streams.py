"""Downloads and tails: every record, whole, with a resumption; slow receivers, failures and the stop of the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import httpx
import pytest
from admin_api.errors import ApiError
from admin_api.kafka_clients import DOWNLOAD, TAIL
from admin_api.records import downloading
from admin_api.records.conditions import Filter
from admin_api.records.cursors import Left
from admin_api.records.rendering import Formats
from admin_api.records.tailing import EVENTS_PER_S, Tail, positions_after
from protocol_lib.records.batch import HEADER_SIZE, build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record

from tests.unit.admin_api.conftest import PARTS, until_ready
from tests.unit.admin_api.scripted_log import ScriptedLog, client_of

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack


@pytest.fixture
def topic(stack: Stack, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.partition("[")[0]
    stack.create_topic(name, 2)
    yield name
    stack.http.delete(f"{stack.cluster}/topics/{name}")


def records(count: int, value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(n, 1000 + n, b"k%d" % n, value) for n in range(count)], codec=codec)


def lines(answer: httpx.Response) -> list[tuple[int, int]]:
    assert answer.status_code == 200, answer.text
    rows = [json.loads(line) for line in answer.text.splitlines()]
    return [(row["partition"], row["offset"]) for row in rows]


def events(texts: Iterator[str], count: int) -> list[str]:
    """Return the next lines of a tail that are not empty."""
    found: list[str] = []
    while len(found) < count:
        line = next(texts)
        if line:
            found.append(line)
    return found


def _idle(stack: Stack) -> None:
    """Wait until no client of the gateway is in use."""
    until_ready(lambda: not stack.clients.borrowed(TAIL) and not stack.clients.borrowed(DOWNLOAD))


def test_a_download_has_every_record(stack: Stack, topic: str) -> None:
    for codec in Codec:
        stack.append_batch(topic, 0, records(400, b"v" * 500, codec))
    stack.append_batch(topic, 1, records(3))
    answer = stack.http.get(f"/api/v1/topics/{topic}/records:download")
    assert lines(answer) == [(0, offset) for offset in range(2000)] + [(1, 0), (1, 1), (1, 2)]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == f'attachment; filename="{topic}.ndjson"'
    assert json.loads(answer.text.splitlines()[-1]) == {
        "partition": 1, "offset": 2, "timestamp": 1002,
        "key": "k2", "key_format": "utf8", "key_size": 2, "key_truncated": False,
        "value": "v", "value_format": "utf8", "value_size": 1, "value_truncated": False,
        "headers": [], "headers_count": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("partition=1", [(1, 0), (1, 1), (1, 2), (1, 3)]),
        ("partition=1&from_offset=2", [(1, 2), (1, 3)]),
        ("from_offset=1&to_offset=2", [(0, 1), (1, 1)]),
        ("to_offset=0", []),
        ("from_offset=9", []),
        ("key=k3", [(0, 3), (1, 3)]),
        ("where=offset>2&partition=0", [(0, 3)]),
        ("isolation=read_committed&partition=0", [(0, 0), (0, 1), (0, 2), (0, 3)]),
    ],
)
def test_parts_of_a_download(stack: Stack, topic: str, query: str, expected: list[tuple[int, int]]) -> None:
    for partition in range(2):
        stack.append_batch(topic, partition, records(4))
    assert lines(stack.http.get(f"/api/v1/topics/{topic}/records:download?{query}")) == expected


def test_a_download_is_whole_where_a_page_is_cut(stack: Stack, topic: str) -> None:
    stack.append_batch(topic, 0, records(1, b"x" * 100_000))
    (line,) = stack.http.get(f"/api/v1/topics/{topic}/records:download").text.splitlines()
    assert json.loads(line)["value"] == "x" * 100_000


def test_a_receiver_that_leaves_ends_the_download(stack: Stack, topic: str) -> None:
    for _ in range(40):
        stack.append_batch(topic, 0, records(10, b"v" * 60_000))
    with stack.http.stream("GET", f"/api/v1/topics/{topic}/records:download") as answer:
        next(answer.iter_bytes(1000))
        assert stack.clients.borrowed(DOWNLOAD) == 1
    _idle(stack)


def test_a_receiver_that_does_not_read_holds_little(stack: Stack, topic: str) -> None:
    for _ in range(40):
        stack.append_batch(topic, 0, records(10, b"v" * 60_000))
    host, port = stack.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(f"GET /api/v1/topics/{topic}/records:download HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert slow.recv(15) == b"HTTP/1.1 200 OK"
        until_ready(lambda: bool(stack.connections.unsent))
        sizes = [each.unsent_bytes for each in stack.connections.unsent]
        assert sum(sizes) < 1_000_000  # of 24 MB
        assert stack.http.get(f"/api/v1/topics/{topic}/records?limit=1").status_code == 200
    _idle(stack)


def test_more_downloads_than_places(stack: Stack, topic: str) -> None:
    for _ in range(40):
        stack.append_batch(topic, 0, records(10, b"v" * 60_000))
    path = f"/api/v1/topics/{topic}/records:download"
    with contextlib.ExitStack() as opened:
        for _ in range(DOWNLOAD.clients_max):
            assert opened.enter_context(stack.http.stream("GET", path)).status_code == 200
        refused = stack.http.get(path)
        assert (refused.status_code, refused.json()["error_code"], refused.headers["retry-after"]) == (429, 42901, "10")
    _idle(stack)


def test_a_tail_shows_new_records(stack: Stack, topic: str) -> None:
    stack.append_batch(topic, 0, records(3))
    with stack.http.stream("GET", f"/api/v1/topics/{topic}/tail") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        texts = answer.iter_lines()
        assert events(texts, 1) == ["retry: 2000"]
        stack.append_batch(topic, 0, records(2))
        first, second, last_id = events(texts, 3)
        rows = [json.loads(text.removeprefix("data: ")) for text in (first, second)]
        assert [(row["partition"], row["offset"], row["key"]) for row in rows] == [(0, 3, "k0"), (0, 4, "k1")]
        assert last_id == "id: 0:4,1:-1"
        stack.append_batch(topic, 1, records(1))
        assert events(texts, 2)[1] == "id: 0:4,1:0"
    _idle(stack)


def test_a_tail_goes_on_after_the_last_event(stack: Stack, topic: str) -> None:
    stack.append_batch(topic, 0, records(3))
    stack.append_batch(topic, 1, records(2))
    headers = {"last-event-id": "0:0,1:1"}
    with stack.http.stream("GET", f"/api/v1/topics/{topic}/tail", headers=headers) as answer:
        _, first, second, last_id = events(answer.iter_lines(), 4)
        assert [json.loads(text[6:])["offset"] for text in (first, second)] == [1, 2]
        assert last_id == "id: 0:2,1:1"
    headers = {"last-event-id": "0:99,1:1"}  # of a topic that was created again
    with stack.http.stream("GET", f"/api/v1/topics/{topic}/tail", headers=headers) as answer:
        texts = answer.iter_lines()
        assert events(texts, 1) == ["retry: 2000"]
        stack.append_batch(topic, 0, records(1))
        assert json.loads(events(texts, 1)[0][6:])["offset"] == 3
    _idle(stack)


def test_a_tail_follows_partitions_that_are_added(stack: Stack, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From their beginning, also after the client was away."""
    monkeypatch.setattr("admin_api.records.tailing.LOOK_S", 0.0)
    path = f"/api/v1/topics/{topic}/tail"
    with stack.http.stream("GET", path) as answer:
        texts = answer.iter_lines()
        assert events(texts, 1) == ["retry: 2000"]
        assert stack.http.patch(f"{stack.cluster}/topics/{topic}", json={"partitions_count": 3}).is_success
        stack.append_batch(topic, 2, records(1))
        assert events(texts, 2) == ["event: partitions", 'data: {"added":[2]}']
        data, last_id = events(texts, 2)
        assert (json.loads(data[6:])["partition"], last_id) == (2, "id: 0:-1,1:-1,2:0")
    with stack.http.stream("GET", path, headers={"last-event-id": "0:-1,1:-1"}) as answer:
        _, data, last_id = events(answer.iter_lines(), 3)
        assert (json.loads(data[6:])["partition"], last_id) == (2, "id: 0:-1,1:-1,2:0")
    _idle(stack)


def test_a_tail_of_one_partition_with_a_filter(stack: Stack, topic: str) -> None:
    with stack.http.stream("GET", f"/api/v1/topics/{topic}/tail?partition=1&key=k2&value_format=hex") as answer:
        texts = answer.iter_lines()
        assert events(texts, 1) == ["retry: 2000"]
        stack.append_batch(topic, 0, records(4))
        stack.append_batch(topic, 1, records(4))
        data, last_id = events(texts, 2)
        row = json.loads(data[6:])
        assert (row["offset"], row["value"], last_id) == (2, "76", "id: 1:3")
    _idle(stack)


def test_a_tail_drops_what_exceeds_its_allowance(stack: Stack, topic: str) -> None:
    with stack.http.stream("GET", f"/api/v1/topics/{topic}/tail?partition=0") as answer:
        texts = answer.iter_lines()
        assert events(texts, 1) == ["retry: 2000"]
        stack.append_batch(topic, 0, records(50 * EVENTS_PER_S))
        shown = 0
        while (line := events(texts, 1)[0]).startswith("data: "):
            assert json.loads(line[6:])["offset"] == shown
            shown += 1
        assert shown >= EVENTS_PER_S
        assert line == "event: dropped"
        dropped, last_id = events(texts, 2)
        end = 50 * EVENTS_PER_S - 1
        assert json.loads(dropped[6:]) == {"partition": 0, "from_offset": shown, "to_offset": end}
        assert last_id == f"id: 0:{end}"
    _idle(stack)


def test_a_tail_ends_with_its_topic(stack: Stack, topic: str) -> None:
    with stack.http.stream("GET", f"/api/v1/topics/{topic}/tail") as answer:
        texts = answer.iter_lines()
        assert events(texts, 1) == ["retry: 2000"]
        stack.http.delete(f"{stack.cluster}/topics/{topic}")
        name, data = events(texts, 2)
        assert name == "event: error"
        assert json.loads(data[6:])["error_code"] == 40403
        assert list(texts) == [""] or not list(texts)
    _idle(stack)
    assert stack.http.get(f"{stack.cluster}/topics/{topic}").status_code == 404  # not created again


def test_more_tails_than_places(stack: Stack, topic: str) -> None:
    path = f"/api/v1/topics/{topic}/tail"
    with contextlib.ExitStack() as opened:
        for _ in range(TAIL.clients_max):
            assert opened.enter_context(stack.http.stream("GET", path)).status_code == 200
        refused = stack.http.get(path)
        assert (refused.status_code, refused.json()["error_code"], refused.headers["retry-after"]) == (429, 42901, "10")
        assert stack.http.get(f"/api/v1/topics/{topic}/records").status_code == 200  # pages have other places
    _idle(stack)


@pytest.mark.parametrize("last_id", ["", "0", "0:", "a:1", "0:1,", "0:1;1:2", "0:-2", "0:1" + ",0:1" * 300])
def test_other_texts_are_no_id_of_a_tail(stack: Stack, topic: str, last_id: str) -> None:
    with pytest.raises(ApiError):
        positions_after(last_id)
    answer = stack.http.get(f"/api/v1/topics/{topic}/tail", headers={"last-event-id": last_id})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)


def test_a_stop_ends_a_tail_at_once(stack: Stack, admin: Callable[..., httpx.Client], topic: str) -> None:
    client = admin(stack.storage_address, admin_gateways=stack.kafka)
    with client.stream("GET", f"/api/v1/topics/{topic}/tail") as answer:
        texts = answer.iter_lines()
        assert events(texts, 1) == ["retry: 2000"]
        clients, _ = PARTS[str(client.base_url)]
        stack.loop.loop.call_soon_threadsafe(clients.stop)
        assert [text for text in texts if text] == []


async def _first_events(log: ScriptedLog, positions: dict[int, int], newest: int, count: int) -> list[bytes]:
    async def end(_partition: int) -> int:
        return newest

    async with client_of(log) as client:
        tail = Tail(client, "t", positions, end, None, Filter(), Formats(), read_committed=False)
        stream = tail.events()
        return [await anext(stream) for _ in range(count)]


@pytest.mark.parametrize(("count", "pause_s"), [(EVENTS_PER_S // 2, 0.1), (10 * EVENTS_PER_S, 1.0)])
async def test_a_tail_without_an_event_left_waits_for_more(count: int, pause_s: float) -> None:
    async with client_of(ScriptedLog({0: [records(count)]})) as client:
        tail = Tail(client, "t", {0: 0}, AsyncMock(), None, Filter(), Formats(), read_committed=False)
        stream = tail.events()
        assert [await anext(stream) for _ in range(2)][1].count(b"data: ") >= count // 10
        assert tail.pause_s == pause_s


@pytest.mark.parametrize(("fault", "last"), [("deleted", 6), ("damaged", 1), ("too large", 0)])
async def test_a_tail_leaves_out_what_it_cannot_read(fault: str, last: int) -> None:
    damaged = bytearray(records(2))
    damaged[HEADER_SIZE : HEADER_SIZE + 8] = b"\xff" * 8
    log = ScriptedLog({0: [bytes(damaged) if fault == "damaged" else records(1, bytes(17_000_000))]})
    log.errors = {0: 1} if fault == "deleted" else {}
    _, piece = await _first_events(log, {0: 0}, 7, 2)
    assert piece == b'event: dropped\ndata: {"partition":0,"from_offset":0,"to_offset":%d}\nid: 0:%d\n\n' % (last, last)


async def test_a_tail_goes_on_after_a_batch_that_is_too_large() -> None:
    """The other partitions lose nothing."""
    log = ScriptedLog({0: [records(1, bytes(17_000_000))], 1: [records(1)]})
    _, first, second = await _first_events(log, {0: 0, 1: 0}, 7, 3)
    assert first == b'event: dropped\ndata: {"partition":0,"from_offset":0,"to_offset":0}\nid: 0:0,1:-1\n\n'
    assert second.startswith(b'data: {"partition":1,"offset":0,')


async def test_a_tail_leaves_out_a_batch_that_decompresses_to_too_much() -> None:
    """The records before and after it show."""
    bomb = records(2, bytes(9_000_000), Codec.ZSTD)
    log = ScriptedLog({0: [records(1), _moved(bomb, 1), _moved(records(1), 3)]})
    _, piece = await _first_events(log, {0: 0}, 7, 2)
    first, dropped, last = piece.decode().strip().split("\n\n")
    assert first.startswith('data: {"partition":0,"offset":0,')
    assert dropped == 'event: dropped\ndata: {"partition":0,"from_offset":1,"to_offset":2}'
    assert last.startswith('data: {"partition":0,"offset":3,')
    assert last.endswith("\nid: 0:3")


async def test_a_download_names_the_records_that_it_cannot_show() -> None:
    damaged = bytearray(records(2))
    damaged[HEADER_SIZE : HEADER_SIZE + 8] = b"\xff" * 8
    parts = [records(1), records(1, bytes(17_000_000)), bytes(damaged), records(1)]
    log = ScriptedLog({0: [_moved(part, offset) for part, offset in zip(parts, (0, 1, 2, 4), strict=True)]})
    async with client_of(log) as client:
        pieces = [
            piece
            async for piece in downloading.lines(
                client, "t", [Left(0, 0, 5)], Filter(), Formats(whole=True), read_committed=False
            )
        ]
    rows = [json.loads(line) for line in b"".join(pieces).splitlines()]
    assert [row.get("offset") for row in rows] == [0, None, None, 4]
    assert rows[1] == {
        "partition": 0,
        "fault": {"from_offset": 1, "to_offset": 1, "message": "a record batch of more than 16777216 bytes"},
    }
    fault = rows[2]["fault"]
    assert (fault["from_offset"], fault["to_offset"]) == (2, 3)


def _moved(batch: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


async def test_a_quiet_tail_sends_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin_api.records.tailing.HEARTBEAT_S", 0.0)
    log = ScriptedLog({0: []})
    assert await _first_events(log, {0: 0}, 0, 3) == [b"retry: 2000\n\n", b":\n\n", b":\n\n"]


async def test_a_tail_outlives_a_gateway_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin_api.records.tailing._RETRY_S", 0.0)
    log = ScriptedLog({0: [records(1)]})
    log.errors = {0: 6}

    async def end(_partition: int) -> int:
        raise AssertionError

    async with client_of(log) as client:
        stream = Tail(client, "t", {0: 0}, end, None, Filter(), Formats(), read_committed=False).events()
        assert await anext(stream) == b"retry: 2000\n\n"
        message = "This server is not the leader for that topic-partition."
        told = f'event: waiting\ndata: {{"error_code":50003,"message":"{message}"}}\n\n'
        assert (await anext(stream)).decode() == told
        waiting: asyncio.Task[Any] = asyncio.ensure_future(anext(stream))
        while len(log.fetches) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        log.errors = {}
        piece = await waiting
        assert piece.startswith(b"event: resumed\ndata: {}\n\ndata: ")
        assert piece.endswith(b"id: 0:0\n\n")


async def test_a_tail_without_a_gateway_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin_api.records.tailing._RETRY_S", 0.0)
    monkeypatch.setattr("admin_api.records.tailing._PATIENCE_S", 0.0)
    log = ScriptedLog({0: [records(1)]})
    log.errors = {0: 6}
    _, piece = await _first_events(log, {0: 0}, 0, 2)
    message = "This server is not the leader for that topic-partition."
    assert piece.decode() == f'event: error\ndata: {{"error_code":50003,"message":"{message}"}}\n\n'
