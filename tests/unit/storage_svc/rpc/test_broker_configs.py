"""The topics service over gRPC: configs of brokers are altered while topics and groups use them."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_contract import cluster_pb2 as cluster
from broker_contract import topics_pb2 as topics
from protocol_lib.errors import ErrorCode
from storage_svc.app import Storage
from storage_svc.settings import StorageSettings
from storage_svc.topics.broker_configs import BROKER_CONFIGS

from tests.unit.storage_svc.rpc.control_peer import Peer, new

E = ErrorCode
BROKER = 4


@pytest.fixture(autouse=True)
async def gateway(peer: Peer) -> None:
    """The gateway with node id 1."""
    own = cluster.GatewayConfig(name="max.connections", value="10", default_value="20", is_set=True, documentation="D.")
    request = cluster.RegisterGatewayRequest(name="gw", lease_ms=60_000, configs=[own])
    assert (await peer.cluster.RegisterGateway(request)).node_id == 1


async def alter(
    peer: Peer, name: str, *, validate_only: bool = False, replaces_all: bool = False, **configs: str
) -> tuple[int, str]:
    changes = [topics.ConfigChange(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = topics.ConfigChanges(type=BROKER, name=name, changes=changes, replaces_all=replaces_all)
    request = topics.AlterConfigsRequest(resources=[resource], validate_only=validate_only, asking_broker=1)
    (outcome,) = (await peer.topics.AlterConfigs(request)).resources
    return outcome.error_code, outcome.error_message


async def shown(peer: Peer, kind: int, name: str, key: str) -> tuple[str, int, list[tuple[str, str, int]]]:
    """Return a config's value, source and synonyms."""
    (config,) = (await peer.configs(kind, name, key)).configs
    return config.value, config.source, [(each.name, each.value, each.source) for each in config.synonyms]


async def test_topics_without_their_own_value_follow(peer: Peer) -> None:
    await peer.create(new("follows", partitions=3), new("owns", max_message_bytes="77"))
    assert await alter(peer, "", message_max_bytes="5000") == (0, "")
    assert await alter(peer, "1", message_max_bytes="6000") == (0, "")
    synonyms = [("message.max.bytes", "6000", 2), ("message.max.bytes", "5000", 3), ("message.max.bytes", "1048588", 5)]
    assert await shown(peer, 2, "follows", "max.message.bytes") == ("6000", 2, synonyms)
    own = ("max.message.bytes", "77", 1)
    assert await shown(peer, 2, "owns", "max.message.bytes") == ("77", 1, [own, *synonyms])
    assert await shown(peer, BROKER, "1", "message.max.bytes") == ("6000", 2, synonyms)
    assert await shown(peer, BROKER, "", "message.max.bytes") == ("5000", 3, [("message.max.bytes", "5000", 3)])
    logs = peer.storage.logs.logs
    assert [logs["follows", index].config.max_message_bytes for index in range(3)] == [6000] * 3
    assert logs["owns", 0].config.max_message_bytes == 77
    assert await alter(peer, "1", replaces_all=True) == (0, "")
    await peer.create(new("later"))
    assert [logs[name, 0].config.max_message_bytes for name in ("follows", "owns", "later")] == [5000, 77, 5000]


async def test_parts_of_storage_follow(peer: Peer) -> None:
    values = {
        "producer_id_expiration_ms": "7",
        "log_cleaner_backoff_ms": "8",
        "log_cleaner_dedupe_buffer_size": "1048577",
        "log_cleaner_io_max_bytes_per_second": "9.5e3",
        "group_consumer_assignment_interval_ms": "10",
        "transaction_partition_verification_enable": "FALSE",
    }
    storage = peer.storage
    parts = (storage.data._transactional, storage.coordinator.transactional_offsets)
    assert [each.verifies for each in parts] == [True, True]
    assert await alter(peer, "", **values) == (0, "")
    assert [each.verifies for each in parts] == [False, False]
    maintenance = peer.storage.maintenance
    for settings in (maintenance.settings, maintenance.cleaner._settings):
        assert (settings.producer_id_expiration_ms, settings.cleaner_backoff_ms) == (7, 8)
        assert (settings.cleaner_dedupe_buffer_bytes, settings.cleaner_io_bytes_per_second) == (1048577, 9500)
    groups = peer.storage.coordinator._consumer
    assert groups._settings_of("g").assignment_interval_ms == 10
    assert await alter(peer, "", log_cleaner_io_max_bytes_per_second="1.7976931348623157E308") == (0, "")
    assert maintenance.settings.cleaner_io_bytes_per_second == 0


