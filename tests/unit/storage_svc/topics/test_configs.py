"""The table of topic configs."""

from __future__ import annotations

import pytest
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.topics.configs import TOPIC_CONFIGS, InvalidConfigError, check_configs, effective

#: Every topic config of Apache Kafka 4.x, with 3.x's flush and timestamp keys.
KAFKAS = {
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level",
    "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas",
    "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate",
    "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes",
    "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable",
}  # fmt: skip


def test_all_of_kafkas_keys_are_known_and_two_of_our_own() -> None:
    assert set(TOPIC_CONFIGS) == KAFKAS | {"flush.policy", "millrace.record.validation"}


def test_every_default_is_a_legal_value() -> None:
    assert check_configs({name: config.default for name, config in TOPIC_CONFIGS.items()}) == {
        name: config.default for name, config in TOPIC_CONFIGS.items() if config.check is not None
    }


def test_the_defaults_are_the_logs_own() -> None:
    assert LogConfig.from_properties(effective({}, {})) == LogConfig(flush_policy=FlushPolicy.GROUP)


def test_a_key_that_logs_do_not_read_is_not_honoured() -> None:
    """Except min.insync.replicas, which has the same effect with one replica for every value."""
    fields = {name.replace("_", ".") for name in LogConfig.__dataclass_fields__}
    honoured = {name for name, config in TOPIC_CONFIGS.items() if config.check is not None}
    assert honoured - {"min.insync.replicas"} <= fields


def test_the_topics_own_value_beats_the_brokers_which_beats_the_default() -> None:
    values = effective({"retention.ms": "5"}, {"retention.ms": "6", "segment.ms": "7"})
    assert (values["retention.ms"], values["segment.ms"], values["flush.ms"]) == ("5", "7", str(2**63 - 1))


HONOURED = {
    "cleanup.policy": ("", "compact", "compact,delete"),
    "compression.gzip.level": ("-1", "9"),
    "compression.type": ("zstd",),
    "compression.zstd.level": ("-5",),
    "max.message.bytes": ("0",),
    "message.timestamp.type": ("LogAppendTime",),
    "min.insync.replicas": ("2",),
    "retention.ms": ("-1",),
    "segment.bytes": ("1048576",),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in HONOURED.items() for value in values])
def test_honoured_values_are_kept(name: str, value: str) -> None:
    assert check_configs({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("no.such.key", "1", "Unknown topic config name: no.such.key"),
        ("cleanup.policy", "remove", "not a list of compact, delete"),
        ("cleanup.policy", ",", "not a list of compact, delete"),
        ("retention.ms", "-2", "not in -1"),
        ("retention.ms", "soon", "not a whole number"),
        ("retention.ms", str(2**63), "not in -1"),
        ("segment.bytes", "1048575", "not in 1048576"),
        ("max.message.bytes", "-1", "not in 0"),
        ("message.timestamp.type", "createtime", "not one of"),
        ("compression.type", "brotli", "not one of"),
        ("remote.storage.enable", "true", "no effect in this broker: only its default 'false'"),
        ("flush.policy", "always", "not one of group, os"),
        ("millrace.record.validation", "none", "not one of full, header"),
        ("min.compaction.lag.ms", "-1", "it is not in 0..9223372036854775807"),
        ("min.cleanable.dirty.ratio", "1.1", "it is not in 0..1"),
        ("min.cleanable.dirty.ratio", "nan", "it is not in 0..1"),
        ("min.cleanable.dirty.ratio", "half", "it is not a number"),
        ("compression.gzip.level", "0", "neither -1 nor in 1..9"),
        ("compression.gzip.level", "10", "neither -1 nor in 1..9"),
        ("compression.lz4.level", "18", "not in 1..17"),
        ("compression.zstd.level", "23", "not in -131072..22"),
        ("preallocate", "true", "no effect in this broker: only its default 'false'"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_reason(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        check_configs({name: value})


def test_blanks_around_values_are_not_kept() -> None:
    given = {"segment.ms": " 5 ", "cleanup.policy": " compact , delete"}
    assert check_configs(given) == {"segment.ms": "5", "cleanup.policy": "compact,delete"}


def test_the_shortest_compaction_lag_may_not_be_longer_than_the_longest() -> None:
    lags = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "6"}
    assert check_configs(lags) == lags
    with pytest.raises(InvalidConfigError, match=r"lag.ms \(7\) is larger than max.compaction.lag.ms \(6\)"):
        check_configs(lags | {"min.compaction.lag.ms": "7"})
