"""The administrator against real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.client import (
    Admin,
    ClientSettings,
    ConfigResource,
    ConfigSource,
    Consumer,
    OffsetAndMetadata,
    Producer,
    ResourceType,
    SaslScram,
    ScramMechanism,
    SpecialTimestamp,
    TopicPartition,
)
from protocol_lib.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientClosedError,
    GroupIdNotFoundError,
    InvalidConfigError,
    NonEmptyGroupError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from support.kafka_broker import USER, ApacheKafka, need_java


async def until(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Wait: brokers learn of the controller's changes a moment later."""
    async with asyncio.timeout(60):
        while await ask() != expected:  # noqa: ASYNC110 (nothing else signals it)
            await asyncio.sleep(0.01)


async def until_listed(admin: Admin, name: str, listed: bool) -> None:
    async def is_listed() -> bool:
        return name in await admin.topics.list()

    await until(listed, is_listed)


async def until_set(admin: Admin, resource: ConfigResource, expected: dict[str, str]) -> None:
    """Wait: Kafka's brokers learn of a change a moment after its controller has answered."""
    own: dict[str, str | None] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while own != expected:
                configs = await admin.configs.describe(resource)
                own = {name: each.value for name, each in configs.items() if each.source is ConfigSource.TOPIC}
    assert own == expected


async def until_known(admin: Admin, user: str, known: bool) -> None:
    async def is_known() -> bool:
        return user in await admin.users.describe()

    await until(known, is_known)


async def until_let_in(settings: ClientSettings, let_in: bool) -> None:
    async def lets_in() -> bool:
        try:
            async with Admin(settings) as admin:
                return bool(await admin.cluster_id())
        except AuthenticationError:
            return False

    await until(let_in, lets_in)


async def test_a_topic_from_beginning_to_end(broker):
    name = broker.name("topic")
    async with Admin(broker.bootstrap) as admin:
        await admin.topics.create(name, partitions=3, validate_only=True)
        assert name not in await admin.topics.list()
        topic_id = await admin.topics.create(name, partitions=3, replication_factor=1)
        await until_listed(admin, name, True)
        topic = await admin.topics.describe(name)
        assert (topic.name, topic.topic_id, sorted(topic.partitions)) == (name, topic_id, [0, 1, 2])
        with pytest.raises(TopicAlreadyExistsError):
            await admin.topics.create(name)
        await admin.topics.delete(name)
        await until_listed(admin, name, False)
        for ask in (admin.topics.describe, admin.topics.delete):
            with pytest.raises(UnknownTopicOrPartitionError):
                await ask(name)


async def test_brokers_keep_topics_for_themselves(broker):
    group = broker.name("group")
    async with Admin(broker.bootstrap) as admin:
        await admin.groups.alter_offsets(group, {TopicPartition(await broker.topic(), 0): 0})
        assert "__consumer_offsets" not in await admin.topics.list()
        assert "__consumer_offsets" in await admin.topics.list(internal=True)


async def test_more_partitions(broker):
    await broker.needs(ApiKey.CREATE_PARTITIONS)
    name = await broker.topic(partitions=1)
    async with Admin(broker.bootstrap) as admin:
        await admin.topics.add_partitions(name, 4)

        async def partitions() -> list[int]:
            return sorted((await admin.topics.describe(name)).partitions)

        await until([0, 1, 2, 3], partitions)
        with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
            await admin.topics.add_partitions(name, 2)


