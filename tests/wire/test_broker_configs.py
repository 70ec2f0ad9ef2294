"""Configs of brokers and levels of their loggers, altered by a stock client: in force at once, kept over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from millrace.broker import Broker
from protocol_lib.errors import ErrorCode
from protocol_lib.messages import alter_configs, incremental_alter_configs
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis import logs
from support.certificates import Authority
from support.late import confluent

from tests.wire.conftest import Wire

BROKER, LOGGER = 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path_factory.mktemp("data"), topics="orders:1", fetch_max_bytes=100_000) as running:
        yield running


def altered(
    admin: confluent.admin.AdminClient,
    broker_id: str,
    name: str,
    value: str | None,
    kind: confluent.admin.ResourceType | None = None,
) -> None:
    """Set a config, or delete it."""
    changes = confluent.admin.AlterConfigOpType
    operation = changes.DELETE if value is None else changes.SET
    entry = confluent.admin.ConfigEntry(name, value or "", incremental_operation=operation)
    resource = confluent.admin.ConfigResource(
        kind or confluent.admin.ResourceType.BROKER, broker_id, incremental_configs=[entry]
    )
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


def described(
    admin: confluent.admin.AdminClient, kind: confluent.admin.ResourceType, resource: str, name: str
) -> tuple[str | None, int]:
    """Return a config's value and source."""
    (future,) = admin.describe_configs([confluent.admin.ConfigResource(kind, resource)]).values()
    entry: Any = future.result(60)[name]
    return entry.value, entry.source


def outcome(broker: Broker, value: bytes) -> str | None:
    """Return the reason why a record was refused."""
    errors: list[Any] = []
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    (error,) = errors
    return None if error is None else str(error.name())


def ask(broker: Broker, api: int, version: int, *requests: Any) -> list[Any]:
    async def talk() -> list[Any]:
        wire = Wire(*await asyncio.open_connection(*broker.kafka_address))
        answers = [await wire.call(api, version, request) for request in requests]
        await wire.close()
        return answers

    return asyncio.run(talk())


def changed(
    broker: Broker, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    """Return the outcome of an IncrementalAlterConfigs."""
    configs = tuple(
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    )
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=validate_only
    )
    (answer,) = ask(broker, 44, 1, request)
    (response,) = answer.responses
    return response.error_code, response.error_message


def replaced(broker: Broker, kind: int, name: str, *configs: tuple[str, str | None]) -> tuple[int, str | None]:
    """Return the outcome of an AlterConfigs."""
    every = tuple(alter_configs.AlterableConfig(name=key, value=value) for key, value in configs)
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=every)
    (answer,) = ask(broker, 33, 2, alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=False))
    (response,) = answer.responses
    return response.error_code, response.error_message


def levels(broker: Broker, name: str, *keys: str) -> Any:
    return shown(broker, LOGGER, name, *keys)


