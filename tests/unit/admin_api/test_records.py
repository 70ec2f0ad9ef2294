"""Records over HTTP: pages in every mode, one record, deletion, and the gateway in trouble."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from admin_api.kafka_clients import BROWSE, LARGE_RECORD
from admin_api.records import cursors
from admin_api.records.cursors import Left
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import OwnStorage, Stack

Place = tuple[int, int]


@pytest.fixture(scope="module")
def orders(stack: Stack) -> Iterator[str]:
    """A topic of two partitions: ten records in four batches, and three; their timestamps alternate."""
    stack.create_topic("orders", 2)
    codecs = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    for number, codec in enumerate(codecs):
        first = 2 * number
        records = [_order(first), _order(first + 1)]
        stack.append_batch("orders", 0, build_batch([_at(records[0], 0), _at(records[1], 1)], codec=codec))
    stack.append_batch("orders", 1, build_batch([Record(n, 1015 + 40 * n, None, b"text") for n in range(3)]))
    yield "/api/v1/topics/orders"
    stack.http.delete(f"{stack.cluster}/topics/orders")


def _order(number: int) -> Record:
    value = None if number == 3 else b'{"id":%d,"sku":"S-%d"}' % (number, number % 3)
    headers = (("source", b"web"),) if number % 2 else ()
    return Record(0, 1000 + 10 * number, b"key-%d" % number, value, headers)


def _at(record: Record, offset: int) -> Record:
    return Record(offset, record.timestamp, record.key, record.value, record.headers)


def places(answer: httpx.Response) -> list[Place]:
    assert answer.status_code == 200, answer.text
    return [(row["partition"], row["offset"]) for row in answer.json()["data"]]


#: Every record of `orders` by time.
BY_TIME = [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (0, 6), (0, 7), (0, 8), (0, 9), (1, 2)]


def test_a_page_in_full(stack: Stack, orders: str) -> None:
    answer = stack.http.get(
        f"{orders}/records", params={"partition": 0, "mode": "from_offset", "offset": 3, "limit": 1}
    )
    cursor = cursors.encode("orders", False, [Left(0, 4, 10)])
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["bytes"] > 61
    assert answer.json() == {
        "data": [
            {
                "partition": 0,
                "offset": 3,
                "timestamp": 1030,
                "key": "key-3",
                "key_format": "utf8",
                "key_size": 5,
                "key_truncated": False,
                "value": None,
                "value_format": None,
                "value_size": None,
                "value_truncated": False,
                "headers": [
                    {
                        "name": "source", "name_format": "utf8", "name_size": 6, "name_truncated": False,
                        "value": "web", "value_format": "utf8", "value_size": 3, "value_truncated": False,
                    }
                ],
                "headers_count": 1,
            }
        ],
        "scanned": 1, "bytes": answer.json()["bytes"], "remaining": 6,
        "truncated": False,
        "cursor": cursor,
        "faults": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, BY_TIME[::-1]),
        ({"mode": "newest", "limit": 4}, BY_TIME[:-5:-1]),
        ({"mode": "oldest"}, BY_TIME),
        ({"mode": "oldest", "partition": 1}, [(1, 0), (1, 1), (1, 2)]),
        ({"partition": 1, "limit": 1}, [(1, 2)]),
        (
            {"mode": "from_offset", "offset": 2},
            [(0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (0, 7), (0, 8), (0, 9), (1, 2)],
        ),
        ({"mode": "from_offset", "offset": 9}, [(0, 9)]),
        ({"mode": "from_offset", "offset": 99}, []),
        ({"mode": "to_offset", "offset": 2}, [(1, 1), (1, 0), (0, 1), (0, 0)]),
        ({"mode": "to_offset", "offset": 0}, []),
        ({"mode": "from_timestamp", "timestamp": 1070}, [(0, 7), (0, 8), (0, 9), (1, 2)]),
        ({"mode": "from_timestamp", "timestamp": 9999}, []),
        ({"mode": "to_timestamp", "timestamp": 1020}, [(1, 0), (0, 1), (0, 0)]),
        ({"mode": "to_timestamp", "timestamp": 9999}, BY_TIME[::-1]),
        ({"key": "key-7"}, [(0, 7)]),
        ({"q": "S-2"}, [(0, 8), (0, 5), (0, 2)]),
        ({"q": "web"}, [(0, 9), (0, 7), (0, 5), (0, 3), (0, 1)]),
        ({"where": "value.id >= 8"}, [(0, 9), (0, 8)]),
        ({"where": ["value.id >= 4", "value.sku = S-1", "partition = 0"]}, [(0, 7), (0, 4)]),
        ({"where": "value = null"}, [(0, 3)]),
        ({"isolation": "read_committed", "limit": 2}, [(1, 2), (0, 9)]),
    ],
)
def test_modes_and_filters(stack: Stack, orders: str, query: dict[str, Any], expected: list[Place]) -> None:
    assert places(stack.http.get(f"{orders}/records", params=query)) == expected


def test_a_header_with_a_name_of_bytes_hides_no_record(stack: Stack) -> None:
    stack.create_topic("odd-names")
    headers = ((), (("\udcff\udcfe", b"1"),), ())
    records = [Record(number, 1, None, b"v", each) for number, each in enumerate(headers)]
    stack.append_batch("odd-names", 0, build_batch(records))
    path = "/api/v1/topics/odd-names/records"
    page, one = stack.http.get(path), stack.http.get(f"{path}/0/1")
    assert (places(page), page.json()["faults"]) == ([(0, 2), (0, 1), (0, 0)], [])
    shown = {"name": "//4=", "name_format": "base64", "name_size": 2, "name_truncated": False}
    assert one.json()["headers"][0].items() >= shown.items()
    rows = [json.loads(line) for line in stack.http.get(f"{path}:download").text.splitlines()]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert rows[1]["headers"][0].items() >= shown.items()


def test_a_record_that_is_too_large_to_be_shown(stack: Stack) -> None:
    stack.create_topic("large", max_message_bytes="2000000")
    batch = build_batch([Record(0, 1, None, bytes(17_000_000))], codec=Codec.GZIP)
    for each in (batch, build_batch([Record(0, 1, None, b"v")])):
        stack.append_batch("large", 0, each)
    answer = stack.http.get("/api/v1/topics/large/records/0/0")
    message = "The record's batch is larger than 16777216 bytes; a Kafka client can read it."
    assert (answer.status_code, answer.json()) == (413, {"error_code": 413, "message": message})
    assert places(stack.http.get("/api/v1/topics/large/records")) == [(0, 1)]
    rows = [json.loads(line) for line in stack.http.get("/api/v1/topics/large/records:download").text.splitlines()]
    assert [sorted(row) for row in rows] == [["fault", "partition"], sorted(rows[1])]
    assert rows[1]["offset"] == 1


def test_readers_of_a_large_record_do_not_cut_each_other_off(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsent parts of the answers stay small; before, each whole answer counted."""
    monkeypatch.setattr(stack.connections, "_unsent_bytes_max", 1_000_000)
    stack.create_topic("readers")
    value = bytes(8_000_000)
    stack.append_batch("readers", 0, build_batch([Record(0, 1, None, value)], codec=Codec.GZIP))
    path = "/api/v1/topics/readers/records/0/0?value_format=hex"
    with contextlib.ExitStack() as opened:
        readers = [opened.enter_context(stack.http.stream("GET", path)) for _ in range(LARGE_RECORD.clients_max)]
        for reader in readers:
            assert json.loads(reader.read())["value"] == value.hex()
    until_ready(lambda: not stack.clients.borrowed(LARGE_RECORD))


