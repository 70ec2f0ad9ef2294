"""The topics service over gRPC: configs are described and altered."""

from __future__ import annotations

import pytest
from broker_contract import cluster_pb2 as cluster
from broker_contract import topics_pb2 as topics
from protocol_lib.errors import ErrorCode
from storage_svc.rpc import config_alterations

from tests.unit.storage_svc.rpc.control_peer import Peer, new

E = ErrorCode


async def test_topic_configs_with_source_and_synonyms(peer: Peer) -> None:
    await peer.create(new("orders", segment_ms="77", retention_ms="5"))
    answer = await peer.configs(2, "orders")
    assert (answer.error_code, len(answer.configs)) == (0, 35)
    by_name = {config.name: config for config in answer.configs}
    retention = by_name["retention.ms"]
    assert (retention.value, retention.source, retention.is_default, retention.is_read_only) == ("5", 1, False, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "1234", 4),
        ("log.retention.hours", "168", 5),
    ]
    policy = by_name["cleanup.policy"]
    assert (policy.value, policy.source, policy.is_default, policy.type) == ("delete", 5, True, 7)
    assert by_name["remote.storage.enable"].is_read_only
    assert all(config.documentation for config in answer.configs)


async def test_chosen_keys_only(peer: Peer) -> None:
    await peer.create(new("orders"))
    answer = await peer.configs(2, "orders", "retention.ms", "no.such.key")
    assert [(config.name, config.value, config.source) for config in answer.configs] == [("retention.ms", "1234", 4)]


async def test_broker_configs(peer: Peer) -> None:
    await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="gw", lease_ms=60_000))
    answer = await peer.configs(4, "1")
    by_name = {config.name: config for config in answer.configs}
    assert (by_name["num.partitions"].value, by_name["num.partitions"].source) == ("2", 4)
    assert (by_name["log.roll.ms"].HasField("value"), by_name["log.roll.ms"].source) == (False, 5)
    assert (by_name["log.roll.hours"].value, by_name["log.roll.hours"].source) == ("168", 5)
    assert by_name["auto.create.topics.enable"].value == "true"
    assert by_name["flush.policy"].value == "group"
    assert all(config.documentation for config in answer.configs)
    assert (await peer.configs(4, "")).configs == []


