"""Every version of every API that is served, against a real broker: asked as clients ask, answered with success."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gateway_svc.dispatch import Dispatcher
from gateway_svc.handlers import HANDLERS
from gateway_svc.metrics import GatewayMetrics
from protocol_lib.api import ApiKey
from protocol_lib.messages import alter_configs, incremental_alter_configs
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol_lib.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol_lib.messages.delete_groups import DeleteGroupsRequest
from protocol_lib.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol_lib.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.describe_groups import DescribeGroupsRequest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol_lib.messages.list_config_resources import ListConfigResourcesRequest
from protocol_lib.messages.list_groups import ListGroupsRequest
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol_lib.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol_lib.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol_lib.records.legacy import Message, build_message_set, read_messages
from protocol_lib.records.record import read_records

from tests.wire.conftest import Running, StartBroker, Wire, batch

#: (version, topic id of "single") -> request
Ask = Callable[[int, bytes], Any]
#: (version, response, topic id) -> asserts
Check = Callable[[int, Any, bytes], None]

RECORDS = batch(b"a", b"b")


def ask_api_versions(_version: int, _topic_id: bytes) -> Any:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")


def check_api_versions(version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 0
    served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert served == {key: (low, high) for key, low, high in Dispatcher(HANDLERS, GatewayMetrics()).api_ranges}
    finalized = [(each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features]
    assert finalized == ([("group.version", 1, 1)] if version >= 3 else [])
    supported = [(each.name, each.min_version, each.max_version) for each in response.supported_features]
    assert supported == ([("group.version", 0, 1)] if version >= 4 else [])


def ask_produce(version: int, topic_id: bytes) -> Any:
    records = RECORDS if version >= 3 else build_message_set(list(read_records(RECORDS)), magic=version // 2)
    data = PartitionProduceData(index=0, records=records)
    named = {"topic_id": topic_id} if version >= 13 else {"name": "single"}
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=(TopicProduceData(**named, partition_data=(data,)),))


def check_produce(version: int, response: Any, topic_id: bytes) -> None:
    (topic,) = response.responses
    assert (topic.topic_id if version >= 13 else topic.name) == (topic_id if version >= 13 else "single")
    (partition,) = topic.partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 2)  # behind the batch that was there before


def ask_fetch(version: int, topic_id: bytes) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    named = {"topic_id": topic_id} if version >= 13 else {"topic": "single"}
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=(FetchTopic(**named, partitions=(partition,)),))


def check_fetch(version: int, response: Any, topic_id: bytes) -> None:
    assert (response.error_code, response.session_id) == (0, 0)
    (topic,) = response.responses
    assert (topic.topic_id if version >= 13 else topic.topic) == (topic_id if version >= 13 else "single")
    (partition,) = topic.partitions
    assert (partition.error_code, partition.high_watermark) == (0, 2)
    if version < 4:
        (message,) = read_messages(partition.records)
        timestamp = 1_700_000_000_000 if version >= 2 else -1
        assert message == Message(1, version // 2, 0, timestamp, None, b"b")
        return
    assert partition.last_stable_offset == 2
    assert bytes(partition.records)[16:] == RECORDS[16:]


def ask_list_offsets(version: int, _topic_id: bytes) -> Any:
    timestamps = [-1, -2, 1_700_000_000_000, 1_700_000_000_001, -3, -4, -5, -6, -7]
    return ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(
            ListOffsetsTopic(name="single", partitions=(ListOffsetsPartition(partition_index=0, timestamp=each),))
            for each in timestamps
        ),
    )


def check_list_offsets(version: int, response: Any, _topic_id: bytes) -> None:
    if version == 0:
        starts = [(p.error_code, p.old_style_offsets) for topic in response.topics for p in topic.partitions]
        assert starts == [(0, (2,)), (0, (0,)), (0, ()), (0, ()), *[(35, ())] * 5]
        return
    found = [(p.error_code, p.timestamp, p.offset) for topic in response.topics for p in topic.partitions]
    unsupported = (35, -1, -1)
    assert found == [
        (0, -1, 2),
        (0, -1, 0),
        (0, 1_700_000_000_000, 0),
        (0, -1, -1),
        (0, 1_700_000_000_000, 0) if version >= 7 else unsupported,
        (0, -1, 0) if version >= 8 else unsupported,
        (0, -1, -1) if version >= 9 else unsupported,
        (0, -1, -1) if version >= 11 else unsupported,
        unsupported,
    ]


def ask_metadata(version: int, topic_id: bytes) -> Any:
    by_id = MetadataRequestTopic(topic_id=topic_id, name=None)
    by_name = MetadataRequestTopic(name="single")
    return MetadataRequest(
        topics=(by_id if version >= 12 else by_name, MetadataRequestTopic(name="made")),
        include_topic_authorized_operations=version >= 8,
    )


def check_metadata(version: int, response: Any, topic_id: bytes) -> None:
    (broker,) = response.brokers
    if version >= 1:
        assert response.controller_id == broker.node_id
    topics = [(topic.error_code, topic.name, len(topic.partitions)) for topic in response.topics]
    assert topics == [(0, "single", 1), (0, "made", 1)]
    assert response.topics[0].partitions[0].isr_nodes == (broker.node_id,)
    if version >= 8:
        assert response.topics[0].topic_authorized_operations == 3576
    if version >= 10:
        assert response.topics[0].topic_id == topic_id


def ask_offset_commit(version: int, topic_id: bytes) -> Any:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="here")
    named = {"topic_id": topic_id} if version >= 10 else {"name": "single"}
    topics = [OffsetCommitRequestTopic(**named, partitions=(partition,))]
    if version >= 10:
        topics.append(OffsetCommitRequestTopic(topic_id=b"u" * 16, partitions=(partition,)))
    return OffsetCommitRequest(group_id="simple", topics=tuple(topics))


def check_offset_commit(version: int, response: Any, topic_id: bytes) -> None:
    told = [(topic.topic_id or topic.name, p.error_code) for topic in response.topics for p in topic.partitions]
    if version >= 10:
        assert told == [(topic_id, 0), (b"u" * 16, 100)]
    else:
        assert [code for _, code in told] == [0]
        assert response.topics[0].name == "single"


def ask_offset_fetch(version: int, topic_id: bytes) -> Any:
    if version < 8:
        return OffsetFetchRequest(
            group_id="committed",
            topics=(OffsetFetchRequestTopic(name="single", partition_indexes=(0, 5)),),
        )
    named = {"topic_id": topic_id} if version >= 10 else {"name": "single"}
    return OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id="committed", topics=(OffsetFetchRequestTopics(**named, partition_indexes=(0, 5)),)
            ),
            OffsetFetchRequestGroup(group_id="committed", topics=None),
            OffsetFetchRequestGroup(group_id="nobody", topics=None),
        )
    )


def check_offset_fetch(version: int, response: Any, topic_id: bytes) -> None:
    def told(topics: Any) -> list[Any]:
        return [
            (topic.topic_id if version >= 10 else topic.name, p.partition_index, p.committed_offset, p.metadata)
            for topic in topics
            for p in topic.partitions
        ]

    name: Any = topic_id if version >= 10 else "single"
    if version < 8:
        assert response.error_code == 0
        assert told(response.topics) == [(name, 0, 41, "note"), (name, 5, -1, "")]
        return
    assert [(group.group_id, group.error_code, told(group.topics)) for group in response.groups] == [
        ("committed", 0, [(name, 0, 41, "note"), (name, 5, -1, "")]),
        ("committed", 0, [(name, 0, 41, "note")]),
        ("nobody", 0, []),
    ]


def ask_find_coordinator(version: int, _topic_id: bytes) -> Any:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=("a", ""))
    return FindCoordinatorRequest(key="a")


def check_find_coordinator(version: int, response: Any, _topic_id: bytes) -> None:
    if version >= 4:
        assert [(each.key, each.error_code, each.host) for each in response.coordinators] == [
            ("a", 0, "localhost"),
            ("", 24, ""),
        ]
    else:
        assert (response.error_code, response.host) == (0, "localhost")


def ask_join_group(_version: int, _topic_id: bytes) -> Any:
    return JoinGroupRequest(
        group_id="fresh",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"subscription"),),
    )


def check_join_group(version: int, response: Any, _topic_id: bytes) -> None:
    if version >= 4:
        assert response.error_code == 79
        assert response.protocol_name == (None if version >= 7 else "")
        assert response.member_id
    else:
        assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
        assert response.leader == response.member_id
        assert [(each.member_id, each.metadata) for each in response.members] == [(response.member_id, b"subscription")]


def check_unknown_member(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 25


def ask_heartbeat(_version: int, _topic_id: bytes) -> Any:
    return HeartbeatRequest(group_id="simple", generation_id=1, member_id="m")


def ask_sync_group(version: int, _topic_id: bytes) -> Any:
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=b"x")
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(group_id="simple", generation_id=1, member_id="m", assignments=(assignment,), **named)


def ask_leave_group(version: int, _topic_id: bytes) -> Any:
    if version >= 3:
        return LeaveGroupRequest(group_id="committed", members=(MemberIdentity(member_id="m"),))
    return LeaveGroupRequest(group_id="committed", member_id="m")


def check_leave_group(version: int, response: Any, _topic_id: bytes) -> None:
    if version >= 3:
        assert response.error_code == 0
        assert [(each.member_id, each.error_code) for each in response.members] == [("m", 25)]
    else:
        assert response.error_code == 25


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


def ask_delete_records(_version: int, _topic_id: bytes) -> Any:
    partitions = tuple(DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (1, -2, 3, 0, -1))
    unknown = DeleteRecordsPartition(partition_index=1, offset=0)
    topic = DeleteRecordsTopic(name="single", partitions=(*partitions, unknown))
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=1000)


def check_delete_records(_version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.topics
    told = [(each.partition_index, each.error_code, each.low_watermark) for each in topic.partitions]
    assert told == [(0, 0, 2), (0, 1, -1), (0, 1, -1), (0, 0, 2), (0, 0, 2), (1, 3, -1)]


def ask_offset_for_leader_epoch(version: int, _topic_id: bytes) -> Any:
    asked = ((0, -1), (1, -1), (-1, -1), (0, 0), (0, 5)) if version >= 2 else ((0, -1), (1, -1), (-1, -1))
    partitions = tuple(
        OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        for epoch, current in asked
    )
    return OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic="single", partitions=partitions),))


def check_offset_for_leader_epoch(version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.topics
    told = [(each.error_code, each.leader_epoch if version else -1, each.end_offset) for each in topic.partitions]
    epoch = 0 if version else -1
    assert told[:3] == [(0, epoch, 2), (0, -1, -1), (0, -1, -1)]
    assert told[3:] == ([(0, 0, 2), (75, -1, -1)] if version >= 2 else [])


def ask_init_producer_id(_version: int, _topic_id: bytes) -> Any:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)


def check_init_producer_id(_version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.producer_epoch) == (0, 0)
    assert response.producer_id >= 0


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


def ask_list_groups(version: int, _topic_id: bytes) -> Any:
    return ListGroupsRequest(
        states_filter=("Empty",) if version >= 4 else (), types_filter=("Classic",) if version >= 5 else ()
    )


def check_list_groups(version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 0
    (group,) = response.groups
    assert (group.group_id, group.protocol_type) == ("committed", "")
    assert group.group_state == ("Empty" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


def ask_describe_groups(version: int, _topic_id: bytes) -> Any:
    return DescribeGroupsRequest(groups=("committed", "nobody"), include_authorized_operations=version >= 3)


def check_describe_groups(version: int, response: Any, _topic_id: bytes) -> None:
    found = [(each.error_code, each.error_message, each.group_state, each.members) for each in response.groups]
    nobody = (69, "Group nobody not found.") if version >= 6 else (0, None)
    assert found == [(0, None, "Empty", ()), (*nobody, "Dead", ())]
    if version >= 3:
        assert response.groups[0].authorized_operations == 3400


def ask_delete_groups(_version: int, _topic_id: bytes) -> Any:
    return DeleteGroupsRequest(groups_names=("committed", "nobody"))


def check_delete_groups(version: int, response: Any, _topic_id: bytes) -> None:
    message = "Group nobody not found." if version >= 3 else None
    assert [(each.group_id, each.error_code, each.error_message) for each in response.results] == [
        ("committed", 0, None),
        ("nobody", 69, message),
    ]


def ask_offset_delete(_version: int, _topic_id: bytes) -> Any:
    partitions = tuple(OffsetDeleteRequestPartition(partition_index=each) for each in (0, 1))
    return OffsetDeleteRequest(
        group_id="committed", topics=(OffsetDeleteRequestTopic(name="single", partitions=partitions),)
    )


def check_offset_delete(_version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.topics
    assert (response.error_code, topic.name) == (0, "single")
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (1, 3)]


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
    assert found == [(2, "single", 0), (2, "nowhere", 3), (4, "1", 42)]


def ask_consumer_group_heartbeat(version: int, _topic_id: bytes) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id=f"consumers-{version}",
        member_id="" if version == 0 else "mine",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("single",),
        topic_partitions=(),
    )


def check_consumer_group_heartbeat(version: int, response: Any, topic_id: bytes) -> None:
    assert (response.error_code, response.error_message) == (0, None)
    assert response.member_id if version == 0 else response.member_id == "mine"
    assert (response.member_epoch, response.heartbeat_interval_ms) == (2, 5_000)
    (row,) = response.assignment.topic_partitions
    assert (row.topic_id, row.partitions) == (topic_id, (0,))


def ask_consumer_group_describe(_version: int, _topic_id: bytes) -> Any:
    return ConsumerGroupDescribeRequest(group_ids=("committed", ""), include_authorized_operations=True)


def check_consumer_group_describe(_version: int, response: Any, _topic_id: bytes) -> None:
    assert [(each.group_id, each.error_code, each.members) for each in response.groups] == [
        ("committed", 69, ()),
        ("", 24, ()),
    ]


CASES: dict[ApiKey, tuple[Ask, Check]] = {
    ApiKey.LIST_CONFIG_RESOURCES: (ask_list_config_resources, check_list_config_resources),
    ApiKey.PRODUCE: (ask_produce, check_produce),
    ApiKey.FETCH: (ask_fetch, check_fetch),
    ApiKey.LIST_OFFSETS: (ask_list_offsets, check_list_offsets),
    ApiKey.METADATA: (ask_metadata, check_metadata),
    ApiKey.OFFSET_COMMIT: (ask_offset_commit, check_offset_commit),
    ApiKey.OFFSET_FETCH: (ask_offset_fetch, check_offset_fetch),
    ApiKey.FIND_COORDINATOR: (ask_find_coordinator, check_find_coordinator),
    ApiKey.JOIN_GROUP: (ask_join_group, check_join_group),
    ApiKey.HEARTBEAT: (ask_heartbeat, check_unknown_member),
    ApiKey.LEAVE_GROUP: (ask_leave_group, check_leave_group),
    ApiKey.SYNC_GROUP: (ask_sync_group, check_unknown_member),
    ApiKey.API_VERSIONS: (ask_api_versions, check_api_versions),
    ApiKey.CREATE_TOPICS: (ask_create_topics, check_create_topics),
    ApiKey.DELETE_TOPICS: (ask_delete_topics, check_delete_topics),
    ApiKey.DELETE_RECORDS: (ask_delete_records, check_delete_records),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (ask_offset_for_leader_epoch, check_offset_for_leader_epoch),
    ApiKey.INIT_PRODUCER_ID: (ask_init_producer_id, check_init_producer_id),
    ApiKey.DESCRIBE_CONFIGS: (ask_describe_configs, check_describe_configs),
    ApiKey.ALTER_CONFIGS: (ask_alter_configs, check_altered_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (ask_incremental_alter_configs, check_altered_configs),
    ApiKey.LIST_GROUPS: (ask_list_groups, check_list_groups),
    ApiKey.DESCRIBE_GROUPS: (ask_describe_groups, check_describe_groups),
    ApiKey.DELETE_GROUPS: (ask_delete_groups, check_delete_groups),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (ask_consumer_group_heartbeat, check_consumer_group_heartbeat),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (ask_consumer_group_describe, check_consumer_group_describe),
    ApiKey.OFFSET_DELETE: (ask_offset_delete, check_offset_delete),
}


async def prepared(start_broker: StartBroker) -> tuple[Running, bytes]:
    """A broker whose topic "single" holds two records and whose group "committed" has one committed offset."""
    broker = await start_broker()
    wire = await broker.connect()
    metadata = await wire.call(3, 12, MetadataRequest(topics=(MetadataRequestTopic(name="single"),)))
    await wire.call(0, 7, ask_produce(7, b""))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=41, committed_metadata="note")
    topic = OffsetCommitRequestTopic(name="single", partitions=(partition,))
    await wire.call(8, 2, OffsetCommitRequest(group_id="committed", topics=(topic,)))
    await wire.close()
    return broker, metadata.topics[0].topic_id


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.api_key.name.lower())
async def test_every_version(start_broker: StartBroker, handler: Any) -> None:
    ask, check = CASES[handler.api_key]
    changes_state = handler.api_key in (
        ApiKey.PRODUCE,
        ApiKey.METADATA,
        ApiKey.JOIN_GROUP,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_GROUPS,
    )
    broker, topic_id = await prepared(start_broker)
    for version in range(handler.min_version, handler.max_version + 1):
        if changes_state and version > handler.min_version:
            broker, topic_id = await prepared(start_broker)
        wire: Wire = await broker.connect()
        response = await wire.call(handler.api_key, version, ask(version, topic_id))
        check(version, response, topic_id)
        await wire.close()
