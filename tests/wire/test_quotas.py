"""Quotas of clients: administered over the wire, enforced by answers that ask to wait and by reading no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol_lib.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol_lib.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from protocol_lib.messages.metadata import MetadataRequest
from support.named_login import NamedLogin

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

EXACT, DEFAULT, SPECIFIED = range(3)
OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED
PRODUCED, CONSUMED, REQUESTS = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
ALICE = {"user": "alice"}


class Scene:
    """A broker, and clients of alice and of an administrator without quotas."""

    def __init__(self, broker: Running, login: NamedLogin) -> None:
        self.broker = broker
        self.login = login

    async def connect(self, user: str = "User:alice") -> Wire:
        self.login.principal = user
        return await self.broker.connect()


@pytest.fixture
async def scene(start_broker: StartBroker) -> Scene:
    login = NamedLogin()
    return Scene(await start_broker(security=login.security), login)


async def alter(
    wire: Wire, entity: dict[str, str | None], values: dict[str, float | None], *, version: int = 1, **more: Any
) -> tuple[int, str | None]:
    """Set or remove (None) values of an entity."""
    ops = tuple(OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items())
    parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    request = AlterClientQuotasRequest(entries=(EntryData(entity=parts, ops=ops),), validate_only=False)
    for name, value in more.items():
        setattr(request, name, value)
    (result,) = (await wire.call(49, version, request)).entries
    assert result.entity == parts
    return result.error_code, result.error_message


async def described(
    wire: Wire, *filters: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    components = tuple(ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in filters)
    answer = await wire.call(48, version, DescribeClientQuotasRequest(components=components, strict=strict))
    assert (answer.error_code, answer.error_message) == (0, "")
    return [
        ({part.entity_type: part.entity_name for part in each.entity}, {row.key: row.value for row in each.values})
        for each in answer.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_and_removed(scene: Scene, version: int) -> None:
    admin = await scene.connect("User:admin")
    both: dict[str, str | None] = {"client-id": "c", "user": "alice"}
    assert await alter(admin, ALICE, {PRODUCED: 1000.0, REQUESTS: 5.5}, version=version) == (0, None)
    assert await alter(admin, both, {CONSUMED: 7.0}, version=version) == (0, None)
    assert await alter(admin, {"user": None}, {CONSUMED: 8.0}, version=version) == (0, None)
    alice = (ALICE, {PRODUCED: 1000.0, REQUESTS: 5.5})
    assert await described(admin, ("user", EXACT, "alice"), version=version) == [alice, (both, {CONSUMED: 7.0})]
    assert await described(admin, ("user", EXACT, "alice"), strict=True, version=version) == [alice]
    assert await described(admin, ("user", DEFAULT, None), version=version) == [({"user": None}, {CONSUMED: 8.0})]
    assert len(await described(admin, ("user", SPECIFIED, None), version=version)) == 3
    assert await described(admin, ("ip", SPECIFIED, None), version=version) == []
    assert await alter(admin, ALICE, {PRODUCED: None}, version=version) == (0, None)
    assert await alter(admin, both, {CONSUMED: None}, version=version) == (0, None)
    assert await alter(admin, ALICE, {PRODUCED: 9.0}, version=version, validate_only=True) == (0, None)
    assert await described(admin, ("user", EXACT, "alice"), version=version) == [(ALICE, {REQUESTS: 5.5})]
    wrong = (42, "Invalid configuration key x")
    assert await alter(admin, ALICE, {REQUESTS: 1.0, "x": 1.0}, version=version) == wrong
    assert await described(admin, ("user", EXACT, "alice"), version=version) == [(ALICE, {REQUESTS: 5.5})]


async def test_without_quotas_nothing_is_counted(scene: Scene) -> None:
    admin, ring = await scene.connect("User:admin"), scene.broker.gateway._parts.admission
    assert not ring.throttles
    await alter(admin, ALICE, {PRODUCED: 1000.0})
    assert ring.throttles
    await alter(admin, ALICE, {PRODUCED: None})
    assert not ring.throttles
    assert scene.broker.gateway._quotas._rates == {}


async def test_a_producer_over_its_quota_is_asked_to_wait_and_not_read_meanwhile(scene: Scene) -> None:
    """The connections of a user count together. Requests of another user are served."""
    alice, admin = await scene.connect(), await scene.connect("User:admin")
    await alter(admin, ALICE, {PRODUCED: 2000.0})
    first = await alice.call(0, 7, produce_request("single", batch(b"x" * 10_000)))
    assert first.throttle_time_ms == 0
    other = await scene.connect()
    second = await other.call(0, 7, produce_request("single", batch(b"x" * 12_000)))
    assert 1000 <= second.throttle_time_ms <= 1300, "22,000 bytes in 10 s are 200 bytes in a second too many"
    started = asyncio.get_running_loop().time()
    assert (await produce(other, "single", batch(b"y")))[0] == 0
    assert asyncio.get_running_loop().time() - started > 0.8
    response = await admin.call(0, 7, produce_request("single", batch(b"x" * 50_000)))
    assert response.throttle_time_ms == 0


async def test_a_consumer_over_its_quota_waits_and_gets_few_bytes_at_once(scene: Scene) -> None:
    alice, admin = await scene.connect(), await scene.connect("User:admin")
    for _ in range(4):
        await produce(admin, "single", batch(b"x" * 5000), acks=-1)
    await alter(admin, ALICE, {CONSUMED: 900.0})
    first = await alice.call(1, 11, fetch_request("single", 0))
    (partition,) = first.responses[0].partitions
    assert 5000 < len(partition.records) < 9000, "what the quota allows in ten seconds"
    assert first.throttle_time_ms == 0
    second = await alice.call(1, 11, fetch_request("single", 1))
    assert second.throttle_time_ms > 1000
    assert (await admin.call(1, 11, fetch_request("single", 0))).throttle_time_ms == 0


async def test_the_time_of_requests_is_counted_and_a_wait_for_it_is_a_second_at_most(scene: Scene) -> None:
    alice, admin = await scene.connect(), await scene.connect("User:admin")
    await alter(admin, ALICE, {REQUESTS: 0.0001})
    answer = await alice.call(3, 9, MetadataRequest(topics=None))
    assert answer.throttle_time_ms == 1000
    assert {topic.name for topic in answer.topics} >= {"single", "orders"}


def topic(name: str, partitions: int) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=())


async def create(wire: Wire, *topics: CreatableTopic, version: int = 6) -> tuple[int, list[int]]:
    answer = await wire.call(19, version, CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    codes = {each.name: each.error_code for each in answer.topics}
    return answer.throttle_time_ms, [codes[each.name] for each in topics]


async def test_partitions_that_are_made_and_deleted_take_tokens(scene: Scene) -> None:
    """Eleven seconds' tokens are there. The topic that takes the last ones is made, and the next ones wait."""
    alice, admin = await scene.connect(), await scene.connect("User:admin")
    await alter(admin, ALICE, {MUTATIONS: 0.1})
    assert await create(alice, topic("a", 1), topic("b", 2), topic("c", 1)) == (
        pytest.approx(19_000, abs=900),
        [0, 0, OVER],
    )
    other = await scene.connect()
    throttle_ms, codes = await create(other, topic("d", 1))
    assert (codes, throttle_ms > 15_000) == ([OVER], True)
    other = await scene.connect()
    deleted = await other.call(20, 6, DeleteTopicsRequest(topics=(DeleteTopicState(name="a"),), timeout_ms=10_000))
    assert [each.error_code for each in deleted.responses] == [OVER]
    other = await scene.connect()
    grown = CreatePartitionsTopic(name="a", count=2, assignments=None)
    made = await other.call(37, 3, CreatePartitionsRequest(topics=(grown,), timeout_ms=10_000, validate_only=False))
    assert [each.error_code for each in made.results] == [OVER]
    other = await scene.connect()
    throttle_ms, codes = await create(other, topic("e", 3), version=5)
    assert (codes, throttle_ms > 45_000) == ([0], True), "older clients do not know the error"
    assert await create(admin, topic("f", 20)) == (0, [0])


