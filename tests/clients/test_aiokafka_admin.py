"""Every method of aiokafka's admin client against Millrace, a test each, and a guard that lists the methods."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.late import Late, aiokafka

from tests.clients.conftest import RunningBroker

config_resource = Late("aiokafka.admin.config_resource")

EXISTS, UNKNOWN, INVALID_CONFIG = 36, 3, 40


@pytest.fixture
async def admin(millrace: RunningBroker) -> AsyncIterator[aiokafka.admin.AIOKafkaAdminClient]:
    client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=millrace.bootstrap)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def topic(admin: aiokafka.admin.AIOKafkaAdminClient, millrace: RunningBroker) -> str:
    """A topic of two partitions, the first of which has three records."""
    name = millrace.name("aiokafka")
    await admin.create_topics([aiokafka.admin.NewTopic(name, 2, 1)])
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=millrace.bootstrap, acks="all") as producer:
        for number in range(3):
            await producer.send_and_wait(name, b"%d" % number, partition=0)
    return name


@pytest.fixture
async def group(millrace: RunningBroker, topic: str) -> str:
    """A group without members that has committed offset 2 of the topic's first partition."""
    name = millrace.name("group")
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=millrace.bootstrap, group_id=name, enable_auto_commit=False
    ) as consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.commit({aiokafka.TopicPartition(topic, 0): aiokafka.OffsetAndMetadata(2, "")})
    return name


def test_every_method_has_a_test() -> None:
    methods = {name for name in dir(aiokafka.admin.AIOKafkaAdminClient) if not name.startswith("_")}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert methods - tested == set()


async def test_start(millrace: RunningBroker) -> None:
    client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=millrace.bootstrap)
    await client.start()
    assert "__consumer_offsets" not in await client.describe_cluster()
    await client.close()


async def test_close(millrace: RunningBroker) -> None:
    client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=millrace.bootstrap)
    await client.start()
    await client.close()
    await client.close()  # a second time does nothing


async def test_create_topics(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    answer = await admin.create_topics([aiokafka.admin.NewTopic(topic, 1, 1)])
    assert [each[:2] for each in answer.topic_errors] == [(topic, EXISTS)]


async def test_delete_topics(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    assert (await admin.delete_topics([topic])).topic_error_codes == [(topic, 0)]
    assert (await admin.delete_topics([topic])).topic_error_codes == [(topic, UNKNOWN)]


async def test_list_topics(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    assert topic in await admin.list_topics()


async def test_describe_topics(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    (found,) = await admin.describe_topics([topic])
    assert (found["topic"], sorted(each["partition"] for each in found["partitions"])) == (topic, [0, 1])


async def test_describe_cluster(admin: aiokafka.admin.AIOKafkaAdminClient) -> None:
    found = await admin.describe_cluster()
    assert found["controller_id"] in [each["node_id"] for each in found["brokers"]]


async def test_create_partitions(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    answer = await admin.create_partitions({topic: aiokafka.admin.NewPartitions(4)})
    assert [each[:2] for each in answer.topic_errors] == [(topic, 0)]
    with pytest.raises(aiokafka.errors.InvalidPartitionsError):
        await admin.create_partitions({topic: aiokafka.admin.NewPartitions(3)})


async def test_describe_configs(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    asked = config_resource.ConfigResource(config_resource.ConfigResourceType.TOPIC, topic, {"cleanup.policy": None})
    (answer,) = await admin.describe_configs([asked])
    ((error, _, _, name, entries),) = answer.resources
    assert (error, name, [entry[:2] for entry in entries]) == (0, topic, [("cleanup.policy", "delete")])


async def test_alter_configs(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    for value, expected in (("60000", 0), ("long", INVALID_CONFIG)):
        (answer,) = await admin.alter_configs(
            [config_resource.ConfigResource(config_resource.ConfigResourceType.TOPIC, topic, {"retention.ms": value})]
        )
        assert [each[0] for each in answer.resources] == [expected]
    (answer,) = await admin.describe_configs(
        [config_resource.ConfigResource(config_resource.ConfigResourceType.TOPIC, topic, {"retention.ms": None})]
    )
    assert [entry[1] for entry in answer.resources[0][4]] == ["60000"]


async def test_delete_records(admin: aiokafka.admin.AIOKafkaAdminClient, topic: str) -> None:
    partition = aiokafka.TopicPartition(topic, 0)
    assert await admin.delete_records({partition: aiokafka.admin.RecordsToDelete(before_offset=2)}) == {partition: 2}
    with pytest.raises(aiokafka.errors.OffsetOutOfRangeError):
        await admin.delete_records({partition: aiokafka.admin.RecordsToDelete(before_offset=99)})


async def test_find_coordinator(admin: aiokafka.admin.AIOKafkaAdminClient, group: str) -> None:
    cluster = await admin.describe_cluster()
    assert await admin.find_coordinator(group) in [each["node_id"] for each in cluster["brokers"]]


async def test_list_consumer_groups(admin: aiokafka.admin.AIOKafkaAdminClient, group: str) -> None:
    assert group in [each[0] for each in await admin.list_consumer_groups()]


async def test_describe_consumer_groups(admin: aiokafka.admin.AIOKafkaAdminClient, group: str) -> None:
    (answer,) = await admin.describe_consumer_groups([group])
    ((error, name, state, *_),) = answer.groups
    assert (error, name, state) == (0, group, "Empty")


async def test_list_consumer_group_offsets(admin: aiokafka.admin.AIOKafkaAdminClient, group: str, topic: str) -> None:
    found = await admin.list_consumer_group_offsets(group)
    assert {partition: each.offset for partition, each in found.items()} == {aiokafka.TopicPartition(topic, 0): 2}
