"""/metrics: HTTP counters by route template, and kafka_exporter's names and labels with true values."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import httpx
import pytest
from admin_api import errors
from admin_api.exporter import CACHE_S, Exporter, Snapshot, collect, take_snapshot
from admin_api.storage import Storage as StorageClient
from admin_api.view import BrokerAddress
from broker_contract.leadership import partition_leaders
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def _series(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, frozenset(labels.items())))


def test_requests_are_counted_by_template(stack: Stack) -> None:
    def counts() -> tuple[float, float, float]:
        series = _series(stack.http.get("/metrics").text)
        route = "/v3/clusters/{cluster_id}/topics/{topic_name}"
        return (
            _value(series, "http_requests_total", method="GET", route=route, status="404") or 0,
            _value(series, "http_requests_total", method="GET", route="unmatched", status="404") or 0,
            _value(series, "http_request_duration_seconds_count", method="GET", route=route) or 0,
        )

    before = counts()
    for number in range(3):
        stack.http.get(f"{stack.cluster}/topics/counted-{number}")
        stack.http.get(f"/kafka{stack.cluster}/topics/counted-{number}")
        stack.http.get(f"/random/{number}")
    after = counts()
    assert [here - there for here, there in zip(after, before, strict=True)] == [6, 3, 6]


def test_raw_paths_and_methods_make_no_series(stack: Stack) -> None:
    stack.http.request("WHATEVER", "/secret-path-7")
    text = stack.http.get("/metrics").text
    assert "secret-path-7" not in text
    assert "WHATEVER" not in text
    assert 'method="other"' in text


def test_text_format_and_common_series(stack: Stack) -> None:
    answer = stack.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    series = _series(answer.text)
    assert _value(series, "millrace_build_info", service="admin-api", version="0.1.0") == 1
    assert _value(series, "millrace_storage_up") == 1
    assert _value(series, "millrace_exporter_truncated") == 0
    names = [line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))


def test_the_exporters_set(stack: Stack) -> None:
    broker_id = stack.register_gateway("exported", ("EXTERNAL", "localhost", 39092))
    try:
        stack.create_topic("exported", 2)
        stack.append("exported", 0, 10)
        stack.append("exported", 1, 4)
        stack.join("exported-group", "c", b"")
        stack.commit("exported-simple", {("exported", 0): 7})
        client = stack.loop.run(_connected(stack))
        stack.loop.run(stack.core.administration.samples.take())
        snapshot = stack.loop.run(take_snapshot(client.calls(1), ""))
        stack.loop.run(client.close())
    finally:
        stack.remove_gateway("exported")
    shown = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in collect(snapshot)
        for sample in family.samples
    }
    brokers = [broker.broker_id for broker in snapshot.brokers]
    assert _value(shown, "kafka_brokers") == len(brokers)
    assert _value(shown, "kafka_broker_info", id=str(broker_id), address="localhost:39092") == 1
    assert _value(shown, "kafka_topic_partitions", topic="exported") == 2
    for partition, end in (("0", 10), ("1", 4)):
        labels = {"topic": "exported", "partition": partition}
        assert _value(shown, "kafka_topic_partition_current_offset", **labels) == end
        assert _value(shown, "kafka_topic_partition_oldest_offset", **labels) == 0
        leader = partition_leaders(brokers, "exported", 2)[int(partition)]
        assert _value(shown, "kafka_topic_partition_leader", **labels) == leader
        assert _value(shown, "kafka_topic_partition_leader_is_preferred", **labels) == 1
        assert _value(shown, "kafka_topic_partition_replicas", **labels) == 1
        assert _value(shown, "kafka_topic_partition_in_sync_replica", **labels) == 1
        assert _value(shown, "kafka_topic_partition_under_replicated_partition", **labels) == 0
    commit = {"consumergroup": "exported-simple", "topic": "exported"}
    assert _value(shown, "kafka_consumergroup_current_offset", **commit, partition="0") == 7
    assert _value(shown, "kafka_consumergroup_lag", **commit, partition="0") == 3
    assert _value(shown, "kafka_consumergroup_lag", **commit, partition="1") is None
    assert _value(shown, "kafka_consumergroup_current_offset_sum", **commit) == 7
    assert _value(shown, "kafka_consumergroup_lag_sum", **commit) == 3
    age_s = _value(shown, "millrace_consumergroup_lag_seconds", **commit, partition="0")
    assert age_s is not None
    assert 0 <= age_s < 60
    assert _value(shown, "kafka_consumergroup_members", consumergroup="exported-simple") == 0
    assert _value(shown, "kafka_consumergroup_members", consumergroup="exported-group") == 1


def test_scrapes_within_the_cache_time_ask_storage_once(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scrape() -> list[int]:
        client = await _connected(stack)
        exporter = Exporter(client, "")
        counts = []
        for now in (1000.0, 1004.9, 1005.0):
            monkeypatch.setattr("admin_api.exporter.time", SimpleNamespace(monotonic=lambda now=now: now))
            await asyncio.to_thread(stack.create_topic, f"cached-{len(counts)}")
            texts = await asyncio.gather(*(exporter.text(1) for _ in range(3)))
            assert len(set(texts)) == 1
            counts.append(texts[0].count(b'kafka_topic_partitions{topic="cached-'))
        await client.close()
        return counts

    assert CACHE_S == 5
    assert asyncio.run(scrape()) == [1, 1, 3]


def test_sums_and_lags_of_a_snapshot() -> None:
    snapshot = Snapshot(
        brokers=(BrokerAddress(3, "kafka", 9092),),
        partition_counts={"t": 2},
        offsets={("t", 0): (5, 20), ("t", 1): (0, 8)},
        members={"g": 2},
        committed={("g", "t", 0): 12, ("g", "t", 1): 9, ("g", "gone", 0): 4},
    )
    shown = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in collect(snapshot)
        for sample in family.samples
    }
    assert _value(shown, "kafka_topic_partition_leader", topic="t", partition="0") == 3
    assert _value(shown, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition="0") == 8
    assert _value(shown, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition="1") == 0
    assert _value(shown, "kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 8
    assert _value(shown, "kafka_consumergroup_current_offset_sum", consumergroup="g", topic="t") == 21
    assert _value(shown, "kafka_consumergroup_current_offset", consumergroup="g", topic="gone", partition="0") == 4
    assert _value(shown, "kafka_consumergroup_lag", consumergroup="g", topic="gone", partition="0") is None
    assert len(shown) == 27


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline"])
def test_odd_group_ids_are_escaped(name: str) -> None:
    from admin_api.exporter import _rendered

    text = _rendered(Snapshot(members={name: 1})).decode()
    assert _value(_series(text), "kafka_consumergroup_members", consumergroup=name) == 1


async def _connected(stack: Stack) -> StorageClient:
    return StorageClient(stack.storage_address, timeout_s=60)


async def test_a_scrape_waits_a_moment_for_storage_and_then_gets_the_text_from_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[asyncio.Future[Snapshot]] = []

    async def take(_calls: object, _listener: str) -> Snapshot:
        made.append(asyncio.get_running_loop().create_future())
        return await made[-1]

    monkeypatch.setattr("admin_api.exporter.take_snapshot", take)
    client = StorageClient("unix:/nowhere", timeout_s=60)
    exporter = Exporter(client, "", cache_s=0, patience_s=0.01)

    def has_topic(text: bytes) -> bool:
        return b'kafka_topic_partitions{topic="late"} 2.0' in text

    for _ in range(3):
        assert b"\nmillrace_storage_up 0.0\n" in await exporter.text(1)
    assert len(made) == 1
    made[0].set_result(Snapshot(partition_counts={"late": 2}))
    making = exporter._making
    assert making is not None
    await making
    assert has_topic(await exporter.text(1))
    assert len(made) == 2
    made[1].set_exception(errors.internal_error())
    making = exporter._making
    assert making is not None
    await making
    text = await exporter.text(1)
    assert b"\nmillrace_storage_up 0.0\n" in text
    assert not has_topic(text)
    made[2].set_exception(ValueError("unforeseen"))
    await asyncio.sleep(0)
    assert b"\nmillrace_storage_up 0.0\n" in await exporter.text(1)
    await client.close()


def test_metrics_with_storage_that_hangs(admin: Callable[..., httpx.Client]) -> None:
    """The process's own metrics are there before the client gives up: storage has five minutes to answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        answer = admin(address, admin_storage_timeout_s=300).get("/metrics")
    assert answer.status_code == 200
    assert "\nmillrace_storage_up 0.0\n" in answer.text
    assert 'millrace_build_info{service="admin-api"' in answer.text
