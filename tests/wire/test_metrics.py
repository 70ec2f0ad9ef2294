"""Metrics of a broker that real clients use: each counts the right thing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from broker_contract import topics_pb2
from prometheus_client import CollectorRegistry
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason
from support.late import confluent

from tests.wire.conftest import Running, StartBroker, batch, fetch_request, produce, until

_FETCH = 1


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"millrace_{name}", labels)


async def test_a_parked_fetch_is_in_flight_and_its_wait_is_observed(broker: Running) -> None:
    storage, gateway = broker.core.registry, broker.gateway.registry
    wire = await broker.connect()
    await wire.call(_FETCH, 11, fetch_request("orders", 0))
    assert _value(storage, "fetch_wait_seconds_count") == 0  # it did not wait
    assert _value(gateway, "inflight_requests") == 0
    wire.send(_FETCH, 11, fetch_request("orders", 0, wait_ms=60_000))
    await until(lambda: _value(storage, "parked_reads") == 1)
    assert _value(gateway, "inflight_requests") == 1
    other = await broker.connect()
    assert await produce(other, "orders", batch(b"x"), acks=-1) == (0, 0)
    await wire.receive()
    assert _value(gateway, "inflight_requests") == 0
    assert _value(storage, "fetch_wait_seconds_count") == 1
    assert 0 <= (_value(storage, "fetch_wait_seconds_sum") or 0) < 60
    wire.send(_FETCH, 11, fetch_request("orders", 1, wait_ms=300))
    await wire.receive()
    assert _value(storage, "fetch_wait_seconds_bucket", le="0.25") == 1  # the first alone
    assert _value(storage, "fetch_wait_seconds_count") == 2
    await wire.close()
    await other.close()


@pytest.mark.parametrize("by_reference", [True, False])
async def test_bytes_read_by_their_source(start_broker: StartBroker, by_reference: bool) -> None:
    broker = await start_broker() if by_reference else await start_broker(gateway_data_dir="")
    wire = await broker.connect()
    records = batch(b"x" * 100)
    assert await produce(wire, "single", records, acks=-1) == (0, 0)
    await wire.call(_FETCH, 11, fetch_request("single", 0, wait_ms=1000))
    found = {
        source: _value(broker.core.registry, "read_bytes_total", source=source) for source in ("cache", "disk", "file")
    }
    expected = dict.fromkeys(found, 0) | {"file" if by_reference else "cache": len(records)}
    assert found == expected
    await wire.close()


async def test_appends_are_observed_one_by_one_and_syncs_by_their_reason(broker: Running) -> None:
    registry = broker.core.registry
    wire = await broker.connect()
    for _ in range(3):
        await produce(wire, "single", batch(b"x"), acks=-1)
    assert _value(registry, "append_duration_seconds_count") == 3
    syncs = _value(registry, "fsync_total", reason="produce")
    assert syncs == _value(registry, "fsync_duration_seconds_count")
    assert syncs is not None
    assert syncs >= 3
    assert _value(registry, "fsync_total", reason="flush") == 0
    assert _value(registry, "unflushed_bytes") == 0
    await wire.close()


async def test_bytes_that_nobody_waits_for_are_unflushed(start_broker: StartBroker) -> None:
    broker = await start_broker(flush_policy="os")
    wire = await broker.connect()
    records = batch(b"x")
    await produce(wire, "single", records, acks=-1)
    assert _value(broker.core.registry, "unflushed_bytes") == len(records)
    await wire.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_rebalances_by_reason_and_members(start_broker: StartBroker, protocol: str) -> None:
    broker = await start_broker(
        topics="orders:2",
        group_consumer_heartbeat_interval_ms=100,
        group_consumer_min_heartbeat_interval_ms=1,
        group_consumer_assignment_interval_ms=0,
    )
    await asyncio.to_thread(_rebalance, broker.core.registry, f"localhost:{broker.address[1]}", protocol)


def _rebalance(registry: CollectorRegistry, bootstrap: str, protocol: str) -> None:
    """Change a group's members and subscription, and look at the metrics after each change."""

    def shown() -> tuple[dict[str, float], float | None]:
        counts = {reason: _value(registry, "group_rebalances_total", reason=reason) or 0 for reason in RebalanceReason}
        return {reason: count for reason, count in counts.items() if count}, _value(registry, "group_members")

    settings = {"bootstrap.servers": bootstrap, "group.id": protocol, "group.protocol": protocol}
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = "50"
    first = confluent.Consumer(settings)
    first.subscribe(["orders"])
    _poll_until([first], lambda: len(first.assignment()) == 2)
    assert shown() == ({"member_joined": 1}, 1)
    second = confluent.Consumer(settings)
    second.subscribe(["orders"])
    _poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 1)
    expected = {"member_joined": 2}
    assert shown() == (expected, 2)
    second.close()
    _poll_until([first], lambda: len(first.assignment()) == 2)
    expected["member_left"] = 1
    assert shown() == (expected, 1)
    if protocol == "consumer":
        admin = confluent.admin.AdminClient({"bootstrap.servers": bootstrap})
        first.subscribe(["orders", "later"])
        _poll_until([first], lambda: "subscription_changed" in shown()[0])
        admin.create_topics([confluent.admin.NewTopic("later", 3)])["later"].result(60)
        _poll_until([first], lambda: len(first.assignment()) == 5)
        assert shown() == (expected | {"subscription_changed": 1, "topics_changed": 1}, 1)
    first.close()
    assert shown()[1] == 0


def _poll_until(consumers: list[confluent.Consumer], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(0.02)


async def test_the_series_of_a_topic_go_with_it(broker: Running) -> None:
    """Whoever deletes it: here storage is asked directly, as admin-api does."""
    wire = await broker.connect()
    await produce(wire, "single", batch(b"x"), acks=-1)
    await produce(wire, "orders", batch(b"x"), acks=-1)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert broker.gateway.registry.get_sample_value(name, {"topic": "single"}) == 1
    wanted = topics_pb2.DeleteTopicsRequest(topics=[topics_pb2.TopicRef(name="single")])
    await broker.core.topics.delete_topics(wanted)
    await until(lambda: broker.gateway.registry.get_sample_value(name, {"topic": "single"}) is None)
    assert broker.gateway.registry.get_sample_value(name, {"topic": "orders"}) == 1
    await wire.close()
