"""Every method of kafka-python's KafkaAdminClient against Millrace, a test each, and a guard that lists the methods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.late import Late, kafka_python

from tests.clients.conftest import RunningBroker

errors = Late("kafka.errors")
#: Methods without a test, and why.
LEFT_OUT = {
    **dict.fromkeys(("create_acls", "delete_acls", "describe_acls"), "there is no authorizer"),
    **dict.fromkeys(("alter_user_scram_credentials", "describe_user_scram_credentials"), "there is no SASL"),
    **dict.fromkeys(
        ("abort_transaction", "describe_transactions", "find_hanging_transactions", "list_transactions"),
        "they need transactions",
    ),
}


@pytest.fixture(scope="module")
def admin(millrace: RunningBroker) -> Iterator[kafka_python.admin.KafkaAdminClient]:
    client = kafka_python.admin.KafkaAdminClient(bootstrap_servers=millrace.bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="module")
def producer(millrace: RunningBroker) -> Iterator[kafka_python.KafkaProducer]:
    client = kafka_python.KafkaProducer(bootstrap_servers=millrace.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(
    admin: kafka_python.admin.KafkaAdminClient, producer: kafka_python.KafkaProducer, millrace: RunningBroker
) -> str:
    """A topic of two partitions, the first of which has three records."""
    name = millrace.name("kafka-python")
    admin.create_topics({name: {"num_partitions": 2}})
    for number in range(3):
        producer.send(name, b"x", partition=0, timestamp_ms=1000 + number).get(20)
    return name


@pytest.fixture
def group(admin: kafka_python.admin.KafkaAdminClient, millrace: RunningBroker, topic: str) -> str:
    """A group without members that has committed offset 2 of the topic's first partition."""
    name = millrace.name("group")
    first = kafka_python.TopicPartition(topic, 0)
    assert admin.alter_group_offsets(name, {first: kafka_python.structs.OffsetAndMetadata(2, "", -1)}) == {
        first: errors.NoError
    }
    return name


def broker_id(admin: kafka_python.admin.KafkaAdminClient) -> int:
    (broker,) = admin.describe_cluster()["brokers"]
    found: int = broker["broker_id"]
    return found


def committed(admin: kafka_python.admin.KafkaAdminClient, group: str) -> dict[kafka_python.TopicPartition, int]:
    return {partition: each.offset for partition, each in admin.list_group_offsets({group: None})[group].items()}


def resource(topic: str, configs: object = None) -> kafka_python.admin.ConfigResource:
    return kafka_python.admin.ConfigResource(kafka_python.admin.ConfigResourceType.TOPIC, topic, configs)


def test_every_method_has_a_test_or_a_reason() -> None:
    kind = kafka_python.admin.KafkaAdminClient
    methods = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")} & methods
    assert tested | LEFT_OUT.keys() == methods
    assert not tested & LEFT_OUT.keys()


def test_close(millrace: RunningBroker) -> None:
    client = kafka_python.admin.KafkaAdminClient(bootstrap_servers=millrace.bootstrap)
    client.close()
    client.close()  # a second time does nothing


