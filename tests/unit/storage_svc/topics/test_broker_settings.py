"""Broker configs: alterations for one broker and for all, their sources, and that they last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from storage_svc.applied_settings import broker_settings
from storage_svc.settings import StorageSettings
from storage_svc.topics.broker_changes import changed_broker
from storage_svc.topics.broker_configs import BROKER_CONFIGS, FIXED, STORAGE_CONFIGS
from storage_svc.topics.broker_settings import EVERY_BROKER, BrokerSettings, StaticValue
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogError, CatalogFile
from storage_svc.topics.config_changes import ConfigChange, InvalidChangeError
from storage_svc.topics.configs import TOPIC_CONFIGS, InvalidConfigError

RETENTION, POLICY, LEVEL = "log.retention.ms", "log.cleanup.policy", "compression.gzip.level"
BUFFER, INTERVAL = "log.cleaner.dedupe.buffer.size", "group.consumer.assignment.interval.ms"
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]
INVALID_CHANGE, INVALID_CONFIG, FAILED = InvalidChangeError, InvalidConfigError, "requirement failed:"
ONE_OF = "String must be one of: compact, delete"
#: Those that Apache Kafka 4.3.0 alters at run time, of the keys that there are.
DYNAMIC = {
    INTERVAL, BUFFER, RETENTION, "log.cleaner.backoff.ms", "log.cleaner.io.max.bytes.per.second", "log.retention.bytes",
    "log.roll.ms", "log.segment.bytes", "message.max.bytes", "min.insync.replicas", "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
}  # fmt: skip


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerSettings]]:
    """Start with these settings, on the catalog of the start before."""
    with contextlib.ExitStack() as opened:

        def begin(**settings: object) -> BrokerSettings:
            opened.close()
            catalog = Catalog(opened.enter_context(contextlib.closing(CatalogFile.open(tmp_path))))
            stored = catalog.read().broker_configs
            return broker_settings(StorageSettings(**settings), catalog, stored)  # type: ignore[arg-type]

        yield begin


async def alter(broker: BrokerSettings, name: str, *changes: Change, replaces_all: bool = False) -> None:
    own = broker.altered(name)
    wanted = [ConfigChange(*each) for each in changes]
    await broker.configure(name, changed_broker(own, wanted, broker.default, broker.check, replaces_all=replaces_all))


async def test_the_order_of_sources(start: Callable[..., BrokerSettings]) -> None:
    broker = start(log_retention_ms=4)
    await alter(broker, EVERY_BROKER, (RETENTION, SET, "3"))
    await alter(broker, "1", (RETENTION, SET, " 2 "))
    assert broker.value(RETENTION) == "2"
    assert broker.synonyms(RETENTION, 1) == [
        (RETENTION, " 2 ", 2),
        (RETENTION, "3", 3),
        (RETENTION, "4", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert broker.topic_defaults()["retention.ms"] == "2"
    await alter(broker, "1", (RETENTION, DELETE, None))
    assert (broker.value(RETENTION), broker.topic_defaults()["retention.ms"]) == ("3", "3")
    await alter(broker, EVERY_BROKER, (RETENTION, DELETE, None))
    assert (broker.value(RETENTION), broker.topic_defaults()["retention.ms"]) == ("4", "4")


def test_a_config_in_several_units(start: Callable[..., BrokerSettings]) -> None:
    broker = start(log_retention_hours=2, log_roll_hours=3)
    assert (broker.value(RETENTION), broker.synonyms(RETENTION)) == (None, [])
    assert broker.synonyms("log.retention.hours") == [
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert broker.topic_defaults()["retention.ms"] == "7200000"
    assert broker.topic_defaults()["segment.ms"] == "10800000"
    assert start(log_retention_minutes=5).topic_defaults()["retention.ms"] == "300000"
    assert start(log_retention_minutes=-1).topic_defaults()["retention.ms"] == "-1"
    assert start(log_roll_jitter_hours=1).topic_defaults()["segment.jitter.ms"] == "3600000"
    assert start(log_flush_scheduler_interval_ms=9).topic_defaults()["flush.ms"] == "9"


async def test_alterations_survive_a_restart(start: Callable[..., BrokerSettings]) -> None:
    broker = start()
    await alter(broker, EVERY_BROKER, ("message.max.bytes", SET, "5000"), ("max.connections", SET, "7"))
    await alter(broker, "2", ("log.cleanup.policy", APPEND, "compact"), ("max.connections", SET, "6"))
    broker = start()
    assert broker.altered(EVERY_BROKER) == {"message.max.bytes": "5000", "max.connections": "7"}
    assert broker.altered("2") == {"log.cleanup.policy": "delete,compact", "max.connections": "6"}
    assert broker.altered("3") == {"log.cleanup.policy": "delete,compact"}
    assert broker.topic_defaults()["cleanup.policy"] == "delete,compact"
    await alter(broker, "2", ("message.max.bytes", SET, "1"), replaces_all=True)
    assert start().altered("2") == {"message.max.bytes": "1"}


async def test_a_catalog_that_cannot_be_written_changes_nothing(
    start: Callable[..., BrokerSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start()

    def full(*_: object) -> None:
        raise CatalogError("full")

    monkeypatch.setattr(CatalogFile, "set_broker_configs", full)
    with pytest.raises(CatalogError):
        await alter(broker, "1", ("message.max.bytes", SET, "1"))
    assert (broker.altered("1"), broker.value("message.max.bytes"), broker.version) == ({}, "1048588", 0)


def test_alterations_of_another_version_are_left_out(start: Callable[..., BrokerSettings], tmp_path: Path) -> None:
    start()
    with contextlib.closing(CatalogFile.open(tmp_path)) as catalog:
        stored = {"message.max.bytes": "much", "num.partitions": "3", "later.key": "1", "log.roll.ms": "8"}
        catalog.set_broker_configs({EVERY_BROKER: stored})
    assert start().altered(EVERY_BROKER) == {"log.roll.ms": "8"}


async def test_an_interval_outside_of_bounds_that_were_set_since(start: Callable[..., BrokerSettings]) -> None:
    await alter(start(), EVERY_BROKER, (INTERVAL, SET, "9000"))
    assert start(group_consumer_max_assignment_interval_ms=8000).value(INTERVAL) == "8000"


async def test_configs_of_a_gateway(start: Callable[..., BrokerSettings]) -> None:
    broker = start()
    own = {"max.connections": StaticValue("10", "20", True, "Doc."), "log.roll.ms": StaticValue("1", "1", True, "")}
    assert broker.register(1, own) == {}
    assert (broker.value("max.connections", 1), broker.value("max.connections", 2)) == ("10", None)
    assert broker.synonyms("max.connections", 1) == [("max.connections", "10", 4), ("max.connections", "20", 5)]
    assert (broker.value("log.roll.ms", 1), broker.documentation("max.connections", 1)) == (None, "Doc.")
    assert set(broker.names(1)) - set(broker.names(2)) == {"max.connections", "node.id"}
    assert (broker.value("node.id", 1), broker.synonyms("node.id", 1)) == ("1", [("node.id", "1", 4)])
    await alter(broker, EVERY_BROKER, ("max.connections", SET, "30"), (RETENTION, SET, "5"))
    await alter(broker, "2", ("max.connections", SET, "40"))
    assert broker.register(1, own) == {"max.connections": "30"}
    assert broker.register(2, own) == {"max.connections": "40"}


async def test_every_topic_config_follows_its_broker_config(start: Callable[..., BrokerSettings]) -> None:
    """Altered, with a value that is not the default; read-only ones cannot be."""
    others = {"LIST": "compact", "STRING": "", "DOUBLE": "0.25"}
    strings = {
        "compression.type": "zstd",
        "log.message.timestamp.type": "LogAppendTime",
        "millrace.record.validation": "header",
    }
    broker = start()
    followed = set()
    for name, config in TOPIC_CONFIGS.items():
        if config.broker_key is None or config.broker_key in FIXED or name == "flush.policy":
            continue
        kind = BROKER_CONFIGS[config.broker_key].type.name
        value = strings.get(config.broker_key) or others.get(kind, "7")
        if name == "segment.bytes":
            value = "2097152"
        await alter(broker, EVERY_BROKER, (config.broker_key, SET, value))
        assert broker.topic_defaults()[name] == value
        followed.add(name)
    assert len(followed) == 25
    assert start().topic_defaults()["compression.type"] == "zstd"


REFUSED = [
    ([(RETENTION, 9, "1")], INVALID_CHANGE, "Unknown operations type 9"),
    ([("nowhere", SET, "1")], INVALID_CONFIG, "Unknown config name: nowhere"),
    ([("nowhere", APPEND, "1")], INVALID_CONFIG, "Unknown config name: nowhere"),
    ([(RETENTION, APPEND, "1")], INVALID_CONFIG, f"Config value append is not allowed for config key: {RETENTION}"),
    ([(POLICY, APPEND, "burn")], INVALID_CHANGE, f"Invalid value delete,burn for configuration {POLICY}: {ONE_OF}"),
    ([(RETENTION, SUBTRACT, "1")], INVALID_CONFIG, f"Config value subtract is not allowed for config key: {RETENTION}"),
    (
        [("num.partitions", SET, "2"), (RETENTION, SET, "x"), ("node.id", SET, "2")],
        *(INVALID_CHANGE, "Cannot update these configs dynamically: [node.id, num.partitions]"),
    ),
    (
        [("log.cleaner.threads", SET, "2"), ("ssl.key.password", SET, "x"), ("ssl.cipher.suites", APPEND, "x")],
        *(INVALID_CHANGE, "Cannot update these configs dynamically: [log.cleaner.threads, ssl.cipher.suites]"),
    ),
    (
        [("ssl.key.password", SET, "x"), ("ssl.keystore.type", SET, "JKS")],
        INVALID_CHANGE,
        "These security configs can be dynamically updated only per-listener using the listener prefix:"
        " [ssl.key.password, ssl.keystore.type]",
    ),
]
#: Values that a config cannot have, and the messages about them.
BAD_VALUES = [
    (RETENTION, "soon", f"Invalid value soon for configuration {RETENTION}: Not a number of type LONG"),
    (RETENTION, "0", f"{FAILED} {RETENTION} must be unlimited (-1) or, greater than or equal to 1"),
    ("log.roll.ms", "0", f"{FAILED} log.roll.ms must be greater than or equal to 1"),
    ("log.roll.jitter.ms", "-1", f"{FAILED} log.roll.jitter.ms must be greater than or equal to 0"),
    (BUFFER, "1048576", f"{FAILED} {BUFFER} must be at least 1MB per cleaner thread."),
    (LEVEL, "0", f"Invalid value 0 for configuration {LEVEL}: Value must be between 1 and 9 or equal to -1"),
    (INTERVAL, "15001", f"{INTERVAL} must be less than or equal to group.consumer.max.assignment.interval.ms"),
]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [*REFUSED, *(([(name, SET, value)], INVALID_CHANGE, message) for name, value, message in BAD_VALUES)],
)
async def test_refused_changes(
    start: Callable[..., BrokerSettings], changes: list[Change], error: type[Exception], message: str
) -> None:
    broker = start()
    for name in (EVERY_BROKER, "1"):
        with pytest.raises(error) as caught:
            await alter(broker, name, *changes)
        assert str(caught.value) == message
        assert broker.altered(name) == {}


async def test_anything_may_be_deleted(start: Callable[..., BrokerSettings]) -> None:
    broker = start()
    await alter(broker, "1", ("nowhere", DELETE, None), ("num.partitions", DELETE, None), (RETENTION, DELETE, "1"))
    assert broker.altered("1") == {}


async def test_lists_grow_and_shrink(start: Callable[..., BrokerSettings]) -> None:
    broker = start()
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        await alter(broker, "1", (POLICY, operation, value))
        assert (broker.value(POLICY), broker.topic_defaults()["cleanup.policy"]) == (expected, expected)


async def test_logs_understand_numbers_below_their_least(start: Callable[..., BrokerSettings]) -> None:
    broker = start()
    await alter(
        broker, "1", (RETENTION, SET, "-5"), ("log.retention.bytes", SET, "-5"), ("log.flush.interval.ms", SET, "-7")
    )
    defaults = broker.topic_defaults()
    assert [defaults[name] for name in ("retention.ms", "retention.bytes", "flush.ms")] == ["-1", "-1", "0"]


def test_kafkas_dynamic_keys_are_dynamic_here() -> None:
    static = {name for name, config in STORAGE_CONFIGS.items() if not config.is_dynamic}
    assert not static & DYNAMIC
    assert {"log.retention.hours", "log.retention.minutes", "log.roll.hours", "num.partitions"} <= static
