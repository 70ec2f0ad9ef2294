"""Every operation of docs/rest.md has a test at a real socket, which this table names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.admin_api.test_shapes import SHAPES

FOLDER = Path(__file__).parent
DESCRIPTION = json.loads((FOLDER.parents[2] / "admin-api" / "openapi.json").read_text())
PATHS = {
    operation["operationId"]: path for path, methods in DESCRIPTION["paths"].items() for operation in methods.values()
}
ACLS = "changes::test_acls_are_refused_while_there_is_no_authorizer"
#: Answers in full, by the name of their golden file.
GOLDEN = {
    "getKafkaCluster": "cluster",
    "listKafkaBrokers": "broker-list",
    "getKafkaBroker": "broker",
    "getKafkaBrokerConfig": "broker-config",
    "listKafkaClusterConfigs": "cluster-config-list",
    "getKafkaTopic": "topic",
    "getKafkaTopicConfig": "topic-config",
    "listKafkaPartitions": "partition-list",
    "getKafkaPartition": "partition",
    "listKafkaPartitionOffsets": "partition-offsets",
    "listKafkaReplicas": "replica-list",
    "getKafkaReplica": "replica",
    "getKafkaReassignment": "reassignment",
    "listKafkaReassignments": "reassignment-list",
    "listKafkaTopicReassignments": "topic-reassignment-list",
    "getKafkaConsumerGroup": "consumer-group",
    "listKafkaConsumers": "consumer-list",
    "getKafkaConsumer": "consumer",
    "listKafkaConsumerAssignment": "consumer-assignment-list",
    "getKafkaConsumerAssignment": "consumer-assignment",
    "getKafkaConsumerGroupLagSummary": "lag-summary",
    "listKafkaConsumerLags": "lag-list",
    "getKafkaConsumerLag": "lag",
}
TESTS = {
    "listKafkaClusters": "shapes::test_lists_hold_what_single_answers_say",
    "listKafkaTopics": "shapes::test_lists_hold_what_single_answers_say",
    "listKafkaConsumerGroups": "shapes::test_lists_hold_what_single_answers_say",
    "searchKafkaReplicas": "shapes::test_brokers_come_and_go",
    "getKafkaAcls": ACLS,
    "createKafkaAcls": ACLS,
    "deleteKafkaAcls": ACLS,
    "batchCreateKafkaAcls": ACLS,
    "createKafkaTopic": "topics::test_create_look_at_delete",
    "deleteKafkaTopic": "topics::test_create_look_at_delete",
    "updatePartitionCountKafkaTopic": "changes::test_a_topic_gets_more_partitions",
    "listKafkaAllTopicConfigs": "topics::test_configs_are_kept",
    "listKafkaTopicConfigs": "topics::test_configs_are_kept",
    "updateKafkaTopicConfigBatch": "changes::test_several_configurations_change_at_once_or_not_at_all",
    "updateKafkaTopicConfig": "changes::test_one_configuration_is_set_and_reset",
    "deleteKafkaTopicConfig": "changes::test_one_configuration_is_set_and_reset",
    "listKafkaAllBrokersConfigs": "changes::test_configurations_of_brokers",
    "listKafkaBrokerConfigs": "changes::test_configurations_of_brokers",
    "getKafkaClusterConfig": "changes::test_configurations_of_brokers_change",
    "updateKafkaClusterConfigs": "changes::test_configurations_of_brokers_change",
    "updateKafkaClusterConfig": "changes::test_configurations_of_brokers_change",
    "deleteKafkaClusterConfig": "changes::test_configurations_of_brokers_change",
    "updateKafkaBrokerConfigBatch": "changes::test_configurations_of_brokers_change",
    "updateKafkaBrokerConfig": "changes::test_configurations_of_brokers_change",
    "deleteKafkaBrokerConfig": "changes::test_configurations_of_brokers_change",
    "produceRecord": "produce::test_a_record_in_full",
    "produceRecordsBatch": "produce::test_a_batch",
    "resetConsumerGroupOffsets": "group_offsets::test_every_target",
    "copyConsumerGroupOffsets": "group_offsets::test_copies",
    "deleteConsumerGroupOffsets": "group_offsets::test_deletions",
    "deleteConsumerGroup": "group_offsets::test_deletions",
    "listTopicSummaries": "insight::test_topics_with_their_numbers",
    "getMetricRange": "insight::test_ranges_of_metrics",
    "listSegments": "insight::test_segments_in_pages",
    "getHealth": "insight::test_a_healthy_cluster",
    "getVersion": "insight::test_the_version",
    "browseRecords": "records::test_a_page_in_full",
    "getRecord": "records::test_one_record",
    "deleteRecords": "records::test_records_before_an_offset_are_deleted",
    "truncateRecords": "records::test_a_topic_is_truncated",
    "downloadRecords": "record_streams::test_a_download_has_every_record",
    "tailRecords": "record_streams::test_a_tail_shows_new_records",
}


def test_every_operation_has_a_test() -> None:
    assert sorted([*GOLDEN, *TESTS]) == sorted(PATHS)


@pytest.mark.parametrize(("operation_id", "test"), TESTS.items())
def test_the_tests_are_there(operation_id: str, test: str) -> None:
    module, _, name = test.partition("::")
    assert f"\ndef {name}(" in (FOLDER / f"test_{module}.py").read_text(), operation_id


@pytest.mark.parametrize(("operation_id", "shape"), GOLDEN.items())
def test_the_golden_files_are_of_these_paths(operation_id: str, shape: str) -> None:
    template = re.escape(PATHS[operation_id].removeprefix("/v3/clusters/{cluster_id}"))
    assert re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", template), SHAPES[shape])
