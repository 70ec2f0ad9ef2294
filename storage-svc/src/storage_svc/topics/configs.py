"""The table of topic configs: every key Apache Kafka has, its type, default, check, and whether it does something here.

A key with a check is honoured. A key without one is known but has no effect in this broker (replication, tiered
storage): it accepts only its default, which is no lie, and is listed as read-only. Values are strings, as in Kafka's
API; null means the default.

The effective value of a key: the topic's own, else the broker's (`broker_key`, from the settings), else the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1


class ConfigType(IntEnum):
    """Numbers of Kafka's DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


Check = Callable[[str], str | None]
"""Why a value is refused; None when it is fine."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    type: ConfigType
    default: str
    #: None: the key has no effect here and stays at its default.
    check: Check | None
    #: The broker setting that changes the default, if Kafka has one.
    broker_key: str | None
    documentation: str


class InvalidConfigError(Exception):
    """A config cannot be set like that, and why."""


def _number(low: int, high: int) -> Check:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return "is not a whole number"
        return None if low <= number <= high else f"is not in {low}..{high}"

    return check


def _share(value: str) -> str | None:
    try:
        share = float(value)
    except ValueError:
        return "is not a number"
    return None if 0 <= share <= 1 else "is not in 0..1"


def _one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"is not one of {', '.join(choices)}"


def _cleanup_policy(value: str) -> str | None:
    parts = value.split(",") if value else []
    return None if set(parts) <= {"compact", "delete"} else "is not a list of compact, delete"


def _gzip_level(value: str) -> str | None:
    return None if value == "-1" else _number(1, 9)(value) and "is neither -1 nor in 1..9"


_T = ConfigType
_TABLE: Final[tuple[TopicConfig, ...]] = (
    TopicConfig(
        "cleanup.policy",
        _T.LIST,
        "delete",
        _cleanup_policy,
        "log.cleanup.policy",
        "Treatment of old records: delete (retention), compact (the last one of each key stays; every record needs "
        "a key), or both. Empty: all stay.",
    ),
    TopicConfig(
        "compression.type",
        _T.STRING,
        "producer",
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "compression.type",
        "Codec of stored batches; `producer` keeps the codec of the producer.",
    ),
    TopicConfig(
        "compression.gzip.level",
        _T.INT,
        "-1",
        _gzip_level,
        "compression.gzip.level",
        "Level, when compression.type is gzip and the producer's codec is another; -1: zlib's own choice.",
    ),
    TopicConfig(
        "compression.lz4.level",
        _T.INT,
        "9",
        _number(1, 17),
        "compression.lz4.level",
        "Level, when compression.type is lz4 and the producer's codec is another.",
    ),
    TopicConfig(
        "compression.zstd.level",
        _T.INT,
        "3",
        _number(-131_072, 22),
        "compression.zstd.level",
        "Level, when compression.type is zstd and the producer's codec is another.",
    ),
    TopicConfig(
        "delete.retention.ms",
        _T.LONG,
        "86400000",
        _number(0, _LONG_MAX),
        "log.cleaner.delete.retention.ms",
        "Time that a tombstone stays after the first compaction that met it, for readers that start before.",
    ),
    TopicConfig(
        "file.delete.delay.ms",
        _T.LONG,
        "60000",
        _number(0, _LONG_MAX),
        "log.segment.delete.delay.ms",
        "Time that a deleted segment's file stays, for readers that have it open.",
    ),
    TopicConfig(
        "flush.messages",
        _T.LONG,
        str(_LONG_MAX),
        _number(1, _LONG_MAX),
        "log.flush.interval.messages",
        "Records after which a sync is forced under flush.policy=os; under group every batch is synced anyway.",
    ),
    TopicConfig(
        "flush.ms",
        _T.LONG,
        str(_LONG_MAX),
        _number(0, _LONG_MAX),
        "log.flush.interval.ms",
        "Time after which a sync is forced under flush.policy=os; under group every batch is synced anyway.",
    ),
    TopicConfig(
        "flush.policy",
        _T.STRING,
        "group",
        _one_of("group", "os"),
        "flush.policy",
        "group: acks=all is answered after a sync, and consumers read synced records only. os: the kernel decides "
        "when to sync, as in Apache Kafka, which does not have this config.",
    ),
    TopicConfig(
        "follower.replication.throttled.replicas",
        _T.LIST,
        "",
        None,
        None,
        "Replicas to throttle; there is one replica.",
    ),
    TopicConfig(
        "index.interval.bytes",
        _T.INT,
        "4096",
        _number(0, _INT_MAX),
        "log.index.interval.bytes",
        "Bytes of records per entry of the offset index.",
    ),
    TopicConfig(
        "leader.replication.throttled.replicas",
        _T.LIST,
        "",
        None,
        None,
        "Replicas to throttle; there is one replica.",
    ),
    TopicConfig(
        "local.retention.bytes", _T.LONG, "-2", None, "log.local.retention.bytes", "Tiered storage: local size."
    ),
    TopicConfig("local.retention.ms", _T.LONG, "-2", None, "log.local.retention.ms", "Tiered storage: local time."),
    TopicConfig(
        "max.compaction.lag.ms",
        _T.LONG,
        str(_LONG_MAX),
        _number(1, _LONG_MAX),
        "log.cleaner.max.compaction.lag.ms",
        "Age of a record after which compaction is due, at any share of uncompacted bytes.",
    ),
    TopicConfig(
        "max.message.bytes",
        _T.INT,
        "1048588",
        _number(0, _INT_MAX),
        "message.max.bytes",
        "Largest record batch a producer may send, as compressed by it.",
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        _T.LONG,
        "3600000",
        _number(0, _LONG_MAX),
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may lie in the future.",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        _T.LONG,
        str(_LONG_MAX),
        _number(0, _LONG_MAX),
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may lie in the past.",
    ),
    TopicConfig(
        "message.timestamp.type",
        _T.STRING,
        "CreateTime",
        _one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
        "Whose clock record timestamps come from: the producer's or the broker's.",
    ),
    TopicConfig(
        "millrace.record.validation",
        _T.STRING,
        "full",
        _one_of("full", "header"),
        "millrace.record.validation",
        "full: every record of a produced batch is checked, as in Apache Kafka, which does not have this config. "
        "header: a batch is believed if its header is sound, unless other configs ask for its records.",
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        _T.DOUBLE,
        "0.5",
        _share,
        "log.cleaner.min.cleanable.ratio",
        "Share of uncompacted bytes, 0 to 1, above which a compaction is due.",
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        _T.LONG,
        "0",
        _number(0, _LONG_MAX),
        "log.cleaner.min.compaction.lag.ms",
        "Age below which records are not compacted.",
    ),
    TopicConfig(
        "min.insync.replicas",
        _T.INT,
        "1",
        _number(1, _INT_MAX),
        "min.insync.replicas",
        "In-sync replicas acks=all needs. Each partition is held once, so that, as in Kafka with one replica, 1 is the "
        "effective value.",
    ),
    TopicConfig("preallocate", _T.BOOLEAN, "false", None, "log.preallocate", "Preallocate segment files."),
    TopicConfig("remote.log.copy.disable", _T.BOOLEAN, "false", None, None, "Tiered storage: stop copying."),
    TopicConfig(
        "remote.log.delete.on.disable",
        _T.BOOLEAN,
        "false",
        None,
        None,
        "Tiered storage: delete when disabled.",
    ),
    TopicConfig("remote.storage.enable", _T.BOOLEAN, "false", None, None, "Tiered storage."),
    TopicConfig(
        "retention.bytes",
        _T.LONG,
        "-1",
        _number(-1, _LONG_MAX),
        "log.retention.bytes",
        "Size a partition may grow to before its oldest segments are deleted; -1: no limit.",
    ),
    TopicConfig(
        "retention.ms",
        _T.LONG,
        "604800000",
        _number(-1, _LONG_MAX),
        "log.retention.ms",
        "Age after which segments are deleted; -1: no limit.",
    ),
    TopicConfig(
        "segment.bytes",
        _T.INT,
        str(1 << 30),
        _number(1 << 20, _INT_MAX),
        "log.segment.bytes",
        "Size at which a segment is closed and a new one started.",
    ),
    TopicConfig(
        "segment.index.bytes",
        _T.INT,
        str(10 << 20),
        _number(4, _INT_MAX),
        "log.index.size.max.bytes",
        "Largest size of a segment's offset index.",
    ),
    TopicConfig(
        "segment.jitter.ms",
        _T.LONG,
        "0",
        _number(0, _LONG_MAX),
        "log.roll.jitter.ms",
        "Up to this much, by chance, is subtracted from segment.ms for each segment, so that not all roll at once.",
    ),
    TopicConfig(
        "segment.ms",
        _T.LONG,
        "604800000",
        _number(1, _LONG_MAX),
        "log.roll.ms",
        "Age at which a segment is closed and a new one started.",
    ),
    TopicConfig(
        "unclean.leader.election.enable",
        _T.BOOLEAN,
        "false",
        None,
        "unclean.leader.election.enable",
        "Elect a replica that is not in sync; there is one replica.",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {config.name: config for config in _TABLE}

#: Settings that keep the history of a coordinator's topic short, because a start reads all of it. A segment is closed
#: at 8 MB or after an hour, and compacted within moments. Only a start reads from the beginning: tombstones and markers
#: need not stay for a day.
_SHORT_HISTORY: Final[Mapping[str, str]] = {
    "delete.retention.ms": "60000",
    "segment.bytes": str(8 << 20),
    "segment.ms": "3600000",
}

#: Settings of __consumer_offsets: as Kafka creates it, with a short history.
OFFSETS_TOPIC_CONFIGS: Final[Mapping[str, str]] = {"cleanup.policy": "compact", **_SHORT_HISTORY}


def transactions_topic_configs(segment_bytes: int) -> dict[str, str]:
    """Return the settings of __transaction_state: as Kafka creates it, with a short history."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
        **_SHORT_HISTORY,
        "segment.bytes": str(segment_bytes),
    }