@pytest.mark.parametrize("mode", ["newest", "oldest"])
@pytest.mark.parametrize("limit", [1, 5])
def test_a_cursor_leads_through_the_topic(stack: Stack, orders: str, mode: str, limit: int) -> None:
    query: dict[str, Any] = {"mode": mode, "limit": limit}
    seen: list[Place] = []
    while query:
        answer = stack.http.get(f"{orders}/records", params=query)
        seen += places(answer)
        cursor = answer.json()["cursor"]
        query = {"cursor": cursor, "limit": limit} if cursor else {}
    assert seen == (BY_TIME if mode == "oldest" else BY_TIME[::-1])


FORGED = [
    "",
    "x",
    "AAAA",
    cursors.encode("others", False, [Left(0, 4, 10)]),
    cursors.encode("orders", False, [Left(0, -4, 10)]),
    cursors.encode("orders", False, [Left(0, 4, 2**63)]),
    cursors.encode("orders", False, [Left(0, 4, 10), Left(0, 4, 10)]),
    cursors.encode("orders", False, [("0", 4, 10)]),  # type: ignore[list-item]
    cursors.encode("orders", False, [(0, 4)]),  # type: ignore[list-item]
    cursors.encode("orders", 7, []) + "=",  # type: ignore[arg-type]
]