def test_create_topics(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    assert topic in admin.list_topics()
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics({topic: {}})


def test_delete_topics(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    (deleted,) = admin.delete_topics([topic])["topics"]
    assert (deleted["name"], deleted["error_code"]) == (topic, 0)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_wait_for_topics(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    admin.wait_for_topics([topic])
    with pytest.raises(errors.KafkaTimeoutError):
        admin.wait_for_topics(["nowhere"], timeout_ms=100)


def test_list_topics(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    assert topic in admin.list_topics()


def test_describe_topics(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    found, missing = admin.describe_topics([topic, "nowhere"])
    assert (found["name"], [each["partition_index"] for each in found["partitions"]]) == (topic, [0, 1])
    assert missing["error_code"] == errors.UnknownTopicOrPartitionError.errno


def test_describe_topic_partitions(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    page = admin.describe_topic_partitions([topic], response_partition_limit=1)
    assert [each["partition_index"] for each in page["topics"][0]["partitions"]] == [0]
    assert (page["next_cursor"]["topic_name"], page["next_cursor"]["partition_index"]) == (topic, 1)


def test_create_partitions(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    admin.create_partitions({topic: 3})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 3
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({topic: 2})


def test_alter_configs(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    assert admin.alter_configs([resource(topic, {"retention.ms": "60000"})]) == {"topic": {topic: "OK"}}
    refused = admin.alter_configs([resource(topic, {"retention.ms": "long"})])
    assert "InvalidConfigurationError" in refused["topic"][topic]
    assert admin.describe_configs([resource(topic)])["topic"][topic]["retention.ms"]["value"] == "60000"


def test_describe_configs(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    found = admin.describe_configs([resource(topic)], config_filter="all")["topic"][topic]
    assert (found["cleanup.policy"]["value"], found["cleanup.policy"]["config_source"]) == ("delete", "DEFAULT_CONFIG")


def test_reset_configs(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    admin.alter_configs([resource(topic, {"retention.ms": "60000"})])
    assert admin.reset_configs([resource(topic, ["retention.ms"])]) == {"topic": {topic: "OK"}}
    assert admin.describe_configs([resource(topic)])["topic"][topic] == {}


def test_list_config_resources(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    assert topic in admin.list_config_resources(["TOPIC"])["topic"]


def test_describe_cluster(admin: kafka_python.admin.KafkaAdminClient) -> None:
    assert admin.describe_cluster()["controller_id"] == broker_id(admin)


def test_api_versions(admin: kafka_python.admin.KafkaAdminClient) -> None:
    assert {key.name: versions for key, versions in admin.api_versions().items()}["Heartbeat"] == (0, 4)


def test_get_broker_version_data(admin: kafka_python.admin.KafkaAdminClient) -> None:
    assert admin.get_broker_version_data(broker_id(admin)).api_versions == admin.api_versions()


def test_describe_features(admin: kafka_python.admin.KafkaAdminClient) -> None:
    assert admin.describe_features()["group.version"]["finalized"] == (1, 1)


def test_update_features(admin: kafka_python.admin.KafkaAdminClient) -> None:
    assert admin.update_features({"group.version": 1}) == {"group.version": "OK"}
    with pytest.raises(errors.InvalidUpdateVersionError):
        admin.update_features({"nowhere": 1})


def test_describe_metadata_quorum(admin: kafka_python.admin.KafkaAdminClient) -> None:
    (topic,) = admin.describe_metadata_quorum()["topics"]
    (partition,) = topic["partitions"]
    assert (topic["topic_name"], partition["leader_id"]) == ("__cluster_metadata", broker_id(admin))


def test_describe_log_dirs(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    (broker,) = admin.describe_log_dirs([topic])
    (folder,) = broker["log_dirs"]
    first, second = folder["topics"][0]["partitions"]
    assert folder["error_code"] == 0
    assert first["partition_size"] > second["partition_size"] == 0


def test_alter_replica_log_dirs(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    found = admin.alter_replica_log_dirs({(topic, 0, broker_id(admin)): "/elsewhere"})
    assert list(found.values()) == [errors.LogDirNotFoundError]


def test_describe_producers(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    first = kafka_python.TopicPartition(topic, 0)
    (producer,) = admin.describe_producers([first])[first].active_producers
    assert (producer.producer_epoch, producer.last_timestamp) == (0, 1002)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.describe_producers([kafka_python.TopicPartition(topic, 9)])


def test_elect_leaders(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    found = admin.elect_leaders(0, {topic: [0]})
    codes = [partition.error_code for each in found.replica_election_results for partition in each.partition_result]
    assert codes == [errors.ElectionNotNeededError.errno]


def test_list_partition_offsets(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    first, second = kafka_python.TopicPartition(topic, 0), kafka_python.TopicPartition(topic, 1)
    found = admin.list_partition_offsets(
        {first: kafka_python.admin.OffsetSpec.LATEST, second: kafka_python.admin.OffsetSpec.EARLIEST}
    )
    assert (found[first].offset, found[second].offset) == (3, 0)
    assert admin.list_partition_offsets({first: 1001})[first].offset == 1


def test_list_partition_reassignments(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    assert admin.list_partition_reassignments({topic: [0]}) == {}


def test_alter_partition_reassignments(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    first = kafka_python.TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({first: [broker_id(admin)]}) == {first: None}
    assert admin.alter_partition_reassignments({first: [77]}) == {first: errors.InvalidReplicationAssignmentError}
    assert admin.alter_partition_reassignments({first: None}) == {first: errors.NoReassignmentInProgressError}


def test_delete_records(admin: kafka_python.admin.KafkaAdminClient, topic: str) -> None:
    first = kafka_python.TopicPartition(topic, 0)
    assert admin.delete_records({first: 2})[first]["low_watermark"] == 2
    with pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({first: 99})


def test_list_groups(admin: kafka_python.admin.KafkaAdminClient, group: str) -> None:
    (found,) = [each for each in admin.list_groups() if each["group_id"] == group]
    assert (found["group_state"], found["group_type"]) == ("Empty", "classic")


def test_describe_groups(admin: kafka_python.admin.KafkaAdminClient, group: str) -> None:
    found = admin.describe_groups([group])[group]
    assert (found["group_state"], found["members"]) == ("Empty", [])


def test_list_group_offsets(admin: kafka_python.admin.KafkaAdminClient, group: str, topic: str) -> None:
    assert committed(admin, group) == {kafka_python.TopicPartition(topic, 0): 2}


def test_alter_group_offsets(admin: kafka_python.admin.KafkaAdminClient, group: str, topic: str) -> None:
    first, missing = kafka_python.TopicPartition(topic, 0), kafka_python.TopicPartition("nowhere", 0)
    asked = {
        first: kafka_python.structs.OffsetAndMetadata(1, "", -1),
        missing: kafka_python.structs.OffsetAndMetadata(1, "", -1),
    }
    expected = {first: errors.NoError, missing: errors.UnknownTopicOrPartitionError}
    assert admin.alter_group_offsets(group, asked) == expected
    assert committed(admin, group) == {first: 1}


def test_reset_group_offsets(admin: kafka_python.admin.KafkaAdminClient, group: str, topic: str) -> None:
    first = kafka_python.TopicPartition(topic, 0)
    reset = admin.reset_group_offsets(group, {first: kafka_python.admin.OffsetSpec.EARLIEST})
    assert reset == {first: {"error": errors.NoError, "offset": 0}}
    assert committed(admin, group) == {first: 0}


def test_delete_group_offsets(admin: kafka_python.admin.KafkaAdminClient, group: str, topic: str) -> None:
    first = kafka_python.TopicPartition(topic, 0)
    assert admin.delete_group_offsets(group, [first]) == {first: errors.NoError}
    assert committed(admin, group) == {}
    with pytest.raises(errors.GroupIdNotFoundError):
        admin.delete_group_offsets("nobody", [first])


def test_delete_groups(admin: kafka_python.admin.KafkaAdminClient, group: str) -> None:
    assert admin.delete_groups([group]) == {group: "OK"}
    assert admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}


def test_remove_group_members(admin: kafka_python.admin.KafkaAdminClient, group: str) -> None:
    removed = admin.remove_group_members(group, [kafka_python.admin.MemberToRemove(member_id="nobody")])
    assert removed == {"nobody": errors.UnknownMemberIdError}
