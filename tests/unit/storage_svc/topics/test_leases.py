"""Gateway leases and node ids."""

from __future__ import annotations

import pytest
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.leases import LeasedGateway, LeasedListener, LeaseRefusedError, Leases

EXTERNAL = LeasedListener("EXTERNAL", "localhost", 9092)
INTERNAL = LeasedListener("INTERNAL", "gateway", 29092)


async def test_names_keep_their_node_id_through_restarts(catalog: Catalog) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    assert (await leases.register("a", (EXTERNAL,), 3000, 0)).node_id == 1
    assert (await leases.register("b", (INTERNAL,), 3000, 0)).node_id == 2
    again = Leases(catalog, catalog.read().gateways)
    assert again.live(0) == []
    assert (await again.register("b", (INTERNAL,), 3000, 0)).node_id == 2
    assert (await again.register("c", (EXTERNAL,), 3000, 0)).node_id == 3
    assert again.live(0) == [LeasedGateway(2, "b", (INTERNAL,)), LeasedGateway(3, "c", (EXTERNAL,))]


async def test_a_lease_ends_unless_it_is_renewed(catalog: Catalog) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    await leases.register("a", (EXTERNAL,), 3000, 1000)
    await leases.register("b", (INTERNAL,), 3000, 1000)
    await leases.register("a", (EXTERNAL,), 3000, 3000)
    assert [gateway.name for gateway in leases.live(3999)] == ["a", "b"]
    assert [gateway.name for gateway in leases.live(4000)] == ["a"]
    assert leases.live(6000) == []
    assert leases.is_known(2)
    assert not leases.is_known(3)


async def test_a_gateway_that_leaves_is_gone_at_once(catalog: Catalog) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    await leases.register("a", (EXTERNAL,), 3000, 0)
    leases.remove("a")
    leases.remove("never seen")
    assert leases.live(0) == []


async def test_a_gateway_that_leaves_does_not_end_the_lease_of_another_of_its_name(catalog: Catalog) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    await leases.register("a", (EXTERNAL,), 3000, 0)
    leases.stream_began("a")
    leases.stream_began("a")
    leases.remove("a")
    leases.stream_ended("a")
    assert [gateway.name for gateway in leases.live(1)] == ["a"]
    leases.remove("a")
    leases.stream_ended("a")
    assert leases.live(1) == []


async def test_a_lease_ends_with_the_last_stream_of_its_name(catalog: Catalog) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    await leases.register("a", (EXTERNAL,), 3000, 0)
    leases.stream_began("a")
    leases.stream_began("a")
    leases.stream_ended("a")
    assert [gateway.name for gateway in leases.live(1)] == ["a"]
    leases.stream_ended("a")
    assert leases.live(1) == []
    await leases.register("a", (EXTERNAL,), 3000, 1)
    assert [gateway.name for gateway in leases.live(2)] == ["a"]


async def test_gateways_with_the_same_addresses_are_one_broker(catalog: Catalog) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    await leases.register("a", (EXTERNAL, INTERNAL), 3000, 0)
    await leases.register("b", (INTERNAL, EXTERNAL), 9000, 0)
    await leases.register("c", (EXTERNAL,), 3000, 0)
    assert [gateway.node_id for gateway in leases.live(1)] == [1, 3]
    assert [gateway.node_id for gateway in leases.live(3000)] == [2]


async def test_gateways_without_listeners_are_not_thrown_together(catalog: Catalog) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    await leases.register("a", (), 3000, 0)
    await leases.register("b", (), 3000, 0)
    assert [gateway.node_id for gateway in leases.live(0)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "listeners", "lease_ms"),
    [("", 1, 3000), ("n" * 256, 1, 3000), ("a", 17, 3000), ("a", 1, 99), ("a", 1, 600_001), ("a", 1, -1)],
)
async def test_senseless_registrations_are_refused(catalog: Catalog, name: str, listeners: int, lease_ms: int) -> None:
    leases = Leases(catalog, catalog.read().gateways)
    with pytest.raises(LeaseRefusedError):
        await leases.register(name, (EXTERNAL,) * listeners, lease_ms, 0)
    assert catalog.read().gateways == {}