@pytest.mark.parametrize("cursor", FORGED)
def test_other_texts_are_no_cursor(stack: Stack, orders: str, cursor: str) -> None:
    answer = stack.http.get(f"{orders}/records", params={"cursor": cursor})
    assert (answer.status_code, answer.json()) == (
        400, {"error_code": 400, "message": "cursor is not one that a browse of this topic gave out."},
    )  # fmt: skip


def test_a_cursor_beyond_the_topic_shows_nothing(stack: Stack, orders: str) -> None:
    cursor = cursors.encode("orders", False, [Left(0, 50, 100), Left(9, 0, 10)])
    assert places(stack.http.get(f"{orders}/records", params={"cursor": cursor})) == []


def test_a_cursor_that_unpacks_to_gigabytes_costs_little(stack: Stack, orders: str) -> None:
    cursor = cursors.encode("orders", False, [Left(0, 0, 10)] * 60_000)
    assert len(cursor) < cursors.CURSOR_LENGTH_MAX
    assert stack.http.get(f"{orders}/records", params={"cursor": cursor}).status_code == 400


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("orders/records?partition=2", (404, 40402)),
        ("orders/records?mode=from_offset", (400, 400)),
        ("orders/records?mode=newest&offset=1", (400, 400)),
        ("orders/records?mode=to_timestamp&offset=1", (400, 400)),
        ("orders/records?where=value.a", (400, 400)),
    ],
)
def test_refusals(stack: Stack, orders: str, path: str, expected: tuple[int, int]) -> None:
    answer = stack.http.get(f"/api/v1/topics/{path}")
    assert (answer.status_code, answer.json()["error_code"]) == expected
    assert sorted(answer.json()) == ["error_code", "message"]


def test_one_record(stack: Stack, orders: str) -> None:
    row = stack.http.get(f"{orders}/records/0/8", params={"value_format": "hex"}).json()
    assert (row["partition"], row["offset"], row["key"], row["value_format"]) == (0, 8, "key-8", "hex")
    assert bytes.fromhex(row["value"]) == b'{"id":8,"sku":"S-2"}'


def test_one_record_of_a_gap(stack: Stack) -> None:
    stack.create_topic("gaps")
    stack.append_batch("gaps", 0, build_batch([Record(0, 1, None, b"a" * 100_000), Record(1, 1, None, b"b")]))
    assert stack.http.get("/api/v1/topics/gaps/records/0/0").json()["value"] == "a" * 100_000
    (cut, _) = stack.http.get("/api/v1/topics/gaps/records?mode=oldest").json()["data"]
    assert (len(cut["value"]), cut["value_size"], cut["value_truncated"]) == (65_536, 100_000, True)


def test_records_before_an_offset_are_deleted(stack: Stack) -> None:
    stack.create_topic("shrinking", 2)
    stack.append("shrinking", 0, 10)
    stack.append("shrinking", 1, 5)
    path = "/api/v1/topics/shrinking/records"

    def deleted(body: dict[str, Any]) -> Any:
        return stack.http.request("DELETE", path, json=body).json()

    first = {"partition": 0, "log_start_offset_before": 0, "log_start_offset_after": 4, "deleted": 4}
    second = {"partition": 1, "log_start_offset_before": 0, "log_start_offset_after": 5, "deleted": 5}
    expected = {"topic_name": "shrinking", "dry_run": True, "data": [first, second]}
    assert deleted({"before": {"0": 4, "1": -1}, "dry_run": True}) == expected
    assert len(places(stack.http.get(path))) == 15
    assert deleted({"before": {"0": 4, "1": -1}}) == {**expected, "dry_run": False}
    assert places(stack.http.get(path, params={"mode": "oldest"})) == [(0, offset) for offset in range(4, 10)]
    again = {"partition": 0, "log_start_offset_before": 4, "log_start_offset_after": 4, "deleted": 0}
    assert deleted({"before": {"0": 2}})["data"] == [again]
    assert deleted({"before": {"0": 9, "1": 6}}) == {
        "error_code": 40002, "message": "Partition 1 ends at offset 5, before 6.",
    }  # fmt: skip
    assert len(places(stack.http.get(path))) == 6


