"""Every method of confluent-kafka's AdminClient against Millrace, a test each, and a guard that lists the methods."""

from __future__ import annotations

import pytest
from support.late import confluent

from tests.clients.conftest import RunningBroker

WAIT_S = 60.0
#: Methods without a test, and why.
LEFT_OUT = {
    **dict.fromkeys(("create_acls", "delete_acls", "describe_acls"), "there is no authorizer"),
    **dict.fromkeys(("alter_user_scram_credentials", "describe_user_scram_credentials"), "there is no SASL"),
    "set_sasl_credentials": "sends nothing",
    "poll": "sends nothing",
}


@pytest.fixture(scope="module")
def admin(millrace: RunningBroker) -> confluent.admin.AdminClient:
    return confluent.admin.AdminClient({"bootstrap.servers": millrace.bootstrap})


@pytest.fixture
def topic(admin: confluent.admin.AdminClient, millrace: RunningBroker) -> str:
    """A topic of two partitions, the first of which has three records."""
    name = millrace.name("confluent")
    admin.create_topics([confluent.admin.NewTopic(name, 2)])[name].result(WAIT_S)
    producer = confluent.Producer({"bootstrap.servers": millrace.bootstrap})
    for number in range(3):
        producer.produce(name, f"{number}", partition=0, timestamp=1000 + number)
    assert producer.flush(WAIT_S) == 0
    return name


