"""Cases of test_every_version.py: the APIs of the cluster, of topics and of configs."""

from __future__ import annotations

from typing import Any

from gateway_svc.handlers import HANDLERS
from gateway_svc.requests.dispatch import api_ranges
from protocol_lib.api import ApiKey
from protocol_lib.messages import alter_configs, incremental_alter_configs
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol_lib.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol_lib.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.list_config_resources import ListConfigResourcesRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic

from tests.wire.version_case import Case


def ask_api_versions(_version: int, _topic_id: bytes) -> Any:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")


def check_api_versions(version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 0
    served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert served == {key: (low, high) for key, low, high in api_ranges(HANDLERS)}
    finalized = [(each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features]
    levels = [("group.version", 0, 1), ("metadata.version", 7, 30), ("transaction.version", 0, 2)]
    assert finalized == ([(name, level, level) for name, _, level in levels] if version >= 3 else [])
    supported = [(each.name, each.min_version, each.max_version) for each in response.supported_features]
    assert supported == [each for each in levels if version >= 4 or (version == 3 and each[1] > 0)]


def ask_metadata(version: int, topic_id: bytes) -> Any:
    by_id = MetadataRequestTopic(topic_id=topic_id, name=None)
    by_name = MetadataRequestTopic(name="single")
    return MetadataRequest(
        topics=(by_id,) if version >= 12 else (by_name, MetadataRequestTopic(name="made")),
        include_topic_authorized_operations=version >= 8,
    )


def check_metadata(version: int, response: Any, topic_id: bytes) -> None:
    (broker,) = response.brokers
    if version >= 1:
        assert response.controller_id == broker.node_id
    topics = [(topic.error_code, topic.name, len(topic.partitions)) for topic in response.topics]
    assert topics == [(0, "single", 1)] + [(0, "made", 1)] * (version < 12)
    assert response.topics[0].partitions[0].isr_nodes == (broker.node_id,)
    if version >= 8:
        assert response.topics[0].topic_authorized_operations == 3576
    if version >= 10:
        assert response.topics[0].topic_id == topic_id


def ask_create_topics(_version: int, _topic_id: bytes) -> Any:
    config = CreatableTopicConfig(name="retention.ms", value="1000")
    new = CreatableTopic(name="new", num_partitions=2, replication_factor=1, assignments=(), configs=(config,))
    twice = CreatableTopic(name="twice", num_partitions=1, replication_factor=-1, assignments=(), configs=())
    return CreateTopicsRequest(topics=(new, twice, twice), timeout_ms=1000)


def check_create_topics(version: int, response: Any, _topic_id: bytes) -> None:
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("new", 0), ("twice", 42)]
    created = response.topics[0]
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (2, 1)
        assert [each.value for each in created.configs if each.name == "retention.ms"] == ["1000"]
    if version >= 7:
        assert created.topic_id != bytes(16)


def ask_delete_topics(version: int, topic_id: bytes) -> Any:
    if version >= 6:
        states = (DeleteTopicState(topic_id=topic_id), DeleteTopicState(name="nowhere"))
        return DeleteTopicsRequest(topics=states, timeout_ms=1000)
    return DeleteTopicsRequest(topic_names=("single", "nowhere"), timeout_ms=1000)


def check_delete_topics(_version: int, response: Any, _topic_id: bytes) -> None:
    assert [(each.name, each.error_code) for each in response.responses] == [("single", 0), ("nowhere", 3)]


def ask_describe_configs(_version: int, _topic_id: bytes) -> Any:
    return DescribeConfigsRequest(
        resources=(
            DescribeConfigsResource(resource_type=2, resource_name="single", configuration_keys=("retention.ms",)),
            DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
            DescribeConfigsResource(resource_type=2, resource_name="nowhere", configuration_keys=None),
            DescribeConfigsResource(resource_type=32, resource_name="anybody", configuration_keys=None),
        ),
        include_synonyms=True,
    )


def check_describe_configs(version: int, response: Any, _topic_id: bytes) -> None:
    topic, broker, _, group = response.results
    assert [each.error_code for each in response.results] == [0, 0, 3, 0]
    (retention,) = topic.configs
    assert (retention.name, retention.value, retention.read_only) == ("retention.ms", "604800000", False)
    if version == 0:
        assert retention.is_default
    else:
        assert retention.config_source == 5
    assert {each.name for each in broker.configs} >= {"num.partitions", "message.max.bytes"}
    assert [each.value for each in group.configs if each.name == "consumer.session.timeout.ms"] == ["45000"]


def ask_list_config_resources(version: int, _topic_id: bytes) -> Any:
    return ListConfigResourcesRequest(resource_types=(4, 16, 32) if version >= 1 else ())


def check_list_config_resources(version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 0
    found = [(each.resource_type, each.resource_name) for each in response.config_resources]
    assert found == ([(4, "1")] if version >= 1 else [])


def ask_alter_configs(_version: int, _topic_id: bytes) -> Any:
    config = alter_configs.AlterableConfig(name="retention.ms", value="1000")
    resources = tuple(
        alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(config,))
        for kind, name in ((2, "single"), (2, "nowhere"), (4, "1"))
    )
    return alter_configs.AlterConfigsRequest(resources=resources, validate_only=False)


def ask_incremental_alter_configs(_version: int, _topic_id: bytes) -> Any:
    config = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resources = tuple(
        incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(config,))
        for kind, name in ((2, "single"), (2, "nowhere"), (4, "1"))
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def check_altered_configs(_version: int, response: Any, _topic_id: bytes) -> None:
    found = [(each.resource_type, each.resource_name, each.error_code) for each in response.responses]
    assert found == [(2, "single", 0), (2, "nowhere", 3), (4, "1", 40)]


def ask_create_partitions(_version: int, _topic_id: bytes) -> Any:
    wanted = [("single", 3), ("orders", 3), ("nowhere", 2), ("twice", 2), ("twice", 3)]
    topics = tuple(CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in wanted)
    return CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def check_create_partitions(_version: int, response: Any, _topic_id: bytes) -> None:
    assert [(each.name, each.error_code, each.error_message) for each in response.results] == [
        ("twice", 42, "Duplicate topic name."),
        ("single", 0, None),
        ("orders", 37, "Topic already has 3 partition(s)."),
        ("nowhere", 3, None),
    ]


CASES: dict[ApiKey, Case] = {
    ApiKey.CREATE_PARTITIONS: (ask_create_partitions, check_create_partitions),
    ApiKey.LIST_CONFIG_RESOURCES: (ask_list_config_resources, check_list_config_resources),
    ApiKey.METADATA: (ask_metadata, check_metadata),
    ApiKey.API_VERSIONS: (ask_api_versions, check_api_versions),
    ApiKey.CREATE_TOPICS: (ask_create_topics, check_create_topics),
    ApiKey.DELETE_TOPICS: (ask_delete_topics, check_delete_topics),
    ApiKey.DESCRIBE_CONFIGS: (ask_describe_configs, check_describe_configs),
    ApiKey.ALTER_CONFIGS: (ask_alter_configs, check_altered_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (ask_incremental_alter_configs, check_altered_configs),
}