def test_a_topic_is_truncated(stack: Stack) -> None:
    stack.create_topic("emptied", 2)
    stack.append("emptied", 0, 3)
    path = "/api/v1/topics/emptied/records"
    rows = [
        {"partition": 0, "log_start_offset_before": 0, "log_start_offset_after": 3, "deleted": 3},
        {"partition": 1, "log_start_offset_before": 0, "log_start_offset_after": 0, "deleted": 0},
    ]
    for dry_run in (True, False):
        answer = stack.http.post(f"{path}:truncate", json={"dry_run": dry_run})
        assert answer.json() == {"topic_name": "emptied", "dry_run": dry_run, "data": rows}
        assert len(places(stack.http.get(path))) == (3 if dry_run else 0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"before": {}}, 400),
        ({"before": {"x": 1}}, 400),
        ({"before": {"-1": 1}}, 400),
        ({"before": {"0": -2}}, 400),
        ({"before": {"0": "1"}}, 400),
        ({"before": {str(number): 1 for number in range(17)}}, 400),
        ({"before": {"7": 1}}, 404),
        ({"before": {"9999999999": 1}}, 404),
    ],
)
def test_deletions_that_are_refused(stack: Stack, orders: str, body: Any, status: int) -> None:
    answer = stack.http.request("DELETE", f"{orders}/records", json=body)
    assert answer.status_code == status
    assert places(stack.http.get(f"{orders}/records", params={"limit": 1, "mode": "oldest"})) == [(0, 0)]


def test_browsing_joins_no_group_and_creates_no_topic(stack: Stack, orders: str) -> None:
    before = stack.get("/consumer-groups")["data"]
    stack.http.get(f"{orders}/records")
    stack.http.get("/api/v1/topics/never-created/records")
    assert stack.get("/consumer-groups")["data"] == before
    assert stack.http.get(f"{stack.cluster}/topics/never-created").status_code == 404


def test_a_gateway_that_is_away(own_storage: OwnStorage, admin: Callable[..., httpx.Client]) -> None:
    client = admin(own_storage.address, admin_gateways="127.0.0.1:1", admin_gateway_timeout_s=60)
    cluster = client.get("/v3/clusters").json()["data"][0]["cluster_id"]
    client.post(f"/v3/clusters/{cluster}/topics", json={"topic_name": "t"})
    assert client.get("/api/v1/topics/t/records").json()["data"] == []  # nothing to ask a gateway for
    own_storage.append("t", 1)
    for path in ("records", "records/0/0", "records:download", "tail"):
        answer = client.get(f"/api/v1/topics/t/{path}")
        assert (answer.status_code, answer.json()) == (
            503, {"error_code": 50302, "message": "The gateway cannot be reached."},
        )  # fmt: skip


def test_many_browses_at_once(stack: Stack, orders: str) -> None:
    """Each is answered: with its page, or with 503 and the time to wait."""

    async def ask() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=stack.base_url, timeout=60, limits=limits) as client:
            return await asyncio.gather(*(client.get(f"{orders}/records") for _ in range(100)))

    for _ in range(5):
        answers = asyncio.run(ask())
        if sum(answer.status_code == 200 for answer in answers) > BROWSE.clients_max:
            break
        # The machine stood still for as long as a request may wait for its place: that shows nothing.
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert sum(answer.status_code == 200 for answer in answers) > BROWSE.clients_max
    for answer in answers:
        if answer.status_code == 503:
            assert (answer.headers["retry-after"], answer.json()["error_code"]) == ("1", 50003)
        else:
            assert places(answer) == BY_TIME[::-1]


def test_a_topic_of_more_partitions_than_a_browse_reads(stack: Stack) -> None:
    stack.create_topic("wide", 300)
    assert places(stack.http.get("/api/v1/topics/wide/records")) == []
    stack.append("wide", 299, 2)
    assert places(stack.http.get("/api/v1/topics/wide/records")) == [(299, 1), (299, 0)]