async def test_groups_without_their_own_interval_follow(peer: Peer) -> None:
    interval = "consumer.assignment.interval.ms"
    groups = peer.storage.coordinator._consumer
    change = topics.ConfigChange(name=interval, value="500")
    other = topics.ConfigChange(name="consumer.session.timeout.ms", value="50000")
    resources = [
        topics.ConfigChanges(type=32, name="owns", changes=[change]),
        topics.ConfigChanges(type=32, name="follows", changes=[other]),
    ]
    await peer.topics.AlterConfigs(topics.AlterConfigsRequest(resources=resources))
    assert await alter(peer, "", group_consumer_assignment_interval_ms="3000") == (0, "")
    intervals = {"owns": 500, "follows": 3000, "new": 3000}
    assert {each: groups._settings_of(each).assignment_interval_ms for each in intervals} == intervals
    assert groups._settings_of("follows").session_timeout_ms == 50_000
    value, source, synonyms = await shown(peer, 32, "follows", interval)
    assert (value, source, synonyms[0]) == ("3000", 3, ("group." + interval, "3000", 3))


async def test_validation_alone_changes_nothing(peer: Peer) -> None:
    assert await alter(peer, "1", validate_only=True, message_max_bytes="5") == (0, "")
    refused = (E.INVALID_REQUEST, "Invalid value x for configuration message.max.bytes: Not a number of type INT")
    assert await alter(peer, "1", validate_only=True, message_max_bytes="x") == refused
    assert (await shown(peer, BROKER, "1", "message.max.bytes"))[:2] == ("1048588", 5)


@pytest.mark.parametrize(
    ("name", "configs", "expected"),
    [
        ("77", {"log_roll_ms": "1"}, (E.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 77")),
        ("-1", {"log_roll_ms": "1"}, (E.INVALID_REQUEST, "Unexpected broker id, expected 1, but received -1")),
        ("x", {"log_roll_ms": "1"}, (E.INVALID_REQUEST, "Node id must be an integer, but it is: x")),
        ("1", {"nowhere": "1"}, (E.INVALID_CONFIG, "Unknown config name: nowhere")),
        ("", {"num_partitions": "1"}, (E.INVALID_REQUEST, "Cannot update these configs dynamically: [num.partitions]")),
    ],
)
async def test_refusals(peer: Peer, name: str, configs: dict[str, str], expected: tuple[int, str]) -> None:
    assert await alter(peer, name, **configs) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("77", "Unexpected broker id, expected 1 or empty string, but received 77"),
        ("x", "Broker id must be an integer, but it is: x"),
    ],
)
async def test_brokers_that_cannot_be_described(peer: Peer, name: str, expected: str) -> None:
    resource = topics.ConfigResource(type=BROKER, name=name, all_keys=True)
    request = topics.DescribeConfigsRequest(resources=[resource], asking_broker=1)
    (answer,) = (await peer.topics.DescribeConfigs(request)).resources
    assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, expected)


async def test_a_gateways_own_configs(peer: Peer) -> None:
    synonyms = [("max.connections", "10", 4), ("max.connections", "20", 5)]
    assert await shown(peer, BROKER, "1", "max.connections") == ("10", 4, synonyms)
    assert await alter(peer, "1", max_connections="30") == (0, "")
    assert await shown(peer, BROKER, "1", "max.connections") == ("30", 2, [("max.connections", "30", 2), *synonyms])
    answers = [
        await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name=name, lease_ms=60_000))
        for name in ("gw", "other")
    ]
    assert [dict(each.altered_configs) for each in answers] == [{"max.connections": "30"}, {}]


async def test_no_synonym_names_a_config_that_does_not_exist(peer: Peer) -> None:
    await peer.create(new("orders"))
    listed = {config.name for config in (await peer.configs(BROKER, "1")).configs}
    assert listed <= BROKER_CONFIGS.keys()
    for kind, name in ((2, "orders"), (BROKER, "1"), (32, "g")):
        for config in (await peer.configs(kind, name)).configs:
            assert {each.name for each in config.synonyms} <= listed, config.name


async def test_alterations_are_in_force_after_a_crash(peer: Peer, tmp_path: Path) -> None:
    """Nothing but the catalog's own sync writes them."""
    await peer.create(new("orders"))
    altered = {"log_retention_ms": "5", "producer_id_expiration_ms": "6", "log_cleaner_backoff_ms": "7"}
    assert await alter(peer, "1", **altered) == (0, "")
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (tmp_path / "data").glob("catalog.sqlite*"):
        (copy / path.name).write_bytes(path.read_bytes())
    again = await Storage.start(StorageSettings(data_dir=copy, log_retention_ms=1))
    assert again.logs.logs["orders", 1].config.retention_ms == 5
    assert again.maintenance.settings.producer_id_expiration_ms == 6
    assert again.maintenance.cleaner._settings.cleaner_backoff_ms == 7
    await again.answer_parked()
    await again.stop()
