"""Every setting of storage-svc. Names and defaults are Kafka's where Kafka has the setting."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from broker_contract.topic_names import name_fault
from service_chassis.internal_tls import InternalTlsSettings
from service_chassis.settings import ServiceSettings, setting

from storage_svc.coordinator.consumer.assignors import ASSIGNORS
from storage_svc.coordinator.consumer.settings import MigrationPolicy
from storage_svc.log.config import FlushPolicy

_DAY_MS: Final = 86_400_000
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


def parse_assignors(value: str) -> tuple[str, ...]:
    """Return `uniform,range` as a tuple.

    Raises:
        ValueError: none, one twice, or one there is not.
    """
    names = tuple(part.strip() for part in value.split(","))
    if len(set(names)) != len(names) or not set(names) <= ASSIGNORS.keys():
        raise ValueError(f"{value!r}: each of {', '.join(ASSIGNORS)} may be named once")
    return names


def parse_topics(value: str) -> dict[str, int]:
    """Return `orders:3,users` as {"orders": 3, "users": -1}; -1 is the broker's num.partitions.

    Raises:
        ValueError: not of that form, and which part is not.
    """
    topics: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, colon, count = part.partition(":")
        if (fault := name_fault(name)) is not None:
            raise ValueError(f"{part!r}: {fault}")
        if name in topics:
            raise ValueError(f"{name!r} is named twice")
        if not colon:
            topics[name] = -1
        elif count.isascii() and count.isdigit() and int(count) >= 1:
            topics[name] = int(count)
        else:
            raise ValueError(f"{part!r}: the number of partitions must be a whole number from 1")
    return topics


def _check_policies(text: str) -> None:
    if text and not {part.strip() for part in text.split(",")} <= {"compact", "delete"}:
        raise ValueError(f"{text!r} is not a list of compact, delete")


def _check_gzip_level(level: int) -> None:
    if level == 0:
        raise ValueError("is neither -1 nor in 1..9")


class StorageSettings(InternalTlsSettings, ServiceSettings):
    data_dir: Path = setting(Path("data"), description="Folder of all durable state; created if missing.")
    storage_bind: str = setting(
        "127.0.0.1:50051", description="Address of storage's gRPC: host:port, or unix:/path on one machine."
    )
    storage_http: str = setting("127.0.0.1:9101", description="host:port of storage's /metrics, /healthz and /readyz.")
    flush_policy: FlushPolicy = setting(
        FlushPolicy.GROUP,
        description="group: acks=all is answered after a sync, and consumers read synced records only. os: the "
        "kernel decides when to sync, as in Kafka.",
    )
    num_partitions: int = setting(1, ge=1, le=10_000, description="Partitions of a topic created without a number.")
    auto_create_topics_enable: bool = setting(True, description="Create a topic when a client first asks for it.")
    partitions_max: int = setting(10_000, ge=1, description="Largest number of partitions of all topics together.")
    topics: str = setting(
        "",
        check=parse_topics,
        description="Topics to create at start if missing: name[:partitions], comma-separated.",
    )
    users_file: str = setting(
        "",
        description="Secret file of the first users, a line `NAME PASSWORD` for each. At a start, users that are "
        "missing are created; the password of one that exists stays as it is.",
    )
    message_max_bytes: int = setting(
        1_048_588, ge=0, le=_INT_MAX, description="Largest record batch (topic: max.message.bytes)."
    )
    record_validation: Literal["full", "header"] = setting(
        "full",
        description="full: every record of a produced batch is checked. header: a sound header is believed (topic: "
        "millrace.record.validation).",
    )
    log_segment_bytes: int = setting(
        1 << 30, ge=1 << 20, le=_INT_MAX, description="Size at which a segment is closed (topic: segment.bytes)."
    )
    log_roll_ms: int | None = setting(
        None, ge=1, le=_LONG_MAX, description="Age at which a segment is closed (topic: segment.ms). Empty: in hours."
    )
    log_roll_hours: int = setting(168, ge=1, le=_INT_MAX, description="The same in hours, if it is not set in ms.")
    log_roll_jitter_ms: int | None = setting(
        None,
        ge=0,
        le=_LONG_MAX,
        description="Up to this much, by chance, is subtracted from a segment's age (topic: segment.jitter.ms). "
        "Empty: in hours.",
    )
    log_roll_jitter_hours: int = setting(0, ge=0, le=_INT_MAX, description="The same in hours, if it is not set in ms.")
    log_retention_ms: int | None = setting(
        None,
        ge=-1,
        le=_LONG_MAX,
        description="Age at which records are deleted; -1: never (topic: retention.ms). Empty: in minutes or hours.",
    )
    log_retention_minutes: int | None = setting(
        None, ge=-1, le=_INT_MAX, description="The same in minutes, if it is not set in ms."
    )
    log_retention_hours: int = setting(
        168, ge=-1, le=_INT_MAX, description="The same in hours, if it is set neither in ms nor in minutes."
    )
    log_retention_bytes: int = setting(
        -1, ge=-1, le=_LONG_MAX, description="Largest size of a partition; -1: no limit (topic: retention.bytes)."
    )
    log_cleanup_policy: str = setting(
        "delete",
        check=_check_policies,
        description="Treatment of old records: delete, compact, both, or none (topic: cleanup.policy).",
    )
    log_index_size_max_bytes: int = setting(
        10 << 20, ge=4, le=_INT_MAX, description="Largest offset index of a segment (topic: segment.index.bytes)."
    )
    log_index_interval_bytes: int = setting(
        4096, ge=0, le=_INT_MAX, description="Bytes of records per entry of an index (topic: index.interval.bytes)."
    )
    log_segment_delete_delay_ms: int = setting(
        60_000,
        ge=0,
        le=_LONG_MAX,
        description="Time that a deleted segment's file stays (topic: file.delete.delay.ms).",
    )
    log_flush_interval_messages: int = setting(
        _LONG_MAX,
        ge=1,
        le=_LONG_MAX,
        description="Records after which a sync is forced under flush policy os (topic: flush.messages).",
    )
    log_flush_interval_ms: int | None = setting(
        None,
        ge=0,
        le=_LONG_MAX,
        description="Time after which a sync is forced under flush policy os (topic: flush.ms). Empty: as the next.",
    )
    log_flush_scheduler_interval_ms: int = setting(
        _LONG_MAX, ge=0, le=_LONG_MAX, description="The same, if the former is not set."
    )
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = setting(
        "producer", description="Codec of stored batches; producer: that of the producer (topic: compression.type)."
    )
    compression_gzip_level: int = setting(
        -1, ge=-1, le=9, check=_check_gzip_level, description="Level of gzip; -1: zlib's own choice."
    )
    compression_lz4_level: int = setting(9, ge=1, le=17, description="Level of lz4.")
    compression_zstd_level: int = setting(3, ge=-131_072, le=22, description="Level of zstd.")
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = setting(
        "CreateTime", description="Clock of record timestamps: the producer's or the broker's."
    )
    log_message_timestamp_before_max_ms: int = setting(
        _LONG_MAX, ge=0, le=_LONG_MAX, description="How far a record's timestamp may lie in the past."
    )
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000, ge=0, le=_LONG_MAX, description="How far a record's timestamp may lie in the future."
    )
    min_insync_replicas: int = setting(
        1, ge=1, le=_INT_MAX, description="In-sync replicas for acks=all; one replica counts as enough, as in Kafka."
    )
    log_cleaner_delete_retention_ms: int = setting(
        _DAY_MS, ge=0, le=_LONG_MAX, description="Time that a tombstone stays (topic: delete.retention.ms)."
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5, ge=0, le=1, description="Share of uncompacted bytes above which a log is due for compaction."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, ge=0, le=_LONG_MAX, description="Age below which records are not compacted."
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        _LONG_MAX, ge=1, le=_LONG_MAX, description="Age after which a compaction is due."
    )
    log_retention_check_interval_ms: int = setting(300_000, ge=1, description="Time between two checks of retention.")
    log_cleaner_backoff_ms: int = setting(15_000, ge=0, description="Pause of compaction when no log is due.")
    log_cleaner_dedupe_buffer_size: int = setting(
        128 << 20,
        ge=1 << 20,
        le=1 << 40,
        description="Memory of a compaction's key map, 32 bytes a key; a log with more keys is compacted in parts.",
    )
    log_cleaner_io_max_bytes_per_second: int = setting(
        0, ge=0, le=_LONG_MAX, description="Bytes that compaction may read and write a second, in total; 0: no limit."
    )
    log_scrub_interval_ms: int = setting(
        7 * _DAY_MS,
        ge=1_000,
        description="Time between two scrubs, which read and check all stored data; a crash causes another.",
    )
    log_scrub_io_max_bytes_per_second: int = setting(
        0, ge=0, le=_LONG_MAX, description="Bytes that the scrub may read a second; 0: no limit."
    )
    transaction_partition_verification_enable: bool = setting(
        True,
        description="Whether records of a transaction are refused unless its partitions are known to the coordinator.",
    )
    producer_id_expiration_ms: int = setting(
        _DAY_MS, ge=1, description="Time after which the state of an idle idempotent producer is removed."
    )
    offsets_topic_num_partitions: int = setting(
        50, ge=1, le=1_000, description="Partitions of __consumer_offsets; applies when the topic is created."
    )
    offsets_retention_minutes: int = setting(
        7 * 1440, ge=1, le=_INT_MAX, description="Time after which the committed offsets of an empty group are removed."
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, ge=1, description="Time between two checks of committed offsets."
    )
    offsets_commit_timeout_ms: int = setting(
        5000,
        ge=1,
        description="Longest wait of an offset commit for its sync; then the client gets a retriable error.",
    )
    offset_metadata_max_bytes: int = setting(
        4096, ge=0, le=32_767, description="Longest metadata that a client may commit with an offset."
    )
    group_initial_rebalance_delay_ms: int = setting(
        0,
        ge=0,
        le=_INT_MAX,
        description="Wait of an empty group for more members before its first rebalance; in Kafka 3000.",
    )
    group_min_session_timeout_ms: int = setting(
        6_000, ge=1, le=_INT_MAX, description="Shortest session timeout that a group member may request."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, ge=1, le=_INT_MAX, description="Longest session timeout that a group member may request."
    )
    group_max_size: int = setting(10_000, ge=1, le=_INT_MAX, description="Largest number of members of a group.")
    group_consumer_session_timeout_ms: int = setting(
        45_000, ge=1, le=_INT_MAX, description="Session timeout of a member of a KIP-848 consumer group."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        45_000, ge=1, le=_INT_MAX, description="Smallest session timeout allowed here and in a group's config."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60_000, ge=1, le=_INT_MAX, description="Largest session timeout allowed here and in a group's config."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000,
        ge=1,
        le=_INT_MAX,
        description="Time between two heartbeats of a member of a KIP-848 consumer group.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5_000, ge=1, le=_INT_MAX, description="Smallest heartbeat interval allowed here and in a group's config."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, ge=1, le=_INT_MAX, description="Largest heartbeat interval allowed here and in a group's config."
    )
    group_consumer_max_size: int = setting(
        10_000, ge=1, le=_INT_MAX, description="Largest number of members of a KIP-848 consumer group."
    )
    group_consumer_assignors: str = setting(
        "uniform,range",
        check=parse_assignors,
        description="Assignors that members may request, comma-separated; the first is the default.",
    )
    group_consumer_assignment_interval_ms: int = setting(
        1_000, ge=0, le=_INT_MAX, description="Shortest time between two assignments of a consumer group."
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        0, ge=0, le=_INT_MAX, description="Smallest assignment interval allowed here and in a group's config."
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, ge=0, le=_INT_MAX, description="Largest assignment interval allowed here and in a group's config."
    )
    group_consumer_migration_policy: MigrationPolicy = setting(
        MigrationPolicy.BIDIRECTIONAL,
        description="Allowed changes of the protocol of a group with members: upgrade (to KIP-848), downgrade, "
        "bidirectional or disabled.",
    )
    transaction_max_timeout_ms: int = setting(
        900_000, ge=1, le=_INT_MAX, description="Longest transaction timeout that a producer may request."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, ge=1, le=_INT_MAX, description="Time between two searches for transactions that have timed out."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, ge=1, le=_INT_MAX, description="Time between two searches for transactional ids that have expired."
    )
    transaction_state_log_num_partitions: int = setting(
        50, ge=1, le=1_000, description="Partitions of __transaction_state; applies when the topic is created."
    )
    transaction_state_log_segment_bytes: int = setting(
        8 << 20,
        ge=1 << 20,
        le=_INT_MAX,
        description="Size at which a segment of __transaction_state is closed; applies when the topic is created.",
    )
    transactional_id_expiration_ms: int = setting(
        7 * _DAY_MS, ge=1, le=_INT_MAX, description="Time after which an unused transactional id is forgotten."
    )
    transactional_ids_max: int = setting(100_000, ge=1, description="Largest number of transactional ids.")
    pending_offsets_bytes_max: int = setting(
        64 << 20, ge=0, description="Memory of offsets that open transactions have committed; more are refused."
    )
    groups_max: int = setting(100_000, ge=1, description="Largest number of groups.")

    def check(self) -> None:
        super().check()
        counts = parse_topics(self.topics).values()
        least = sum(count if count > 0 else self.num_partitions for count in counts)
        if least > self.partitions_max:
            raise ValueError(
                f"MILLRACE_TOPICS: {least} partitions are more than MILLRACE_PARTITIONS_MAX={self.partitions_max}"
            )
        for name in ("session_timeout", "heartbeat_interval", "assignment_interval"):
            value, low, high = (getattr(self, f"group_consumer_{limit}{name}_ms") for limit in ("", "min_", "max_"))
            if not low <= value <= high:
                raise ValueError(f"group_consumer_{name}_ms is {value}, which is not within {low} and {high}")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ValueError("group_consumer_heartbeat_interval_ms must be below group_consumer_session_timeout_ms")
