"""Cases of test_every_version.py: the APIs of brokers, elections, reassignments, the quorum and features."""

from __future__ import annotations

from typing import Any

from protocol_lib.api import ApiKey
from protocol_lib.messages import alter_partition_reassignments as reassignments
from protocol_lib.messages import (
    alter_replica_log_dirs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
)
from protocol_lib.messages.describe_cluster import DescribeClusterRequest
from protocol_lib.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol_lib.messages.unregister_broker import UnregisterBrokerRequest
from protocol_lib.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from tests.wire.version_case import Case


def ask_describe_cluster(_version: int, _topic_id: bytes) -> Any:
    return DescribeClusterRequest(include_cluster_authorized_operations=True)


def check_describe_cluster(version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.controller_id, len(response.cluster_id)) == (0, 1, 22)
    assert response.cluster_authorized_operations == 8096
    (broker,) = response.brokers
    assert (broker.broker_id, broker.rack, broker.is_fenced) == (1, None, False)
    assert broker.port > 0
    if version >= 1:
        assert response.endpoint_type == 1


def ask_describe_topic_partitions(_version: int, _topic_id: bytes) -> Any:
    topics = tuple(describe_topic_partitions.TopicRequest(name=name) for name in ("single", "nowhere", "bad/name"))
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=topics)


def check_describe_topic_partitions(_version: int, response: Any, topic_id: bytes) -> None:
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("bad/name", 17),
        ("nowhere", 3),
        ("single", 0),
    ]
    single = response.topics[2]
    assert (single.topic_id, single.topic_authorized_operations, single.is_internal) == (topic_id, 3576, False)
    (partition,) = single.partitions
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((1,), (1,), ())
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert response.next_cursor is None


def ask_elect_leaders(_version: int, _topic_id: bytes) -> Any:
    topics = (
        elect_leaders.TopicPartitions(topic="single", partitions=(0, 1)),
        elect_leaders.TopicPartitions(topic="nowhere", partitions=(0,)),
    )
    return elect_leaders.ElectLeadersRequest(topic_partitions=topics)


def check_elect_leaders(version: int, response: Any, _topic_id: bytes) -> None:
    if version >= 1:
        assert response.error_code == 0
    found = [
        (result.topic, each.partition_id, each.error_code, each.error_message)
        for result in response.replica_election_results
        for each in result.partition_result
    ]
    assert found == [
        ("single", 0, 84, "Leader election not needed for topic partition."),
        ("single", 1, 3, "No such partition as single-1"),
        ("nowhere", 0, 3, "No such topic as nowhere"),
    ]


def ask_alter_partition_reassignments(version: int, _topic_id: bytes) -> Any:
    wanted = [(0, (1,)), (0, None), (0, ()), (0, (9,)), (0, (1, 1)), (7, (1,))]
    partitions = tuple(
        reassignments.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in wanted
    )
    nowhere = reassignments.ReassignablePartition(partition_index=0, replicas=(1,))
    return reassignments.AlterPartitionReassignmentsRequest(
        topics=(
            reassignments.ReassignableTopic(name="single", partitions=partitions),
            reassignments.ReassignableTopic(name="nowhere", partitions=(nowhere,)),
        )
    )


def check_alter_partition_reassignments(_version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.error_message) == (0, None)
    single, nowhere = response.responses
    assert [(each.partition_index, each.error_code, each.error_message) for each in single.partitions] == [
        (0, 0, None),
        (0, 85, "No partition reassignment is in progress."),
        (0, 39, "The manual partition assignment includes an empty replica list."),
        (0, 39, "The manual partition assignment includes broker 9, but no such broker is registered."),
        (0, 39, "The manual partition assignment includes the broker 1 more than once."),
        (7, 3, "Unable to find partition single:7."),
    ]
    assert [(each.error_code, each.error_message) for each in nowhere.partitions] == [
        (3, "Unable to find a topic named nowhere.")
    ]


def ask_list_partition_reassignments(_version: int, _topic_id: bytes) -> Any:
    return ListPartitionReassignmentsRequest(topics=None)


def check_list_partition_reassignments(_version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.error_message, response.topics) == (0, None, ())


def ask_describe_quorum(_version: int, _topic_id: bytes) -> Any:
    partition = describe_quorum.PartitionRequest(partition_index=0)
    topic = describe_quorum.TopicRequest(topic_name="__cluster_metadata", partitions=(partition,))
    return describe_quorum.DescribeQuorumRequest(topics=(topic,))


