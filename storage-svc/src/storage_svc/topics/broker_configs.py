"""The table of broker configs: the keys of Apache Kafka that something here obeys, under Kafka's names.

    static     a setting of a service (environment variable), in force until the next start
    dynamic    a setting, too, that AlterConfigs changes at run time: for one broker or for all (broker_settings)
    fixed      a config with one possible value here: a partition is held once, and an event loop does threads' work

Storage's settings have the values of most. Gateways have their own ones, and register them (`GATEWAY_CONFIGS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from storage_svc.topics.config_values import Validator, any_value, at_least, between, gzip_level, one_of
from storage_svc.topics.configs import ConfigType


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    name: str
    type: ConfigType
    #: The check of a new value at run time; None: the config is static.
    check: Validator | None = None
    #: The field of the service's settings; empty: the name with underscores.
    field: str = ""
    #: Kafka's message when a valid value cannot be used, and the numbers that can.
    requirement: tuple[str, Validator] | None = None

    @property
    def setting(self) -> str:
        return self.field or self.name.replace(".", "_")

    @property
    def is_dynamic(self) -> bool:
        return self.check is not None


def _at_least_one(value: str) -> str | None:
    return at_least(1)(value)


def _no_zero(value: str) -> str | None:
    return "zero" if int(value) == 0 else None


_T = ConfigType
_TABLE: Final = (
    BrokerConfig("auto.create.topics.enable", _T.BOOLEAN),
    BrokerConfig("compression.gzip.level", _T.INT, gzip_level),
    BrokerConfig("compression.lz4.level", _T.INT, between(1, 17)),
    BrokerConfig("compression.type", _T.STRING, one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    BrokerConfig("compression.zstd.level", _T.INT, between(-131_072, 22)),
    BrokerConfig("flush.policy", _T.STRING),
    BrokerConfig("group.consumer.assignment.interval.ms", _T.INT, at_least(0)),
    BrokerConfig("group.consumer.assignors", _T.LIST),
    BrokerConfig("group.consumer.heartbeat.interval.ms", _T.INT),
    BrokerConfig("group.consumer.max.assignment.interval.ms", _T.INT),
    BrokerConfig("group.consumer.max.heartbeat.interval.ms", _T.INT),
    BrokerConfig("group.consumer.max.session.timeout.ms", _T.INT),
    BrokerConfig("group.consumer.max.size", _T.INT),
    BrokerConfig("group.consumer.migration.policy", _T.STRING),
    BrokerConfig("group.consumer.min.assignment.interval.ms", _T.INT),
    BrokerConfig("group.consumer.min.heartbeat.interval.ms", _T.INT),
    BrokerConfig("group.consumer.min.session.timeout.ms", _T.INT),
    BrokerConfig("group.consumer.session.timeout.ms", _T.INT),
    BrokerConfig("group.initial.rebalance.delay.ms", _T.INT),
    BrokerConfig("group.max.session.timeout.ms", _T.INT),
    BrokerConfig("group.max.size", _T.INT),
    BrokerConfig("group.min.session.timeout.ms", _T.INT),
    BrokerConfig("log.cleaner.backoff.ms", _T.LONG, at_least(0)),
    BrokerConfig(
        "log.cleaner.dedupe.buffer.size",
        _T.LONG,
        any_value,
        requirement=(
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
            at_least((1 << 20) + 1),
        ),
    ),
    BrokerConfig("log.cleaner.delete.retention.ms", _T.LONG, at_least(0)),
    BrokerConfig("log.cleaner.io.max.bytes.per.second", _T.DOUBLE, any_value),
    BrokerConfig("log.cleaner.max.compaction.lag.ms", _T.LONG, at_least(1)),
    BrokerConfig("log.cleaner.min.cleanable.ratio", _T.DOUBLE, between(0, 1)),
    BrokerConfig("log.cleaner.min.compaction.lag.ms", _T.LONG, at_least(0)),
    BrokerConfig("log.cleanup.policy", _T.LIST, one_of("compact", "delete")),
    BrokerConfig("log.dirs", _T.LIST, field="data_dir"),
    BrokerConfig("log.flush.interval.messages", _T.LONG, at_least(1)),
    BrokerConfig("log.flush.interval.ms", _T.LONG, any_value),
    BrokerConfig("log.flush.scheduler.interval.ms", _T.LONG),
    BrokerConfig("log.index.interval.bytes", _T.INT, at_least(0)),
    BrokerConfig("log.index.size.max.bytes", _T.INT, at_least(4)),
    BrokerConfig("log.message.timestamp.after.max.ms", _T.LONG, at_least(0)),
    BrokerConfig("log.message.timestamp.before.max.ms", _T.LONG, at_least(0)),
    BrokerConfig("log.message.timestamp.type", _T.STRING, one_of("CreateTime", "LogAppendTime")),
    BrokerConfig("log.retention.bytes", _T.LONG, any_value),
    BrokerConfig("log.retention.check.interval.ms", _T.LONG),
    BrokerConfig("log.retention.hours", _T.INT),
    BrokerConfig("log.retention.minutes", _T.INT),
    BrokerConfig(
        "log.retention.ms",
        _T.LONG,
        any_value,
        requirement=("log.retention.ms must be unlimited (-1) or, greater than or equal to 1", _no_zero),
    ),
    BrokerConfig("log.roll.hours", _T.INT),
    BrokerConfig("log.roll.jitter.hours", _T.INT),
    BrokerConfig(
        "log.roll.jitter.ms",
        _T.LONG,
        any_value,
        requirement=("log.roll.jitter.ms must be greater than or equal to 0", at_least(0)),
    ),
    BrokerConfig(
        "log.roll.ms",
        _T.LONG,
        any_value,
        requirement=("log.roll.ms must be greater than or equal to 1", _at_least_one),
    ),
    BrokerConfig("log.segment.bytes", _T.INT, at_least(1 << 20)),
    BrokerConfig("log.segment.delete.delay.ms", _T.LONG, at_least(0)),
    BrokerConfig("message.max.bytes", _T.INT, at_least(0)),
    BrokerConfig("millrace.record.validation", _T.STRING, one_of("full", "header"), field="record_validation"),
    BrokerConfig("min.insync.replicas", _T.INT, at_least(1)),
    BrokerConfig("num.partitions", _T.INT),
    BrokerConfig("offset.metadata.max.bytes", _T.INT),
    BrokerConfig("offsets.commit.timeout.ms", _T.INT),
    BrokerConfig("offsets.retention.check.interval.ms", _T.LONG),
    BrokerConfig("offsets.retention.minutes", _T.INT),
    BrokerConfig("offsets.topic.num.partitions", _T.INT),
    BrokerConfig("producer.id.expiration.ms", _T.INT, at_least(1)),
    BrokerConfig("transaction.abort.timed.out.transaction.cleanup.interval.ms", _T.INT),
    BrokerConfig("transaction.max.timeout.ms", _T.INT),
    BrokerConfig("transaction.partition.verification.enable", _T.BOOLEAN, any_value),
    BrokerConfig("transaction.remove.expired.transaction.cleanup.interval.ms", _T.INT),
    BrokerConfig("transaction.state.log.num.partitions", _T.INT),
    BrokerConfig("transaction.state.log.segment.bytes", _T.INT),
    BrokerConfig("transactional.id.expiration.ms", _T.INT),
)

#: Configs that gateways obey, each its own. They register their values.
_GATEWAYS: Final = (
    BrokerConfig("advertised.listeners", _T.LIST),
    BrokerConfig("connections.max.idle.ms", _T.LONG),
    BrokerConfig("connections.max.reauth.ms", _T.LONG),
    BrokerConfig("fetch.max.bytes", _T.INT),
    BrokerConfig("listener.security.protocol.map", _T.STRING),
    BrokerConfig("listeners", _T.LIST),
    # Kafka accepts 0: no client could then connect to set another value.
    BrokerConfig("max.connection.creation.rate", _T.INT, at_least(1)),
    BrokerConfig("max.connections", _T.INT, at_least(1)),
    BrokerConfig("max.connections.per.ip", _T.INT, at_least(1)),
    BrokerConfig("node.id", _T.INT),
    BrokerConfig("sasl.enabled.mechanisms", _T.LIST),
    BrokerConfig("sasl.oauthbearer.expected.audience", _T.LIST),
    BrokerConfig("sasl.oauthbearer.expected.issuer", _T.STRING),
    BrokerConfig("sasl.oauthbearer.jwks.endpoint.url", _T.STRING),
    BrokerConfig("sasl.oauthbearer.sub.claim.name", _T.STRING),
    BrokerConfig("socket.request.max.bytes", _T.INT),
    BrokerConfig("ssl.client.auth", _T.STRING),
    BrokerConfig("ssl.keystore.key", _T.PASSWORD),
    BrokerConfig("ssl.keystore.location", _T.STRING),
    BrokerConfig("ssl.principal.mapping.rules", _T.STRING),
    BrokerConfig("ssl.truststore.location", _T.STRING),
)

STORAGE_CONFIGS: Final[Mapping[str, BrokerConfig]] = {config.name: config for config in _TABLE}
GATEWAY_CONFIGS: Final[Mapping[str, BrokerConfig]] = {config.name: config for config in _GATEWAYS}

#: Configs of Kafka that have one possible value here: a partition is held once, in one folder, and not elsewhere.
FIXED: Final[Mapping[str, tuple[ConfigType, str, str]]] = {
    "background.threads": (_T.INT, "1", "Threads of periodic work, which the event loop does."),
    "config.providers": (_T.LIST, "", "Classes that fetch values of configs."),
    "cordoned.log.dirs": (_T.LIST, "", "Folders that get no new partitions."),
    "default.replication.factor": (_T.INT, "1", "Replicas of a topic created without a number."),
    "follower.fetch.last.tiered.offset.enable": (_T.BOOLEAN, "false", "Tiered storage: start of a new follower."),
    "log.cleaner.threads": (_T.INT, "1", "Threads of compaction."),
    "log.local.retention.bytes": (_T.LONG, "-2", "Tiered storage: local size."),
    "log.local.retention.ms": (_T.LONG, "-2", "Tiered storage: local time."),
    "log.preallocate": (_T.BOOLEAN, "false", "Preallocate segment files."),
    "max.connections.per.ip.overrides": (_T.STRING, "", "Addresses with another limit than max.connections.per.ip."),
    "metric.reporters": (_T.LIST, "", "Classes that report metrics."),
    "num.io.threads": (_T.INT, "1", "Threads that serve requests: the event loop."),
    "num.network.threads": (_T.INT, "1", "Threads that read and write connections: the event loop."),
    "num.recovery.threads.per.data.dir": (_T.INT, "1", "Threads that recover logs at a start."),
    "num.replica.fetchers": (_T.INT, "1", "Threads that fetch from each broker with a leader."),
    "offsets.topic.replication.factor": (_T.SHORT, "1", "Replicas of __consumer_offsets."),
    "transaction.state.log.min.isr": (_T.INT, "1", "In-sync replicas that a write to __transaction_state needs."),
    "transaction.state.log.replication.factor": (_T.SHORT, "1", "Replicas of __transaction_state."),
    "transaction.two.phase.commit.enable": (_T.BOOLEAN, "false", "Transactions with an external coordinator."),
    "unclean.leader.election.enable": (_T.BOOLEAN, "false", "Elect a replica that is not in sync."),
}

#: Every broker config there is.
BROKER_CONFIGS: Final[Mapping[str, BrokerConfig]] = {
    **STORAGE_CONFIGS,
    **GATEWAY_CONFIGS,
    **{name: BrokerConfig(name, kind) for name, (kind, _, _) in FIXED.items()},
}

#: Configs that Kafka alters for one listener at a time only (SslConfigs.RECONFIGURABLE_CONFIGS). Here nobody does.
PER_LISTENER: Final = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)

#: Other configs that Kafka alters at run time and nothing here obeys. They are not described.
ABSENT: Final = frozenset(
    (
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "principal.builder.class",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
        "share.coordinator.cached.buffer.max.bytes",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)

#: Names of one config in several units, in Kafka's order of precedence, and the milliseconds of each unit
#: (DynamicBrokerConfig.brokerConfigSynonyms).
UNITS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "log.flush.interval.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "log.retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "log.roll.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
}


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the names under which Kafka looks for a config's values, the most important first."""
    for units in UNITS.values():
        names = tuple(each for each, _ in units)
        if name in names and name != "log.flush.scheduler.interval.ms":
            return names
    return (name,)