def check_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs to store of a topic: values without blanks around them.

    Raises:
        InvalidConfigError: an unknown key, a bad value, two values that contradict each other, or a value other than
            the default for a key without effect.
    """
    checked = {}
    for name, value in configs.items():
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            raise InvalidConfigError(f"Unknown topic config name: {name}")
        value = ",".join(map(str.strip, value.split(","))) if config.type is _T.LIST else value.strip()
        if config.check is None:
            if value.lower() != config.default:
                raise InvalidConfigError(
                    f"{name} has no effect in this broker: only its default '{config.default}' can be set"
                )
            continue
        if (fault := config.check(value)) is not None:
            raise InvalidConfigError(f"Invalid value '{value[:100]}' for configuration {name}: it {fault}")
        checked[name] = value
    lags = ("min.compaction.lag.ms", "max.compaction.lag.ms")
    shortest, longest = (int(checked.get(name, TOPIC_CONFIGS[name].default)) for name in lags)
    if shortest > longest:
        raise InvalidConfigError(f"{lags[0]} ({shortest}) is larger than {lags[1]} ({longest})")
    return checked


def effective(configs: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
    """Return the value of every honoured key. `broker` holds the broker's own defaults, by topic config name."""
    return {
        name: configs.get(name, broker.get(name, config.default))
        for name, config in TOPIC_CONFIGS.items()
        if config.check is not None
    }
