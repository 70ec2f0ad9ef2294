"""Health with reasons, topics with their sizes, segments and ranges of metrics: exact values at real sockets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from admin_api import samples as samples_module
from admin_api.app import create_app
from admin_api.kafka_clients import KafkaClients
from admin_api.routers import health
from admin_api.routers import insight as insight_router
from admin_api.routers import scrub as scrub_router
from admin_api.rules import RULES
from admin_api.samples import SAMPLES, Sample, Samples
from admin_api.settings import AdminSettings
from admin_api.storage import Storage
from broker_contract import administration_pb2
from broker_contract.version import CONTRACT_VERSION
from service_chassis import address
from service_chassis.http.connections import Connections
from service_chassis.http.server import serving
from service_chassis.listeners import listen
from service_chassis.version import VERSION
from storage_svc.app import Storage as StorageCore
from storage_svc.rpc.samples import Samples as TakenSamples

if TYPE_CHECKING:
    from support.loop_thread import LoopThread

    from tests.unit.admin_api.conftest import OwnStorage, Stack


class Insight:
    """An admin-api whose samples come on request, at the times of a played clock."""

    def __init__(self, loop: LoopThread, client: httpx.Client, samples: Samples, core: StorageCore) -> None:
        self._loop = loop
        self.http = client
        self._samples = samples
        self.now = 1_700_000_000.0
        samples._clock = lambda: self.now
        # Samples are taken on request alone, and by nobody before.
        self.taken = TakenSamples(core.logs, core.coordinator, lambda: int(self.now * 1000), lambda: self.now)
        loop.run(core.administration.samples.stop())
        core.administration.samples = self.taken

    def sample(self) -> None:
        self._loop.run(self.taken.take())
        self._loop.run(self._samples.take())

    def get(self, path: str, **query: str | int | bool) -> Any:
        answer = self.http.get(path, params=query or None)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def insight(loop: LoopThread, stack: Stack) -> Iterator[Insight]:
    opened = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def running() -> AsyncIterator[tuple[str, Samples]]:
        settings = AdminSettings(storage_address=stack.storage_address, admin_rate_limit=0)
        storage, clients = Storage(settings.storage_address, timeout_s=60), KafkaClients((), timeout_s=1)
        sockets = listen(address.parse("127.0.0.1:0"))
        app = create_app(settings, storage, clients)
        async with serving(app, sockets, Connections(RULES), stop_deadline_s=2):
            yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}", app.state.samples
        await clients.close()
        await storage.close()

    base_url, samples = loop.run(opened.enter_async_context(running()))
    with httpx.Client(base_url=base_url, timeout=20) as client:
        yield Insight(loop, client, samples, stack.core)
    loop.run(opened.aclose())


def names(answer: Any) -> list[str]:
    return [row["topic_name"] for row in answer["data"]]


def test_topics_with_their_numbers(stack: Stack, insight: Insight) -> None:
    for name, partitions, records in (("seen-a", 2, 6), ("Seen-b", 1, 3), ("seen-c", 3, 0)):
        stack.create_topic(name, partitions)
        if records:
            stack.append(name, 0, records)
    stack.commit("seers", {("seen-a", 0): 2, ("Seen-b", 0): 3})
    stack.commit("others", {("seen-a", 1): 0})
    insight.sample()
    insight.now += 30
    stack.append("seen-a", 1, 3)
    answer = insight.get("/api/v1/topics", q="SEEN-")
    assert answer["next"] is None
    sizes = {row["topic_name"]: row.pop("bytes") for row in answer["data"]}
    common = {"is_internal": False, "offline_partitions_count": 0, "cleanup_policy": "delete"}
    assert [row.pop("max_lag") for row in answer["data"]] == [0, 4, None]
    assert answer["data"] == [
        {"topic_name": "Seen-b", "partitions_count": 1, "records": 3, "records_in_per_s": 0.0, "consumer_groups": 1}
        | common,
        {"topic_name": "seen-a", "partitions_count": 2, "records": 9, "records_in_per_s": 0.1, "consumer_groups": 2}
        | common,
        {"topic_name": "seen-c", "partitions_count": 3, "records": 0, "records_in_per_s": 0.0, "consumer_groups": 0}
        | common,
    ]
    by_rate = insight.get("/api/v1/topics", q="seen-", sort="records_in_per_s")
    assert names(by_rate) == ["seen-a", "Seen-b", "seen-c"]
    folder = insight.get("/api/v1/storage/segments", topic="Seen-b")["data"][0]["folder"]
    assert sizes["Seen-b"] == (Path(folder) / f"{0:020}.log").stat().st_size
    assert sizes["seen-c"] == 0


def test_the_partitions_of_a_topic(stack: Stack, insight: Insight) -> None:
    stack.create_topic("parts", 2)
    stack.append("parts", 1, 5)
    stack.http.request("DELETE", "/api/v1/topics/parts/records", json={"before": {"1": 2}})
    answer = insight.get("/api/v1/topics/parts/partitions")
    sizes = [row.pop("bytes") for row in answer["data"]]
    assert (sizes[0], sizes[1] > 0, answer["next"]) == (0, True, None)
    common = {"is_offline": False}
    assert answer["data"] == [
        {"partition_id": 0, "log_start_offset": 0, "log_end_offset": 0, "last_stable_offset": 0, "records": 0} | common,
        {"partition_id": 1, "log_start_offset": 2, "log_end_offset": 5, "last_stable_offset": 5, "records": 3} | common,
    ]
    assert len(insight.get("/api/v1/topics/parts/partitions", page_size=1)["data"]) == 1


def test_groups_with_their_lags(stack: Stack, insight: Insight) -> None:
    stack.create_topic("followed", 1)
    stack.create_topic("followed-too", 1)
    stack.append("followed", 0, 10)
    stack.append("followed-too", 0, 3)
    stack.commit("follow a/ü", {("followed", 0): 1, ("followed-too", 0): 3})
    stack.commit("follow b", {("followed", 0): 9})
    insight.sample()
    stack.append("followed", 0, 2)
    answer = insight.get("/api/v1/consumer-groups", q="FOLLOW ", sort="lag")
    common = {"state": "EMPTY", "type": "CLASSIC", "members_count": 0}
    assert answer["data"] == [
        {"consumer_group_id": "follow a/ü", "topics_count": 2, "lag": 11, "lag_before": 9, "lag_seconds": 0.0} | common,
        {"consumer_group_id": "follow b", "topics_count": 1, "lag": 3, "lag_before": 1, "lag_seconds": 0.0} | common,
    ]
    of_topic = insight.get("/api/v1/consumer-groups", topic="followed-too")["data"]
    assert [(row["consumer_group_id"], row["lag"]) for row in of_topic] == [("follow a/ü", 0)]
    page = insight.get("/api/v1/consumer-groups", q="follow ", sort="lag", page_size=1)
    assert [row["consumer_group_id"] for row in insight.get(page["next"])["data"]] == ["follow b"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("name", ["sort-a", "sort-b", "sort-c"]),
        ("partitions", ["sort-c", "sort-b", "sort-a"]),
        ("records", ["sort-b", "sort-a", "sort-c"]),
        ("bytes", ["sort-b", "sort-a", "sort-c"]),
        ("consumer_groups", ["sort-a", "sort-b", "sort-c"]),
        ("records_in_per_s", ["sort-a", "sort-b", "sort-c"]),
    ],
)
def test_orders_and_pages(stack: Stack, insight: Insight, sort: str, expected: list[str]) -> None:
    if stack.http.get(f"{stack.cluster}/topics/sort-a").status_code == 404:
        for name, partitions, records in (("sort-a", 1, 2), ("sort-b", 2, 5), ("sort-c", 3, 1)):
            stack.create_topic(name, partitions)
            stack.append(name, 0, records)
        stack.commit("sorters", {("sort-a", 0): 0})
    assert names(insight.get("/api/v1/topics", q="sort-", sort=sort)) == expected
    first = insight.get("/api/v1/topics", q="sort-", sort=sort, page_size=2)
    assert names(first) == expected[:2]
    second = insight.get(first["next"])
    assert (names(second), second["next"]) == (expected[2:], None)


def test_a_long_list_is_a_page(stack: Stack, insight: Insight, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight_router, "ROWS_MAX", 2)
    for name in ("long-a", "long-b", "long-c"):
        stack.create_topic(name)
    first = insight.get("/api/v1/topics", q="long-")
    assert names(first) == ["long-a", "long-b"]
    assert names(insight.get(first["next"])) == ["long-c"]


def test_internal_topics_are_listed_on_request(stack: Stack, insight: Insight) -> None:
    stack.create_topic("visible")
    stack.commit("internal-maker", {("visible", 0): 0})
    assert "__consumer_offsets" not in names(insight.get("/api/v1/topics"))
    row = insight.get("/api/v1/topics", q="__consumer", include_internal=True)["data"][0]
    assert (row["topic_name"], row["is_internal"], row["partitions_count"]) == ("__consumer_offsets", True, 3)


def test_ranges_of_metrics(stack: Stack, insight: Insight) -> None:
    stack.create_topic("ranged", 2)
    stack.append("ranged", 0, 4)
    stack.commit("rangers", {("ranged", 0): 1})
    insight.sample()
    insight.now += 15
    stack.append("ranged", 1, 30)
    insight.sample()
    at, later = 1_700_000_000_000, 1_700_000_015_000
    answer = insight.get("/api/v1/metrics/range", metric="records", topic="ranged")
    assert answer == {
        "metric": "records",
        "topic": "ranged",
        "group": None,
        "interval_ms": 15_000,
        "points": [{"at": at, "value": 4.0}, {"at": later, "value": 34.0}],
    }
    rates = insight.get("/api/v1/metrics/range", metric="records_in_per_s", topic="ranged")["points"]
    assert rates == [{"at": later, "value": 2.0}]
    lags = insight.get("/api/v1/metrics/range", metric="lag", group="rangers")["points"]
    assert lags == [{"at": at, "value": 3.0}, {"at": later, "value": 3.0}]
    all_rates = insight.get("/api/v1/metrics/range", metric="records_in_per_s")["points"]
    assert all_rates == [{"at": later, "value": 2.0}]
    total = insight.get("/api/v1/metrics/range", metric="bytes")["points"]
    assert total[1]["value"] > total[0]["value"] > 0
    for name, error_code in (
        ({"metric": "bytes", "topic": "absent"}, 40403),
        ({"metric": "lag", "group": "absent"}, 40405),
    ):
        answer = insight.http.get("/api/v1/metrics/range", params=name)
        assert (answer.status_code, answer.json()["error_code"]) == (404, error_code)
    stack.create_topic("ranged-later")
    points = insight.get("/api/v1/metrics/range", metric="bytes", topic="ranged-later")["points"]
    assert points == [{"at": at, "value": None}, {"at": later, "value": None}]
    for query in ({"metric": "lag", "topic": "ranged"}, {"metric": "bytes", "group": "rangers"}):
        answer = insight.http.get("/api/v1/metrics/range", params=query)
        assert (answer.status_code, answer.json()["error_code"]) == (400, 400)


def test_lag_in_time(stack: Stack, insight: Insight) -> None:
    stack.create_topic("aged", 2)
    stack.append("aged", 0, 10)
    stack.commit("agers", {("aged", 0): 10, ("aged", 1): 0})
    insight.sample()
    insight.now += 15
    stack.append("aged", 0, 10)
    insight.sample()
    insight.now += 15
    stack.commit("agers", {("aged", 0): 15})
    offsets = insight.get("/api/v1/consumer-groups/agers/offsets")["data"]
    # The record of offset 15 became readable in the middle between two samples.
    assert [(row["partition_id"], row["lag"], row["lag_seconds"]) for row in offsets] == [(0, 5, 22.5), (1, 0, 0.0)]
    (summary,) = insight.get("/api/v1/consumer-groups", q="agers")["data"]
    assert summary["lag_seconds"] == 15.0, "of the last sample"
    insight.sample()
    points = insight.get("/api/v1/metrics/range", metric="lag_seconds", group="agers")["points"]
    assert [point["value"] for point in points] == [0.0, 15.0, 22.5]
    of_all = insight.get("/api/v1/metrics/range", metric="lag_seconds")["points"]
    assert of_all[-1]["value"] >= 22.5
    answer = insight.http.get("/api/v1/metrics/range", params={"metric": "lag_seconds", "topic": "aged"})
    assert answer.status_code == 400


def test_the_lag_of_all_groups_in_time_is_the_longest() -> None:
    samples = Samples(Storage.__new__(Storage))
    group = administration_pb2.SampleRows.Group
    rows = administration_pb2.SampleRows(groups=[group(group_id="a", lag_ms=5), group(group_id="b", lag_ms=7)])
    samples.add(Sample(at_ms=1000, usable_bytes=-1), rows)
    assert list(samples.range("lag_ms", None)) == [(1.0, 7)]
    assert (samples.newest("lag_ms", "a"), samples.newest("lag_ms", "c")) == (5, None)


def test_bytes_that_gateways_sent(stack: Stack, insight: Insight) -> None:
    stack.create_topic("sent")
    for size in (0, 300, 0):
        insight.taken.add_sent({"sent": size, "absent": 1000})
        insight.sample()
        insight.now += 15
    for query in ({}, {"topic": "sent"}):
        points = insight.get("/api/v1/metrics/range", metric="bytes_out_per_s", **query)["points"]
        assert [point["value"] for point in points] == [20.0, 0.0]


def test_the_scrub_and_its_quarantine(stack: Stack, insight: Insight, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.create_topic("scrubbed", 2)
    scrubber = stack.core.maintenance.scrubber
    monkeypatch.setattr(scrubber, "last_ms", 0)
    monkeypatch.setattr(scrubber, "next_ms", 1_700_000_000_000)
    nothing = {
        "last_at": None,
        "next_at": 1_700_000_000_000,
        "damaged_segments": 0,
        "unreadable_batches": 0,
        "quarantine": [],
        "is_truncated": False,
    }
    assert insight.get("/api/v1/storage/scrub") == nothing
    folder = Path(stack.core.logs.logs["scrubbed", 1].folder) / "quarantine"
    folder.mkdir()
    for name, size in (("b", 3), ("a", 7), ("c.tmp", 1)):
        (folder / name).write_bytes(b"x" * size)
        os.utime(folder / name, ns=(0, 5_000_000))
    rows = [
        {"topic_name": "scrubbed", "partition_id": 1, "path": f"{folder}/{name}", "bytes": size, "modified_at": 5}
        for name, size in (("a", 7), ("b", 3))
    ]
    monkeypatch.setattr(scrubber, "last_ms", 77)
    assert insight.get("/api/v1/storage/scrub") == {**nothing, "last_at": 77, "quarantine": rows}
    monkeypatch.setattr(scrub_router, "FILES_MAX", 1)
    assert insight.get("/api/v1/storage/scrub") == {
        **nothing, "last_at": 77, "quarantine": rows[:1], "is_truncated": True,
    }  # fmt: skip


def _add(samples: Samples, at: float, **end_offsets: int) -> None:
    rows = administration_pb2.SampleRows(
        topics=[
            administration_pb2.SampleRows.Topic(name=name, end_offsets=end, records=end, bytes=end * 10)
            for name, end in end_offsets.items()
        ],
        groups=[administration_pb2.SampleRows.Group(group_id="group", lag=7)],
    )
    samples.add(Sample(at_ms=int(at * 1000), usable_bytes=-1), rows)


def test_the_ring_forgets_the_oldest_sample_and_series_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    samples = Samples(Storage.__new__(Storage), lambda: now)
    _add(samples, now, gone=1, kept=1)
    for number in range(SAMPLES):
        now += 15
        _add(samples, now, kept=number)
    values = [value for _, value in samples.range("records", "kept")]
    assert values == [float(number) for number in range(SAMPLES)]
    assert {name for _, name in samples._series} == {"kept", "group"}
    monkeypatch.setattr(samples_module, "SERIES_MAX", 5)
    now += 15
    _add(samples, now, kept=1, another=2)
    assert {name for _, name in samples._series} == {"kept", "group"}
    _add(samples, now - 1, kept=9)  # storage's clock was set back
    assert list(samples.range("records", "kept"))[-1] == (now, 1)
    now += 1
    assert samples.rate("kept", 31) == pytest.approx(0.0)


def test_the_rate_of_a_topic_that_was_made_again_is_not_negative() -> None:
    now = 1000.0
    samples = Samples(Storage.__new__(Storage), lambda: now)
    assert samples.rate("again", 5) is None
    _add(samples, now, again=100)
    assert samples.rate("again", 100) is None
    now += 30
    _add(samples, now, again=3)
    assert samples.rate("again", 4) == 0
    assert list(samples.rates("end_offsets", "again")) == [(1030.0, 0.0)]


def test_the_time_until_the_volume_is_full() -> None:
    samples, rows = Samples(Storage.__new__(Storage)), administration_pb2.SampleRows()
    for at_ms, usable in ((1_000_000, 5000), (1_030_000, 4900), (1_060_000, 4400)):
        assert samples.full_in_s(usable) is None
        samples.add(Sample(at_ms=at_ms, total_bytes=9000, usable_bytes=usable), rows)
    assert samples.full_in_s(4400) == pytest.approx(4400 / (600 / 60))
    samples.add(Sample(at_ms=1_075_000, total_bytes=9000, usable_bytes=5000), rows)
    assert samples.full_in_s(5000) is None, "it does not fill"


def test_two_servers_have_the_same_samples(stack: Stack, insight: Insight, loop: LoopThread) -> None:
    stack.create_topic("charted")
    for _ in range(6):
        insight.sample()
        stack.append("charted", 0, 3)
        insight.now += 15
    expected = insight.get("/api/v1/metrics/range", metric="records", topic="charted")["points"]
    assert [point["value"] for point in expected] == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]

    async def read() -> list[tuple[float, float | None]]:
        storage = Storage(stack.storage_address, timeout_s=60)
        other = Samples(storage)
        await other.take()
        await storage.close()
        return list(other.range("records", "charted"))

    assert loop.run(read()) == [(point["at"] / 1000, point["value"]) for point in expected]
    rates = insight.get("/api/v1/metrics/range", metric="bytes_in_per_s", topic="charted")["points"]
    assert len(rates) == 5
    assert min(point["value"] for point in rates) > 0
    disk = insight.get("/api/v1/metrics/range", metric="disk_used_bytes")["points"]
    assert min(point["value"] for point in disk) > 0


def test_segments_in_pages(stack: Stack, insight: Insight) -> None:
    body = {"topic_name": "rolled", "partitions_count": 2, "configs": [{"name": "segment.bytes", "value": "1048576"}]}
    assert stack.http.post(f"{stack.cluster}/topics", json=body).status_code == 201
    for _ in range(3):
        stack.append("rolled", 1, 40_000)
    answer = insight.get("/api/v1/storage/segments", topic="rolled")
    rows = answer["data"]
    assert answer["next"] is None
    assert [(row["topic_name"], row["partition_id"], row["base_offset"]) for row in rows] == [
        ("rolled", 0, 0),
        ("rolled", 1, 0),
        ("rolled", 1, 40_000),
        ("rolled", 1, 80_000),
    ]
    assert [row["is_active"] for row in rows] == [True, False, False, True]
    assert [row["index_health"] for row in rows] == ["growing", "ok", "ok", "growing"]
    assert [row["max_timestamp"] for row in rows] == [None, *[1_700_000_000_000] * 3]
    for row in rows:
        stem = Path(row["folder"]) / f"{row['base_offset']:020}"
        assert row["bytes"] == stem.with_suffix(".log").stat().st_size
        if not row["is_active"]:
            assert row["offset_index_bytes"] == stem.with_suffix(".index").stat().st_size
            assert row["time_index_bytes"] == stem.with_suffix(".timeindex").stat().st_size > 0
    paged, path = [], "/api/v1/storage/segments?topic=rolled&page_size=3"
    while path:
        page = insight.get(path)
        assert len(page["data"]) <= 3
        paged += page["data"]
        path = page["next"]
    assert paged == rows
    everything = insight.get("/api/v1/storage/segments")["data"]
    assert [row for row in everything if row["topic_name"] == "rolled"] == rows
    assert insight.http.get("/api/v1/storage/segments", params={"topic": "absent"}).status_code == 404


@pytest.mark.parametrize(
    ("suffix", "content", "health_seen"),
    [
        (".index", None, "missing"),
        (".timeindex", None, "missing"),
        (".index", b"\0" * 7, "damaged"),
        (".index", b"\0\0\0\x01\x7f\0\0\0", "damaged"),
        (".timeindex", b"\x7f" * 12, "damaged"),
        (".index", b"", "ok"),
    ],
)
def test_indexes_that_cannot_be_right(
    stack: Stack, insight: Insight, suffix: str, content: bytes | None, health_seen: str
) -> None:
    if stack.http.get(f"{stack.cluster}/topics/harmed").status_code == 404:
        body = {"topic_name": "harmed", "partitions_count": 1}
        body |= {"configs": [{"name": "segment.bytes", "value": "1048576"}]}
        assert stack.http.post(f"{stack.cluster}/topics", json=body).status_code == 201
        for _ in range(2):
            stack.append("harmed", 0, 40_000)
    first = insight.get("/api/v1/storage/segments", topic="harmed")["data"][0]
    file = Path(first["folder"]) / f"{0:020}{suffix}"
    before = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    try:
        rows = insight.get("/api/v1/storage/segments", topic="harmed")["data"]
    finally:
        file.write_bytes(before)
    assert [row["index_health"] for row in rows] == [health_seen, "growing"]


def test_the_walk_of_segments_ends_with_its_page(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume may have a million segments."""
    stack.create_topic("walked", 5)
    service = stack.core.administration
    walked = []
    segments = service._segments

    def counted(*arguments: Any) -> Iterator[Any]:
        for each in segments(*arguments):
            walked.append(each)
            yield each

    monkeypatch.setattr(service, "_segments", counted)
    request = administration_pb2.DescribeSegmentsRequest(topic="walked", limit=2)
    answer = stack.loop.run(service.describe_segments(request))
    assert ([each.partition for each in answer.segments], answer.has_more) == ([0, 1], True)
    assert len(walked) == 3