def check_describe_quorum(version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 0
    (topic,) = response.topics
    (quorum,) = topic.partitions
    assert (topic.topic_name, quorum.partition_index, quorum.error_code, quorum.leader_id) == (
        "__cluster_metadata",
        0,
        0,
        1,
    )
    assert [each.replica_id for each in quorum.current_voters] == [1]
    assert quorum.observers == ()
    if version >= 1:
        assert quorum.current_voters[0].last_caught_up_timestamp > 1_700_000_000_000
    if version >= 2:
        assert [(each.node_id, len(each.listeners)) for each in response.nodes] == [(1, 1)]


def ask_update_features(_version: int, _topic_id: bytes) -> Any:
    return UpdateFeaturesRequest(feature_updates=(FeatureUpdateKey(feature="group.version", max_version_level=1),))


def check_update_features(version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.error_message) == (0, None)
    rows = [(each.feature, each.error_code) for each in response.results]
    assert rows == ([("group.version", 0)] if version <= 1 else [])


def ask_unregister_broker(_version: int, _topic_id: bytes) -> Any:
    return UnregisterBrokerRequest(broker_id=9)


def check_unregister_broker(_version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.error_message) == (102, "Broker ID 9 is not currently registered")


def ask_describe_log_dirs(version: int, _topic_id: bytes) -> Any:
    topics = (describe_log_dirs.DescribableLogDirTopic(topic="single", partitions=(0, 1)),)
    return describe_log_dirs.DescribeLogDirsRequest(topics=topics if version else None)


def check_describe_log_dirs(version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 0
    (folder,) = response.results
    assert folder.error_code == 0
    assert folder.log_dir.startswith("/")
    (topic,) = (each for each in folder.topics if each.name == "single")
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.offset_lag, partition.is_future_key) == (0, 0, False)
    assert partition.partition_size > 61
    if version:
        assert [each.name for each in folder.topics] == ["single"]
    if version >= 4:
        assert 0 < folder.usable_bytes <= folder.total_bytes
    if version >= 5:
        assert folder.is_cordoned is False


def ask_alter_replica_log_dirs(_version: int, _topic_id: bytes) -> Any:
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="single", partitions=(0,))
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=(alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=(topic,)),)
    )


def check_alter_replica_log_dirs(_version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.results
    assert (topic.topic_name, [(each.partition_index, each.error_code) for each in topic.partitions]) == (
        "single",
        [(0, 57)],
    )


def ask_describe_producers(_version: int, _topic_id: bytes) -> Any:
    topics = (
        describe_producers.TopicRequest(name="single", partition_indexes=(0, 1)),
        describe_producers.TopicRequest(name="nowhere", partition_indexes=(0,)),
    )
    return describe_producers.DescribeProducersRequest(topics=topics)


def check_describe_producers(_version: int, response: Any, _topic_id: bytes) -> None:
    found = [
        (topic.name, each.partition_index, each.error_code, each.active_producers)
        for topic in response.topics
        for each in topic.partitions
    ]
    assert found == [("single", 0, 0, ()), ("single", 1, 3, ()), ("nowhere", 0, 3, ())]


CASES: dict[ApiKey, Case] = {
    ApiKey.DESCRIBE_LOG_DIRS: (ask_describe_log_dirs, check_describe_log_dirs),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (ask_alter_replica_log_dirs, check_alter_replica_log_dirs),
    ApiKey.DESCRIBE_PRODUCERS: (ask_describe_producers, check_describe_producers),
    ApiKey.DESCRIBE_CLUSTER: (ask_describe_cluster, check_describe_cluster),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (ask_describe_topic_partitions, check_describe_topic_partitions),
    ApiKey.ELECT_LEADERS: (ask_elect_leaders, check_elect_leaders),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (ask_alter_partition_reassignments, check_alter_partition_reassignments),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (ask_list_partition_reassignments, check_list_partition_reassignments),
    ApiKey.DESCRIBE_QUORUM: (ask_describe_quorum, check_describe_quorum),
    ApiKey.UPDATE_FEATURES: (ask_update_features, check_update_features),
    ApiKey.UNREGISTER_BROKER: (ask_unregister_broker, check_unregister_broker),
}