async def alter(
    peer: Peer, kind: int, name: str, validate_only: bool = False, **configs: str | None
) -> tuple[int, str]:
    """Set a resource's configs, and return the error code and message."""
    changes = [topics.ConfigChange(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = topics.ConfigChanges(type=kind, name=name, changes=changes)
    request = topics.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (outcome,) = (await peer.topics.AlterConfigs(request)).resources
    return outcome.error_code, outcome.error_message


async def test_group_configs_with_source_and_synonyms(peer: Peer) -> None:
    assert await alter(peer, 32, "g", validate_only=True, consumer_session_timeout_ms="60000") == (0, "")
    assert await alter(peer, 32, "g", consumer_session_timeout_ms="50000") == (0, "")
    answer = await peer.configs(32, "g")
    assert (answer.error_code, [config.name for config in answer.configs]) == (
        0,
        ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "consumer.assignment.interval.ms"],
    )
    heartbeat, session, _ = answer.configs
    assert (session.value, session.source, session.is_default, session.is_read_only) == ("50000", 8, False, False)
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "46000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert (heartbeat.value, heartbeat.source, heartbeat.is_default, heartbeat.type) == ("5000", 5, True, 3)
    assert [(each.name, each.value, each.source) for each in heartbeat.synonyms] == [
        ("group.consumer.heartbeat.interval.ms", "5000", 5)
    ]
    assert all(config.documentation for config in answer.configs)


@pytest.mark.parametrize(
    ("kind", "name", "configs", "expected"),
    [
        (32, "", {}, (E.INVALID_REQUEST, "Default group resources are not allowed.")),
        (32, "g" * 32_768, {}, (E.INVALID_REQUEST, "No group has a name as long as that.")),
        (32, "g", {"nonsense": "1"}, (E.INVALID_CONFIG, "Unknown group config name: nonsense")),
        (4, "9", {}, (E.INVALID_REQUEST, "Unexpected broker id, but received 9")),
        (2, "nowhere", {"flush_ms": None}, (E.INVALID_REQUEST, "Null value not supported for : flush.ms")),
        (8, "1", {}, (E.INVALID_REQUEST, "Unknown resource type 8")),
        (16, "", {}, (E.INVALID_REQUEST, "Subscription name can't be empty")),
        (16, "s", {"match": "client_id=["}, (E.INVALID_CONFIG, "Illegal client matching pattern: client_id=[")),
    ],
)
async def test_configs_that_cannot_be_altered(
    peer: Peer, kind: int, name: str, configs: dict[str, str | None], expected: tuple[int, str]
) -> None:
    assert await alter(peer, kind, name, **configs) == expected


async def test_a_message_about_a_huge_name_is_cut(peer: Peer) -> None:
    huge = topics.ConfigChange(name="x" * 32_767, operation=2, value="1")
    request = topics.AlterConfigsRequest(resources=[topics.ConfigChanges(type=32, name="g", changes=[huge])])
    (outcome,) = (await peer.topics.AlterConfigs(request)).resources
    assert (outcome.error_code, len(outcome.error_message)) == (E.INVALID_CONFIG, 1000)
    (refused,) = await peer.create(new("a", **{"x" * 32_767: "1"}))
    assert (refused.error_code, len(refused.error_message)) == (E.INVALID_CONFIG, 1000)


async def test_the_number_of_groups_with_configs_is_bounded(peer: Peer) -> None:
    for name in ("a", "b"):
        assert await alter(peer, 32, name, consumer_session_timeout_ms="50000") == (0, "")
    refused = await alter(peer, 32, "c", consumer_session_timeout_ms="50000")
    assert refused == (E.POLICY_VIOLATION, "2 groups have configs: that is the limit.")
    assert await alter(peer, 32, "a", consumer_session_timeout_ms="55000") == (0, "")


async def test_configs_of_a_subscription(peer: Peer) -> None:
    assert await alter(peer, 16, "s", interval_ms=" 500 ", match="client_id=a.*, client_software_name=Java") == (0, "")
    append = topics.ConfigChange(name="metrics", operation=2, value="org.apache")
    resource = topics.ConfigChanges(type=16, name="s", changes=[append])
    (outcome,) = (await peer.topics.AlterConfigs(topics.AlterConfigsRequest(resources=[resource]))).resources
    refused = "Can't APPEND to key metrics because its type is not LIST."
    assert (outcome.error_code, outcome.error_message) == (E.INVALID_CONFIG, refused)
    answer = await peer.configs(16, "s")
    assert [(each.name, each.value, each.source, each.type, each.is_default) for each in answer.configs] == [
        ("interval.ms", "500", 7, 3, False),
        ("match", "client_id=a.*,client_software_name=Java", 7, 7, False),
        ("metrics", "", 5, 7, True),
    ]
    assert [[(each.name, each.value, each.source) for each in config.synonyms] for config in answer.configs] == [
        [("interval.ms", "500", 7)],
        [("match", "client_id=a.*,client_software_name=Java", 7)],
        [],
    ]


async def test_the_number_of_subscriptions_is_bounded(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_alterations, "SUBSCRIPTIONS_MAX", 1)
    assert await alter(peer, 16, "a", metrics="*") == (0, "")
    assert await alter(peer, 16, "b", metrics="*") == (E.POLICY_VIOLATION, "There are 1 subscriptions: the limit.")
    assert await alter(peer, 16, "a", metrics="x") == (0, "")


async def test_what_has_configs_is_listed(peer: Peer) -> None:
    await peer.create(new("orders"))
    await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="gw", lease_ms=60_000))
    await alter(peer, 32, "g", consumer_session_timeout_ms="50000")
    await alter(peer, 16, "s", metrics="*")
    answer = await peer.topics.ListConfigResources(topics.ListConfigResourcesRequest())
    assert [(each.type, each.name) for each in answer.resources] == [
        (2, "orders"),
        (8, "1"),
        (4, "1"),
        (16, "s"),
        (32, "g"),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (32, "", E.INVALID_REQUEST),
        (2, "nothing", E.UNKNOWN_TOPIC_OR_PARTITION),
        (4, "9", E.INVALID_REQUEST),
        (4, "one", E.INVALID_REQUEST),
        (4, "²", E.INVALID_REQUEST),
        (8, "1", E.INVALID_REQUEST),
        (16, "", E.INVALID_REQUEST),
    ],
)
async def test_configs_of_what_does_not_exist(peer: Peer, kind: int, name: str, expected: ErrorCode) -> None:
    answer = await peer.configs(kind, name)
    assert (answer.error_code, answer.type, answer.name, len(answer.configs)) == (expected, kind, name, 0)
    assert answer.error_message