def shown(broker: Broker, kind: int, name: str, *keys: str) -> Any:
    """Return the description of a resource; without keys it has all of them, as in Kafka (ConfigHelper)."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    (answer,) = ask(broker, 32, 4, request)
    return answer.results[0]


def test_transactions_are_verified_until_a_client_alters_that(broker: Broker) -> None:
    admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = "transaction.partition.verification.enable"
    batch = build_batch([Record(0, 0, None, b"v")], producer_id=7, base_sequence=0, transactional=True)
    data = TopicProduceData(name="orders", partition_data=(PartitionProduceData(index=0, records=batch),))
    request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=10_000, topic_data=(data,))
    assert described(admin, confluent.admin.ResourceType.BROKER, "1", config) == ("true", 5)
    assert produced(broker, request) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    altered(admin, "1", config, "false")
    assert produced(broker, request) == ErrorCode.NONE
    altered(admin, "1", config, None)
    assert described(admin, confluent.admin.ResourceType.BROKER, "1", config) == ("true", 5)


def produced(broker: Broker, request: ProduceRequest) -> int:
    """Return the code of a Produce 9 of one batch."""
    (answer,) = ask(broker, 0, 9, request)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_topics_follow_at_once_and_after_a_restart(tmp_path: Path) -> None:
    topic = confluent.admin.ResourceType.TOPIC
    with Broker(data_dir=tmp_path, topics="orders:1") as broker:
        admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert changed(broker, BROKER, "", ("message.max.bytes", SET, "2000")) == (0, None)
        assert outcome(broker, b"x" * 5000) == "MSG_SIZE_TOO_LARGE"
        altered(admin, "1", "message.max.bytes", "9000")
        assert outcome(broker, b"x" * 5000) is None
        altered(admin, "1", "max.connections", "50")
    with Broker(data_dir=tmp_path) as broker:
        admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert described(admin, topic, "orders", "max.message.bytes") == ("9000", 2)
        assert described(admin, confluent.admin.ResourceType.BROKER, "1", "max.connections") == ("50", 2)
        assert outcome(broker, b"x" * 10_000) == "MSG_SIZE_TOO_LARGE"
        altered(admin, "1", "message.max.bytes", None)
        assert described(admin, topic, "orders", "max.message.bytes") == ("2000", 3)
        assert changed(broker, BROKER, "", ("message.max.bytes", DELETE, None)) == (0, None)
        assert described(admin, topic, "orders", "max.message.bytes") == ("1048588", 5)
        assert outcome(broker, b"x" * 10_000) is None


def test_a_gateways_configs(broker: Broker) -> None:
    admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    host, _ = broker.kafka_address
    assert described(admin, confluent.admin.ResourceType.BROKER, "1", "node.id") == ("1", 4)
    assert described(admin, confluent.admin.ResourceType.BROKER, "1", "fetch.max.bytes") == ("100000", 4)
    assert described(admin, confluent.admin.ResourceType.BROKER, "1", "listeners") == (f"EXTERNAL://{host}:0", 4)
    assert described(admin, confluent.admin.ResourceType.BROKER, "1", "socket.request.max.bytes") == ("104857600", 5)


def test_the_security_of_listeners_is_shown_without_keys(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").issue("server")
    settings = {"listener_security_protocol_map": "EXTERNAL:PLAINTEXT", "sasl_enabled_mechanisms": "PLAIN"}
    files = {"ssl_key_file": str(pair.key), "ssl_certificate_file": str(pair.certificate)}
    with Broker(data_dir=tmp_path / "data", **settings, **files) as broker:
        rows = {each.name: each for each in shown(broker, BROKER, "1").configs}
        refused = "These security configs can be dynamically updated only per-listener using the listener prefix"
        for name in ("ssl.keystore.key", "ssl.keystore.location"):
            expected = (ErrorCode.INVALID_REQUEST, f"{refused}: [{name}]")
            assert changed(broker, BROKER, "1", (name, SET, "x")) == expected
        static = (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [ssl.client.auth]")
        assert changed(broker, BROKER, "1", ("ssl.client.auth", SET, "required")) == static
    values = {name: row.value for name, row in rows.items()}
    assert values["listener.security.protocol.map"] == "EXTERNAL:PLAINTEXT"
    assert values["sasl.enabled.mechanisms"] == "PLAIN"
    assert values["ssl.keystore.location"] == str(pair.certificate)
    assert values["ssl.client.auth"] == "none"
    assert values["connections.max.reauth.ms"] == "0"
    key = rows["ssl.keystore.key"]
    synonyms = [(each.name, each.value, each.source) for each in key.synonyms]
    assert (key.value, key.is_sensitive, key.config_type, synonyms) == (None, True, 9, [("ssl.keystore.key", None, 4)])
    assert [name for name, row in rows.items() if row.is_sensitive] == ["ssl.keystore.key"]


def test_limits_of_connections_change_at_once(broker: Broker) -> None:
    """The next connection is refused, while the one that altered the limit stays and lifts it."""

    async def scenario() -> tuple[bytes, Any]:
        first = Wire(*await asyncio.open_connection(*broker.kafka_address))

        async def limit(value: str | None) -> None:
            config = incremental_alter_configs.AlterableConfig(
                name="max.connections.per.ip", config_operation=DELETE if value is None else SET, value=value
            )
            resource = incremental_alter_configs.AlterConfigsResource(
                resource_type=BROKER, resource_name="1", configs=(config,)
            )
            request = incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=(resource,), validate_only=False
            )
            answer = await first.call(44, 1, request)
            assert answer.responses[0].error_code == 0

        await limit("1")
        reader, writer = await asyncio.open_connection(*broker.kafka_address)
        refused = await reader.read()
        writer.close()
        await limit(None)
        second = Wire(*await asyncio.open_connection(*broker.kafka_address))
        request = DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(
                    resource_type=BROKER, resource_name="1", configuration_keys=("max.connections.per.ip",)
                ),
            ),
            include_synonyms=True,
            include_documentation=False,
        )
        answer = await second.call(32, 4, request)
        await first.close()
        await second.close()
        return refused, answer.results[0].configs[0]

    refused, config = asyncio.run(scenario())
    assert refused == b""
    assert (config.value, config.config_source) == ("1000", 5)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("1", [("nowhere", SET, "1")], (ErrorCode.INVALID_CONFIG, "Unknown config name: nowhere")),
        (
            "1",
            [("log.retention.ms", APPEND, "1")],
            (ErrorCode.INVALID_CONFIG, "Config value append is not allowed for config key: log.retention.ms"),
        ),
        (
            "",
            [("listeners", SET, "A://b:1"), ("node.id", SET, "3")],
            (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [listeners, node.id]"),
        ),
        (
            "77",
            [("log.retention.ms", SET, "1")],
            (ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 77"),
        ),
        (
            "1",
            [("log.retention.ms", SET, None)],
            (ErrorCode.INVALID_REQUEST, "Null value not supported for : log.retention.ms"),
        ),
        (
            "1",
            [("log.retention.ms", SET, "1"), ("log.retention.ms", DELETE, None)],
            (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        ),
        ("1", [("log.retention.ms", 9, "1")], (ErrorCode.INVALID_REQUEST, "Unknown operations type 9")),
        ("1", [("nowhere", DELETE, None), ("num.partitions", DELETE, None)], (ErrorCode.NONE, None)),
    ],
)
def test_refusals(
    broker: Broker, name: str, changes: list[tuple[str, int, str | None]], expected: tuple[int, str | None]
) -> None:
    assert changed(broker, BROKER, name, *changes) == expected
    assert changed(broker, BROKER, name, *changes, validate_only=True) == expected


def test_all_configs_of_a_broker_are_replaced(broker: Broker) -> None:
    assert replaced(broker, BROKER, "", ("log.roll.ms", "5000"), ("message.max.bytes", "6000")) == (0, None)
    assert replaced(broker, BROKER, "", ("log.roll.ms", "7000")) == (0, None)
    (only,) = shown(broker, BROKER, "").configs
    synonyms = [(each.name, each.value, each.source) for each in only.synonyms]
    assert (only.name, only.value, only.config_source, synonyms) == (
        "log.roll.ms",
        "7000",
        3,
        [("log.roll.ms", "7000", 3)],
    )
    assert replaced(broker, BROKER, "") == (0, None)
    refused = (ErrorCode.INVALID_REQUEST, "Null value not supported for : log.roll.ms")
    assert replaced(broker, BROKER, "1", ("log.roll.ms", None)) == refused


def test_levels_of_loggers(broker: Broker) -> None:
    module, package, other = "gateway_svc.app", "gateway_svc", "storage_svc.app"

    def rows_shown() -> list[tuple[str, str, int, bool, tuple[Any, ...]]]:
        configs = levels(broker, "1", logs.ROOT, package, module, other).configs
        return [(each.name, each.value, each.config_source, each.read_only, each.synonyms) for each in configs]

    def rows(*of: str) -> list[tuple[str, str, int, bool, tuple[Any, ...]]]:
        return [
            (name, level, 6, False, ()) for name, level in zip((package, module, logs.ROOT, other), of, strict=True)
        ]

    assert rows_shown() == rows("ERROR", "ERROR", "ERROR", "ERROR")
    assert changed(broker, LOGGER, "1", (package, SET, "FATAL"), validate_only=True) == (0, None)
    assert rows_shown() == rows("ERROR", "ERROR", "ERROR", "ERROR")
    assert changed(broker, LOGGER, "1", (package, SET, "FATAL")) == (0, None)
    assert rows_shown() == rows("FATAL", "FATAL", "ERROR", "ERROR")
    assert changed(broker, LOGGER, "1", (module, SET, "TRACE"), (logs.ROOT, SET, "WARN")) == (0, None)
    assert rows_shown() == rows("FATAL", "TRACE", "WARN", "WARN")
    assert changed(broker, LOGGER, "1", (package, DELETE, None), (module, DELETE, None)) == (0, None)
    assert rows_shown() == rows("WARN", "WARN", "WARN", "WARN")
    assert changed(broker, LOGGER, "1", (logs.ROOT, SET, "ERROR")) == (0, None)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("1", [("root", DELETE, None)], (42, "Removing the log level of the root logger is not allowed")),
        (
            "1",
            [("root", SET, "info")],
            (
                40,
                "Cannot set the log level of root to info as it is not a supported log level."
                " Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
            ),
        ),
        ("1", [("root", SET, "WARN"), ("nowhere", SET, "INFO")], (40, "Logger nowhere does not exist!")),
        ("1", [("nowhere", DELETE, None)], (40, "Logger nowhere does not exist!")),
        ("1", [("root", APPEND, "INFO")], (42, "APPEND operation is not allowed for the BROKER_LOGGER resource")),
        ("1", [("root", SUBTRACT, "INFO")], (42, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource")),
        ("1", [("root", SET, None)], (42, "Null value not supported for : root")),
        ("1", [("root", SET, "INFO"), ("root", SET, "INFO")], (42, "Error due to duplicate config keys")),
        ("", [("root", SET, "INFO")], (42, "Node id must be an integer, but it is: ")),
        ("77", [("root", SET, "INFO")], (42, "Unexpected node id. Expected 1, but received 77")),
    ],
)
def test_levels_that_cannot_be_set(
    broker: Broker, name: str, changes: list[tuple[str, int, str | None]], expected: tuple[int, str]
) -> None:
    assert changed(broker, LOGGER, name, *changes) == expected
    assert [each.value for each in levels(broker, "1", "root").configs] == ["ERROR"]


def test_loggers_that_cannot_be_described_or_replaced(broker: Broker) -> None:
    for name, message in (
        ("", "Broker id must not be empty"),
        ("x", "Broker id must be an integer, but it is: x"),
        ("77", "Unexpected broker id, expected 1 but received 77"),
    ):
        found = levels(broker, name)
        assert (found.error_code, found.error_message, found.configs) == (42, message, ())
    assert replaced(broker, LOGGER, "1", ("root", "INFO")) == (42, "Unknown resource type 8")


def test_a_read_only_config_is_refused_with_kafkas_message(broker: Broker) -> None:
    admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(confluent.KafkaException, match=r"Cannot update these configs dynamically: \[num.partitions\]"):
        altered(admin, "1", "num.partitions", "5")