async def test_connections_beyond_the_rate_of_their_address_are_held_and_closed(scene: Scene) -> None:
    admin = await scene.connect("User:admin")
    await alter(admin, {"ip": "127.0.0.1"}, {CONNECTIONS: 1.0})
    allowed = [await scene.connect() for _ in range(10)]
    held = await scene.connect()
    held.send(3, 9, MetadataRequest(topics=None))
    for each in allowed:
        assert (await each.call(3, 9, MetadataRequest(topics=None))).topics
    assert await held.closed() == b""
    assert len(scene.broker.gateway._connections.entrance) == 11
    await alter(admin, {"ip": "127.0.0.1"}, {CONNECTIONS: None})
    again = await scene.connect()
    assert (await again.call(3, 9, MetadataRequest(topics=None))).topics


async def test_processes_of_one_gateway_share_its_quotas(tmp_path: Path) -> None:
    storage, login = RemoteStorage(tmp_path), NamedLogin("User:alice")
    await storage.start()
    async with (
        gateway_of(storage, "one", security=login.security) as one,
        gateway_of(storage, "one", security=login.security) as two,
        gateway_of(storage, "other", security=login.security) as three,
    ):
        wires = [await each.connect() for each in (one, two, three)]
        await alter(wires[0], ALICE, {PRODUCED: 2000.0})
        first = await wires[0].call(0, 7, produce_request("single", batch(b"x" * 19_000)))
        assert first.throttle_time_ms == 500, "the others may have sent as much, until they say so"
        await until(lambda: bool(two.gateway._quotas._others))
        assert three.gateway._quotas._others == {}
        second = await wires[1].call(0, 7, produce_request("single", batch(b"x" * 10_000)))
        assert second.throttle_time_ms > 3000
        third = await wires[2].call(0, 7, produce_request("single", batch(b"x" * 10_000)))
        assert third.throttle_time_ms == 0
    await storage.stop()