@pytest.mark.parametrize("token", ["WzFd", "WyJhIl0", "WyJhIiwxLCJiIl0", "W10"])
def test_a_token_of_another_list(insight: Insight, token: str) -> None:
    answer = insight.http.get("/api/v1/storage/segments", params={"page_token": token})
    assert answer.json() == {"error_code": 400, "message": "page_token is not one that this list gave out."}


def test_the_version(insight: Insight) -> None:
    assert insight.get("/version") == {"version": VERSION, "contract_version": CONTRACT_VERSION}


def test_a_healthy_cluster(stack: Stack, insight: Insight, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "DISK_FREE_MIN", 0.0)
    stack.register_gateway("healthy", ("EXTERNAL", "localhost", 9092))
    try:
        answer = insight.get("/api/v1/health")
    finally:
        stack.remove_gateway("healthy")
    disk = answer.pop("disk")
    gateways = answer["services"][1].pop("detail")
    assert answer == {
        "is_healthy": True,
        "reasons": [],
        "services": [
            {"name": "storage-svc", "is_up": True, "detail": "answers"},
            {"name": "gateway-svc", "is_up": True},
            {"name": "admin-api", "is_up": True, "detail": "answers"},
        ],
        "offline_partitions_count": 0,
        "offline_partitions": [],
    }
    assert "healthy" in gateways
    assert disk["total_bytes"] >= disk["usable_bytes"] > 0


