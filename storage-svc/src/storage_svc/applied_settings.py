"""The settings that each part of storage obeys: from the service's settings, and from the configs altered since.

`Storage` builds its parts with the functions here. After an alteration `AppliedSettings` gives the new values to every
part that has them: the logs of topics without an own value, the cleaner, the expiry of producers, groups, transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from service_chassis.steps import TaskSteps

from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.coordinator.limits import CoordinatorSettings
from storage_svc.coordinator.transactions.settings import TransactionSettings
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.rpc.data import DataService
from storage_svc.settings import StorageSettings, parse_assignors
from storage_svc.topics.broker_configs import STORAGE_CONFIGS
from storage_svc.topics.broker_settings import BrokerSettings, StaticValue
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.configs import effective
from storage_svc.topics.registry import TopicRegistry

#: Partitions that get other settings without a turn for others: 1 ms.
_STEP: Final = 200
#: Different settings of logs that are kept: 1 MB.
_LOG_CONFIGS_MAX: Final = 1000
#: Rates from here on are no limit, such as Kafka's default, the largest double.
_UNLIMITED_FROM: Final = 2.0**63


def broker_settings(
    settings: StorageSettings, catalog: Catalog, altered: Mapping[str, Mapping[str, str]]
) -> BrokerSettings:
    """Return the broker configs: these settings, and the alterations that the catalog has."""
    fields = StorageSettings.fields
    return BrokerSettings(
        catalog,
        altered,
        {
            name: StaticValue(
                _text(getattr(settings, config.setting)),
                _text(fields[config.setting].default),
                config.setting in settings.given,
                fields[config.setting].description,
            )
            for name, config in STORAGE_CONFIGS.items()
        },
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


class LogConfigs:
    """The settings of topics' logs; topics with the same configs share one object. Owned by the event loop."""

    def __init__(self, broker: BrokerSettings) -> None:
        self._broker = broker
        #: The settings by the configs of a topic, of the version of the broker's settings.
        self._made: dict[frozenset[tuple[str, str]], LogConfig] = {}
        self._version = broker.version

    def __call__(self, own: Mapping[str, str]) -> LogConfig:
        """Return the settings of a topic's logs; `own`: the topic's configs."""
        if self._version != self._broker.version or len(self._made) >= _LOG_CONFIGS_MAX:
            self._version, self._made = self._broker.version, {}  # mutant: log-configs-renewed
        key = frozenset(own.items())
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = LogConfig.from_properties(effective(own, self._broker.topic_defaults()))
        return found


def log_settings(settings: StorageSettings) -> LogSettings:
    """Return the settings of the data folder, without the altered ones."""
    return LogSettings(
        flush_policy=settings.flush_policy,
        retention_check_interval_ms=settings.log_retention_check_interval_ms,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        cleaner_backoff_ms=settings.log_cleaner_backoff_ms,
        cleaner_dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
        cleaner_io_bytes_per_second=settings.log_cleaner_io_max_bytes_per_second,
        scrub_interval_ms=settings.log_scrub_interval_ms,
        scrub_io_bytes_per_second=settings.log_scrub_io_max_bytes_per_second,
    )


def coordinator_settings(settings: StorageSettings) -> CoordinatorSettings:
    """Return the settings of groups, without the altered ones."""
    return CoordinatorSettings(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        session_timeout_min_ms=settings.group_min_session_timeout_ms,
        session_timeout_max_ms=settings.group_max_session_timeout_ms,
        group_size_max=settings.group_max_size,
        groups_max=settings.groups_max,
        offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
        offsets_commit_timeout_ms=settings.offsets_commit_timeout_ms,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
        pending_offsets_bytes_max=settings.pending_offsets_bytes_max,
        verifies_transactions=settings.transaction_partition_verification_enable,
        consumer=ConsumerGroupSettings(
            session_timeout_ms=settings.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
            size_max=settings.group_consumer_max_size,
            assignors=parse_assignors(settings.group_consumer_assignors),
            assignment_interval_ms=settings.group_consumer_assignment_interval_ms,
            migration_policy=settings.group_consumer_migration_policy,
        ),
    )


def transaction_settings(settings: StorageSettings) -> TransactionSettings:
    """Return the settings of transactions."""
    return TransactionSettings(
        max_timeout_ms=settings.transaction_max_timeout_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        abort_interval_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        ids_max=settings.transactional_ids_max,
    )


class AppliedSettings:
    """Owner: the storage service's event loop."""

    def __init__(
        self,
        broker: BrokerSettings,
        registry: TopicRegistry[LogConfig],
        maintenance: Maintenance,
        coordinator: GroupCoordinator,
        data: DataService,
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._maintenance = maintenance
        self._coordinator = coordinator
        self._data = data

    async def apply(self) -> None:
        """Give every part the values that are in force, while the event loop goes on in between."""
        self.apply_to_services()
        steps = TaskSteps(_STEP)
        for name in self._registry.names():
            topic = self._registry.get(name)
            for first in range(0, 0 if topic is None else topic.partition_count, _STEP):
                await steps.count(self._registry.apply_defaults(name, range(first, first + _STEP)))

    def apply_to_services(self) -> None:
        """Give all parts but logs the values that are in force."""
        broker = self._broker
        rate = float(broker.value("log.cleaner.io.max.bytes.per.second") or 0)
        self._maintenance.configure(
            replace(
                self._maintenance.settings,
                producer_id_expiration_ms=broker.number("producer.id.expiration.ms"),
                cleaner_backoff_ms=broker.number("log.cleaner.backoff.ms"),
                cleaner_dedupe_buffer_bytes=broker.number("log.cleaner.dedupe.buffer.size"),
                cleaner_io_bytes_per_second=0 if rate >= _UNLIMITED_FROM else max(0, int(rate)),
            )
        )
        verifies = broker.value("transaction.partition.verification.enable") == "true"
        self._data.set_verification(verifies=verifies)
        self._coordinator.set_verification(verifies=verifies)
        self._coordinator.set_assignment_interval(broker.number("group.consumer.assignment.interval.ms"))
