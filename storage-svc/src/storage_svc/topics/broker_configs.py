"""The broker configs that exist here, under Kafka's names, each with its setting (environment variable).

All are static: they are set before the start and listed as read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from storage_svc.topics.configs import ConfigType


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    name: str
    type: ConfigType
    #: The field of the service's settings.
    setting: str


_T = ConfigType
BROKER_CONFIGS: Final = (
    BrokerConfig("auto.create.topics.enable", _T.BOOLEAN, "auto_create_topics_enable"),
    BrokerConfig("flush.policy", _T.STRING, "flush_policy"),
    BrokerConfig("group.consumer.assignment.interval.ms", _T.INT, "group_consumer_assignment_interval_ms"),
    BrokerConfig("group.consumer.assignors", _T.LIST, "group_consumer_assignors"),
    BrokerConfig("group.consumer.heartbeat.interval.ms", _T.INT, "group_consumer_heartbeat_interval_ms"),
    BrokerConfig("group.consumer.max.assignment.interval.ms", _T.INT, "group_consumer_max_assignment_interval_ms"),
    BrokerConfig("group.consumer.max.heartbeat.interval.ms", _T.INT, "group_consumer_max_heartbeat_interval_ms"),
    BrokerConfig("group.consumer.max.session.timeout.ms", _T.INT, "group_consumer_max_session_timeout_ms"),
    BrokerConfig("group.consumer.max.size", _T.INT, "group_consumer_max_size"),
    BrokerConfig("group.consumer.migration.policy", _T.STRING, "group_consumer_migration_policy"),
    BrokerConfig("group.consumer.min.assignment.interval.ms", _T.INT, "group_consumer_min_assignment_interval_ms"),
    BrokerConfig("group.consumer.min.heartbeat.interval.ms", _T.INT, "group_consumer_min_heartbeat_interval_ms"),
    BrokerConfig("group.consumer.min.session.timeout.ms", _T.INT, "group_consumer_min_session_timeout_ms"),
    BrokerConfig("group.consumer.session.timeout.ms", _T.INT, "group_consumer_session_timeout_ms"),
    BrokerConfig("group.initial.rebalance.delay.ms", _T.INT, "group_initial_rebalance_delay_ms"),
    BrokerConfig("group.max.session.timeout.ms", _T.INT, "group_max_session_timeout_ms"),
    BrokerConfig("group.max.size", _T.INT, "group_max_size"),
    BrokerConfig("group.min.session.timeout.ms", _T.INT, "group_min_session_timeout_ms"),
    BrokerConfig("log.cleaner.backoff.ms", _T.LONG, "log_cleaner_backoff_ms"),
    BrokerConfig("log.cleaner.dedupe.buffer.size", _T.LONG, "log_cleaner_dedupe_buffer_size"),
    BrokerConfig("log.cleaner.io.max.bytes.per.second", _T.DOUBLE, "log_cleaner_io_max_bytes_per_second"),
    BrokerConfig("log.dirs", _T.STRING, "data_dir"),
    BrokerConfig("log.retention.bytes", _T.LONG, "log_retention_bytes"),
    BrokerConfig("log.retention.check.interval.ms", _T.LONG, "log_retention_check_interval_ms"),
    BrokerConfig("log.retention.ms", _T.LONG, "log_retention_ms"),
    BrokerConfig("log.roll.ms", _T.LONG, "log_roll_ms"),
    BrokerConfig("log.segment.bytes", _T.INT, "log_segment_bytes"),
    BrokerConfig("message.max.bytes", _T.INT, "message_max_bytes"),
    BrokerConfig("num.partitions", _T.INT, "num_partitions"),
    BrokerConfig("offset.metadata.max.bytes", _T.INT, "offset_metadata_max_bytes"),
    BrokerConfig("offsets.retention.check.interval.ms", _T.LONG, "offsets_retention_check_interval_ms"),
    BrokerConfig("offsets.retention.minutes", _T.INT, "offsets_retention_minutes"),
    BrokerConfig("offsets.topic.num.partitions", _T.INT, "offsets_topic_num_partitions"),
    BrokerConfig("producer.id.expiration.ms", _T.INT, "producer_id_expiration_ms"),
    BrokerConfig("transaction.partition.verification.enable", _T.BOOLEAN, "transaction_partition_verification_enable"),
)

#: Configs of Kafka that have one possible value here: a partition is held once.
FIXED: Final[Mapping[str, tuple[ConfigType, str, str]]] = {
    "default.replication.factor": (_T.INT, "1", "Replicas of a topic created without a number."),
    "min.insync.replicas": (_T.INT, "1", "In-sync replicas acks=all needs."),
    "offsets.topic.replication.factor": (_T.SHORT, "1", "Replicas of __consumer_offsets."),
}


@dataclass(frozen=True, slots=True)
class BrokerValue:
    """One broker config as it is now."""

    name: str
    type: ConfigType
    value: str
    default: str
    #: Whether the operator has set it, to any value.
    is_set: bool
    documentation: str


def broker_values(
    value_of: Callable[[str], object],
    default_of: Callable[[str], object],
    documentation_of: Callable[[str], str],
    set_names: set[str],
) -> dict[str, BrokerValue]:
    """Return all broker configs by name; the callables see the settings by field name."""
    values = {
        config.name: BrokerValue(
            config.name,
            config.type,
            _text(value_of(config.setting)),
            _text(default_of(config.setting)),
            config.setting in set_names,
            documentation_of(config.setting),
        )
        for config in BROKER_CONFIGS
    }
    for name, (kind, value, documentation) in FIXED.items():
        values[name] = BrokerValue(name, kind, value, value, False, documentation)
    return dict(sorted(values.items()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