async def test_records_deleted_and_offsets_looked_up(broker):
    await broker.needs(ApiKey.DELETE_RECORDS)
    name = await broker.topic(partitions=2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    async with Producer(broker.bootstrap) as producer:
        for number in range(10):
            await producer.send(name, b"x", partition=number % 2, timestamp_ms=1000 + number)
    async with Admin(broker.bootstrap) as admin:
        assert await admin.topics.delete_records({first: 2, second: -1}) == {first: 2, second: 5}
        earliest = await admin.topics.offsets({first: SpecialTimestamp.EARLIEST, second: SpecialTimestamp.EARLIEST})
        assert {partition: at.offset for partition, at in earliest.items()} == {first: 2, second: 5}
        at = (await admin.topics.offsets({first: 1005}))[first]
        assert (at.offset, at.timestamp) == (3, 1006)


async def test_configs_of_a_topic(broker):
    resource = ConfigResource(ResourceType.TOPIC, await broker.topic(retention_ms="1234567"))
    async with Admin(broker.bootstrap) as admin:
        configs = await admin.configs.describe(resource)
        assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("1234567", ConfigSource.TOPIC)
        assert configs["cleanup.policy"].source is ConfigSource.DEFAULT
        assert list(await admin.configs.describe(resource, ["segment.bytes"])) == ["segment.bytes"]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.configs.describe(ConfigResource(ResourceType.TOPIC, broker.name("nothing")))


async def test_configs_changed_one_by_one(broker):
    await broker.needs(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    resource = ConfigResource(ResourceType.TOPIC, await broker.topic(retention_ms="1000", max_message_bytes="5000"))
    async with Admin(broker.bootstrap) as admin:
        await admin.configs.alter(
            resource, set={"segment.bytes": "2000000"}, delete=["retention.ms"], append={"cleanup.policy": "compact"}
        )
        expected = {"segment.bytes": "2000000", "max.message.bytes": "5000", "cleanup.policy": "delete,compact"}
        await until_set(admin, resource, expected)
        await admin.configs.alter(resource, subtract={"cleanup.policy": "delete"})
        await until_set(admin, resource, expected | {"cleanup.policy": "compact"})
        with pytest.raises(InvalidConfigError):
            await admin.configs.alter(resource, set={"segment.bytes": "many"})


async def test_a_group_from_beginning_to_end(broker):
    await broker.needs(ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS)
    topic, group = await broker.topic(partitions=2), broker.name("group")
    settings = ClientSettings(bootstrap_servers=broker.bootstrap, client_id="reader")
    async with Admin(broker.bootstrap) as admin:
        with pytest.raises(GroupIdNotFoundError):
            await admin.groups.describe(group)
        async with Consumer(settings, group_id=group) as consumer:
            await consumer.subscribe([topic])
            while not consumer.assignment():
                await consumer.poll(100)
            described = await admin.groups.describe(group)
            assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
            (member,) = described.members
            assert (member.client_id, member.assignment) == ("reader", consumer.assignment())
            listed = {each.group_id: each for each in await admin.groups.list()}
            assert (listed[group].state, listed[group].protocol_type) == ("Stable", "consumer")
            with pytest.raises(NonEmptyGroupError):
                await admin.groups.delete(group)

        async def state() -> str:
            return (await admin.groups.describe(group)).state

        await until("Empty", state)  # a member that leaves does not wait long for the answer
        assert group in {each.group_id for each in await admin.groups.list(states=["Empty"])}
        await admin.groups.delete(group)
        assert group not in {each.group_id for each in await admin.groups.list()}


async def test_offsets_of_a_group(broker):
    topic, group = await broker.topic(partitions=3), broker.name("group")
    partitions = [TopicPartition(topic, partition) for partition in range(3)]
    async with Admin(broker.bootstrap) as admin:
        assert await admin.groups.offsets(group) == {}
        await admin.groups.alter_offsets(group, {partitions[0]: 7, partitions[1]: OffsetAndMetadata(9, "why")})
        found = await admin.groups.offsets(group)
        assert {partition: (at.offset, at.metadata) for partition, at in found.items()} == {
            partitions[0]: (7, ""),
            partitions[1]: (9, "why"),
        }
        assert list(await admin.groups.offsets(group, partitions[1:])) == [partitions[1]]


async def test_offsets_of_a_group_are_deleted(broker):
    await broker.needs(ApiKey.OFFSET_DELETE)
    topic, group = await broker.topic(partitions=2), broker.name("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Admin(broker.bootstrap) as admin:
        await admin.groups.alter_offsets(group, {first: 1, second: 2})
        await admin.groups.delete_offsets(group, [first])
        assert list(await admin.groups.offsets(group)) == [second]


async def test_a_member_is_made_to_leave(broker):
    topic, group = await broker.topic(), broker.name("group")
    async with (
        Admin(broker.bootstrap) as admin,
        Consumer(broker.bootstrap, group_id=group, group_instance_id="static", heartbeat_interval_ms=50) as consumer,
    ):
        await consumer.subscribe([topic])
        while not consumer.assignment():
            await consumer.poll(100)
        await admin.groups.remove_member(group, group_instance_id="static")
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            await admin.groups.remove_member(group, group_instance_id="static")


async def test_the_cluster(broker):
    async with Admin(broker.bootstrap) as admin:
        (node,) = await admin.nodes()
        assert str(node.address) == broker.bootstrap
        assert await admin.cluster_id()
    with pytest.raises(ClientClosedError):
        await admin.nodes()


@pytest.fixture
def kafka_of_its_own(tmp_path: Path) -> Iterator[ApacheKafka]:
    """A broker for one test: sometimes Kafka forgets another user's mechanism together with the one deleted here."""
    need_java()
    with ApacheKafka(tmp_path / "kafka") as node:
        yield node


@pytest.mark.conformance
async def test_scram_users(kafka_of_its_own):
    user = "carol"
    secured = ClientSettings(
        bootstrap_servers=kafka_of_its_own.addresses["SASL_PLAINTEXT"],
        sasl=SaslScram(user, "old and new", ScramMechanism.SHA_256),
    )
    async with Admin(kafka_of_its_own.bootstrap) as admin:
        await admin.users.set_password(user, "old and new", ScramMechanism.SHA_256, iterations=5000)
        await until_known(admin, user, True)
        assert await admin.users.describe([user]) == {user: {ScramMechanism.SHA_256: 5000}}
        assert {USER, user} <= set(await admin.users.describe())
        await until_let_in(secured, True)
        await admin.users.delete_password(user, ScramMechanism.SHA_256)
        await until_known(admin, user, False)
        await until_let_in(secured, False)
