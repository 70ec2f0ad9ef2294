"""Storage's settings."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from service_chassis.settings import SettingsError, reference
from storage_svc.applied_settings import broker_settings
from storage_svc.settings import StorageSettings, parse_topics
from storage_svc.topics.broker_configs import BROKER_CONFIGS, STORAGE_CONFIGS
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogFile
from storage_svc.topics.configs import TOPIC_CONFIGS
from storage_svc.topics.group_configs import GROUP_CONFIGS

#: Topic configs without a default of brokers, in Apache Kafka too.
WITHOUT_BROKER_CONFIG = {
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
}


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("", {}),
        ("orders:3,users:1", {"orders": 3, "users": 1}),
        (" orders:3", {"orders": 3}),
        ("orders, users:2,", {"orders": -1, "users": 2}),
    ],
)
def test_topics(text: str, topics: dict[str, int]) -> None:
    assert parse_topics(text) == topics


@pytest.mark.parametrize(
    "text", ["orders:0", "orders:-1", "orders:x", "orders:", "a/b:1", "a:1,a:2", ":1", "a:²", "a:9999,b:2"]
)
def test_topics_that_cannot_be_read_are_named_by_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_TOPICS", text)
    with pytest.raises(SettingsError, match="MILLRACE_TOPICS"):
        StorageSettings()


def test_defaults_are_kafkas(tmp_path: Path) -> None:
    """With none of the broker's own defaults set, topics get Kafka's."""
    with contextlib.closing(CatalogFile.open(tmp_path)) as file:
        values = broker_settings(StorageSettings(), Catalog(file), {}).topic_defaults()
    assert values == {name: TOPIC_CONFIGS[name].default for name in values}
    assert TOPIC_CONFIGS.keys() - values.keys() == WITHOUT_BROKER_CONFIG


def test_every_setting_is_documented() -> None:
    table = reference([StorageSettings])
    assert "| `MILLRACE_FLUSH_POLICY` | `group` |" in table
    assert table.count("\n") == len(StorageSettings.fields) + 2


def test_every_broker_config_has_its_setting() -> None:
    assert {config.setting for config in STORAGE_CONFIGS.values()} <= StorageSettings.fields.keys()


def test_topic_configs_name_broker_configs_that_exist() -> None:
    assert {config.broker_key for config in TOPIC_CONFIGS.values()} - {None} <= BROKER_CONFIGS.keys()
    assert {config.broker_key for config in GROUP_CONFIGS.values()} <= BROKER_CONFIGS.keys()