@pytest.fixture
def group(admin: confluent.admin.AdminClient, millrace: RunningBroker, topic: str) -> str:
    """A group without members that has committed offset 2 of the topic's first partition."""
    name = millrace.name("group")
    commits = confluent.ConsumerGroupTopicPartitions(name, [confluent.TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([commits])[name].result(WAIT_S)
    return name


def code_of(error: pytest.ExceptionInfo[confluent.KafkaException]) -> int:
    code: int = error.value.args[0].code()
    return code


def own(admin: confluent.admin.AdminClient, topic: str) -> dict[str, str | None]:
    resource = confluent.admin.ConfigResource(confluent.admin.ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    return {name: entry.value for name, entry in found.items() if not entry.is_default}


def test_every_method_has_a_test_or_a_reason() -> None:
    methods = {
        name
        for name in dir(confluent.admin.AdminClient)
        if not name.startswith("_") and callable(getattr(confluent.admin.AdminClient, name))
    }
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")} & methods
    assert tested | LEFT_OUT.keys() == methods
    assert not tested & LEFT_OUT.keys()


def test_create_topics(admin: confluent.admin.AdminClient, topic: str) -> None:
    assert sorted(admin.list_topics(topic).topics[topic].partitions) == [0, 1]
    with pytest.raises(confluent.KafkaException) as error:
        admin.create_topics([confluent.admin.NewTopic(topic, 1)])[topic].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError.TOPIC_ALREADY_EXISTS


def test_delete_topics(admin: confluent.admin.AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(WAIT_S)
    with pytest.raises(confluent.KafkaException) as error:
        admin.delete_topics([topic])[topic].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_create_partitions(admin: confluent.admin.AdminClient, topic: str) -> None:
    admin.create_partitions([confluent.admin.NewPartitions(topic, 5)])[topic].result(WAIT_S)
    assert len(admin.list_topics(topic).topics[topic].partitions) == 5
    with pytest.raises(confluent.KafkaException) as error:
        admin.create_partitions([confluent.admin.NewPartitions(topic, 3)])[topic].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError.INVALID_PARTITIONS


def test_list_topics(admin: confluent.admin.AdminClient, topic: str) -> None:
    found = admin.list_topics(timeout=WAIT_S)
    assert found.topics[topic].partitions[1].leader in found.brokers


def test_describe_topics(admin: confluent.admin.AdminClient, topic: str) -> None:
    described = admin.describe_topics(confluent.TopicCollection([topic, "nowhere"]))
    found = described[topic].result(WAIT_S)
    assert (found.name, found.is_internal, [each.id for each in found.partitions]) == (topic, False, [0, 1])
    with pytest.raises(confluent.KafkaException) as error:
        described["nowhere"].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_configs(admin: confluent.admin.AdminClient, topic: str) -> None:
    resource = confluent.admin.ConfigResource(confluent.admin.ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].is_default) == ("delete", True)


def test_incremental_alter_configs(admin: confluent.admin.AdminClient, topic: str) -> None:
    entry = confluent.admin.ConfigEntry(
        "retention.ms", "60000", incremental_operation=confluent.admin.AlterConfigOpType.SET
    )
    resource = confluent.admin.ConfigResource(confluent.admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    assert own(admin, topic) == {"retention.ms": "60000"}
    wrong = confluent.admin.ConfigEntry(
        "retention.ms", "long", incremental_operation=confluent.admin.AlterConfigOpType.SET
    )
    resource = confluent.admin.ConfigResource(confluent.admin.ResourceType.TOPIC, topic, incremental_configs=[wrong])
    with pytest.raises(confluent.KafkaException) as error:
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError.INVALID_CONFIG


@pytest.mark.filterwarnings("ignore:.*alter_configs.*")
def test_alter_configs(admin: confluent.admin.AdminClient, topic: str) -> None:
    for configs in ({"retention.ms": "60000"}, {"segment.bytes": "2000000"}):
        resource = confluent.admin.ConfigResource(confluent.admin.ResourceType.TOPIC, topic, set_config=configs)
        admin.alter_configs([resource])[resource].result(WAIT_S)
        assert own(admin, topic) == configs


def test_describe_cluster(admin: confluent.admin.AdminClient) -> None:
    found = admin.describe_cluster().result(WAIT_S)
    assert found.cluster_id == admin.list_topics().cluster_id
    assert found.controller.id in [node.id for node in found.nodes]


def test_cluster_id(admin: confluent.admin.AdminClient) -> None:
    assert admin.cluster_id(WAIT_S) == admin.list_topics().cluster_id


def test_list_offsets(admin: confluent.admin.AdminClient, topic: str) -> None:
    asked = {
        confluent.TopicPartition(topic, 0): confluent.admin.OffsetSpec.latest(),
        confluent.TopicPartition(topic, 1): confluent.admin.OffsetSpec.earliest(),
        confluent.TopicPartition(topic, 7): confluent.admin.OffsetSpec.latest(),
    }
    found = admin.list_offsets(asked)
    assert [found[confluent.TopicPartition(topic, index)].result(WAIT_S).offset for index in (0, 1)] == [3, 0]
    with pytest.raises(confluent.KafkaException) as error:
        found[confluent.TopicPartition(topic, 7)].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError._UNKNOWN_PARTITION  # librdkafka looks into the metadata
    by_time = admin.list_offsets({confluent.TopicPartition(topic, 0): confluent.admin.OffsetSpec.for_timestamp(1001)})
    assert by_time[confluent.TopicPartition(topic, 0)].result(WAIT_S).offset == 1


def test_delete_records(admin: confluent.admin.AdminClient, topic: str) -> None:
    partition = confluent.TopicPartition(topic, 0, 2)
    assert admin.delete_records([partition])[partition].result(WAIT_S).low_watermark == 2
    beyond = confluent.TopicPartition(topic, 0, 99)
    with pytest.raises(confluent.KafkaException) as error:
        admin.delete_records([beyond])[beyond].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError.OFFSET_OUT_OF_RANGE


def test_elect_leaders(admin: confluent.admin.AdminClient, topic: str) -> None:
    partition, missing = confluent.TopicPartition(topic, 0), confluent.TopicPartition("nowhere", 0)
    found = admin.elect_leaders(confluent.ElectionType.PREFERRED, [partition, missing]).result(WAIT_S)
    assert found[partition].code() == confluent.KafkaError.ELECTION_NOT_NEEDED
    assert found[missing].code() == confluent.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_list_groups(admin: confluent.admin.AdminClient, group: str) -> None:
    (found,) = [each for each in admin.list_groups(timeout=WAIT_S) if each.id == group]
    assert (found.state, found.members) == ("Empty", [])


def test_list_consumer_groups(admin: confluent.admin.AdminClient, group: str) -> None:
    found = admin.list_consumer_groups(states={confluent.ConsumerGroupState.EMPTY}).result(WAIT_S)
    assert found.errors == []
    assert group in [each.group_id for each in found.valid]
    stable = admin.list_consumer_groups(states={confluent.ConsumerGroupState.STABLE}).result(WAIT_S)
    assert group not in [each.group_id for each in stable.valid]


def test_describe_consumer_groups(admin: confluent.admin.AdminClient, group: str) -> None:
    found = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    assert (found.group_id, found.state, found.members) == (group, confluent.ConsumerGroupState.EMPTY, [])


def test_list_consumer_group_offsets(admin: confluent.admin.AdminClient, group: str, topic: str) -> None:
    found = admin.list_consumer_group_offsets([confluent.ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    assert [(each.topic, each.partition, each.offset) for each in found.topic_partitions] == [(topic, 0, 2)]


def test_alter_consumer_group_offsets(admin: confluent.admin.AdminClient, group: str, topic: str) -> None:
    commits = confluent.ConsumerGroupTopicPartitions(group, [confluent.TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([commits])[group].result(WAIT_S)
    found = admin.list_consumer_group_offsets([confluent.ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    assert [each.offset for each in found.topic_partitions] == [1]
    missing = confluent.ConsumerGroupTopicPartitions(group, [confluent.TopicPartition("nowhere", 0, 1)])
    (refused,) = admin.alter_consumer_group_offsets([missing])[group].result(WAIT_S).topic_partitions
    assert refused.error.code() == confluent.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_delete_consumer_groups(admin: confluent.admin.AdminClient, group: str) -> None:
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    with pytest.raises(confluent.KafkaException) as error:
        admin.delete_consumer_groups([group])[group].result(WAIT_S)
    assert code_of(error) == confluent.KafkaError.GROUP_ID_NOT_FOUND
