"""docs/metrics.md, and the names and labels that dashboards and alerts expect."""

from __future__ import annotations

from pathlib import Path

import pytest
from millrace.metrics_page import metric_rows, metrics_page

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

_PARTITION = ("topic", "partition")
_GROUP = ("consumergroup", *_PARTITION)
#: The expected metrics of each service. Names without `kafka_` or `http_` begin with `millrace_`.
EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "gateway-svc": {
        "kafka_requests_total": ("api", "version", "error"),
        "kafka_request_duration_seconds": ("api",),
        "kafka_request_bytes_total": ("api",),
        "kafka_response_bytes_total": ("api",),
        # The gauge has another name than the counter: OpenMetrics allows one family of a name.
        "kafka_connections_open": (),
        "kafka_connections_total": ("listener",),
        "kafka_connections_rejected_total": ("reason",),
        "inflight_requests": (),
        "storage_rpc_duration_seconds": ("method",),
        "storage_rpc_errors_total": ("code",),
        "event_loop_lag_seconds": (),
        "rpc_frames_total": ("direction",),
        "rpc_bytes_total": ("direction",),
        "rpc_calls_total": (),
        "rpc_resets_total": ("direction",),
        "rpc_connections_total": (),
        "rpc_clogged_seconds_total": (),
        "rpc_floods_total": (),
        "kafka_server_brokertopicmetrics_messagesin_total": ("topic",),
        "kafka_server_brokertopicmetrics_bytesin_total": ("topic",),
        "kafka_server_brokertopicmetrics_bytesout_total": ("topic",),
        "kafka_server_brokertopicmetrics_totalproducerequests_total": ("topic",),
        "kafka_server_brokertopicmetrics_totalfetchrequests_total": ("topic",),
        "kafka_server_brokertopicmetrics_failedproducerequests_total": ("topic",),
        "kafka_server_brokertopicmetrics_failedfetchrequests_total": ("topic",),
        "kafka_server_socket_server_metrics_connection_count": (),
    },
    "storage-svc": {
        # Reads wait, and groups live, in storage.
        "fetch_wait_seconds": (),
        "rpc_frames_total": ("direction",),
        "rpc_bytes_total": ("direction",),
        "rpc_calls_total": (),
        "rpc_resets_total": ("direction",),
        "rpc_connections_total": (),
        "rpc_clogged_seconds_total": (),
        "rpc_floods_total": (),
        "group_rebalances_total": ("reason",),
        "group_members": (),
        "append_records_total": ("topic",),
        "append_bytes_total": ("topic",),
        "append_duration_seconds": (),
        "fsync_duration_seconds": (),
        "fsync_total": ("reason",),
        "unflushed_bytes": (),
        "read_bytes_total": ("source",),
        "segments": ("topic",),
        "kafka_log_log_size": _PARTITION,
        "retention_deleted_bytes_total": ("reason",),
        "compaction_duration_seconds": (),
        "compaction_removed_records_total": (),
        "crc_failures_total": (),
        "recovery_duration_seconds": (),
        "recovery_truncated_bytes": (),
        "disk_free_bytes": (),
        "disk_total_bytes": (),
        "open_files": (),
        "kafka_server_replicamanager_partitioncount": (),
        "kafka_server_replicamanager_leadercount": (),
        "kafka_server_replicamanager_underreplicatedpartitions": (),
        "kafka_controller_kafkacontroller_activecontrollercount": (),
        "kafka_controller_kafkacontroller_offlinepartitionscount": (),
    },
    "admin-api": {
        "http_requests_total": ("method", "route", "status"),
        "http_request_duration_seconds": ("method", "route"),
        "kafka_brokers": (),
        "kafka_broker_info": ("id", "address"),
        "kafka_topic_partitions": ("topic",),
        "kafka_topic_partition_current_offset": _PARTITION,
        "kafka_topic_partition_oldest_offset": _PARTITION,
        "kafka_topic_partition_leader": _PARTITION,
        "kafka_topic_partition_leader_is_preferred": _PARTITION,
        "kafka_topic_partition_replicas": _PARTITION,
        "kafka_topic_partition_in_sync_replica": _PARTITION,
        "kafka_topic_partition_under_replicated_partition": _PARTITION,
        "kafka_consumergroup_current_offset": _GROUP,
        "kafka_consumergroup_lag": _GROUP,
        "kafka_consumergroup_current_offset_sum": ("consumergroup", "topic"),
        "kafka_consumergroup_lag_sum": ("consumergroup", "topic"),
        "kafka_consumergroup_members": ("consumergroup",),
        "consumergroup_lag_seconds": _GROUP,
        "browse_scanned_records_total": (),
        "sse_clients": (),
    },
}
#: The metrics that have Kafka's names although `millrace_kafka_…` exist too.
_OF_KAFKA = ("kafka_server_", "kafka_log_", "kafka_controller_", "kafka_topic_", "kafka_consumergroup_", "kafka_broker")


def _full(name: str) -> str:
    return name if name.startswith((*_OF_KAFKA, "http_")) else f"millrace_{name}"


def test_the_page_is_what_make_generate_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page()


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, tuple[str, ...]]]:
    return {service: {row.name: row.labels for row in rows} for service, rows in metric_rows().items()}


@pytest.mark.parametrize("service", EXPECTED)
def test_names_and_labels(service: str, found: dict[str, dict[str, tuple[str, ...]]]) -> None:
    expected = {_full(name): labels for name, labels in EXPECTED[service].items()}
    assert {name: found[service].get(name) for name in expected} == expected


def test_durations_are_histograms_where_percentiles_are_asked_for() -> None:
    kinds = {row.name: row.kind for rows in metric_rows().values() for row in rows}
    names = ("append_duration", "fsync_duration", "fetch_wait", "storage_rpc_duration", "kafka_request_duration")
    assert {kinds[f"millrace_{name}_seconds"] for name in names} == {"histogram"}