def test_reasons(
    loop: LoopThread, own_storage: OwnStorage, admin: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "DISK_FREE_MIN", 1.1)
    client = admin(own_storage.address)
    cluster = client.get("/v3/clusters").json()["data"][0]["cluster_id"]
    assert client.post(f"/v3/clusters/{cluster}/topics", json={"topic_name": "lost"}).status_code == 201
    log = own_storage.core.log_service._directory.logs["lost", 1]

    async def fail() -> None:
        log.take_offline("a fault of this test")

    loop.run(fail())
    answer = client.get("/api/v1/health").json()
    disk = answer["disk"]
    percent = 100 * disk["usable_bytes"] / disk["total_bytes"]
    assert answer["is_healthy"] is False
    assert answer["reasons"] == [
        {"service": "storage-svc", "message": f"The volume of {disk['path']} has {percent:.1f} % of its space left."},
        {"service": "storage-svc", "message": "1 partitions are offline, lost-1 first."},
        {"service": "gateway-svc", "message": "No gateway has a lease."},
    ]
    assert answer["offline_partitions"] == [{"topic_name": "lost", "partition_id": 1}]
    own_storage.stop()
    answer = client.get("/api/v1/health").json()
    own_storage.start()
    assert answer["reasons"] == [{"service": "storage-svc", "message": "Storage cannot be reached."}]
    assert [(each["name"], each["is_up"]) for each in answer["services"]] == [
        ("storage-svc", False),
        ("gateway-svc", False),
        ("admin-api", True),
    ]
    assert answer["disk"] is None
