"""Configs of groups: the values that may be set, the values that count, and that both last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogError
from storage_svc.topics.configs import InvalidConfigError
from storage_svc.topics.group_configs import GROUP_CONFIGS, GroupConfigs

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
MIN, MAX = "group.consumer.min", "group.consumer.max"
LIMITS = {SESSION: (2000, 45000, 60000), HEARTBEAT: (1000, 5000, 15000), ASSIGNMENT: (0, 1000, 15000)}
GREATEST = {SESSION: "60000", HEARTBEAT: "15000", ASSIGNMENT: "0"}
Changes = list[tuple[str, Mapping[str, int]]]


def broker(**others: str) -> Callable[[str], int]:
    values = {}
    for config in GROUP_CONFIGS.values():
        keys = (config.min_key, config.broker_key, config.max_key)
        values.update({key: str(value) for key, value in zip(keys, LIMITS[config.name], strict=True)})
    values |= {name.replace("_", "."): value for name, value in others.items()}
    return lambda name: int(values[name])


@pytest.fixture
def changes() -> Changes:
    """The changes that the coordinator learns of."""
    return []


def configs_on(catalog: Catalog, changes: Changes, **others: str) -> GroupConfigs:
    made = GroupConfigs(
        catalog, catalog.read().group_configs, broker(**others), lambda group_id, own: changes.append((group_id, own))
    )
    made.load()
    return made


@pytest.fixture
async def configs(catalog: Catalog, changes: Changes) -> GroupConfigs:
    return configs_on(catalog, changes)


def test_the_names_of_the_brokers_keys() -> None:
    assert [(each.broker_key, each.min_key, each.max_key) for each in GROUP_CONFIGS.values()] == [
        (f"group.consumer.{name}", f"group.consumer.min.{name}", f"group.consumer.max.{name}")
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({SESSION: " 50000 "}, {SESSION: "50000"}),
        ({SESSION: "+2001", HEARTBEAT: "02000"}, {SESSION: "2001", HEARTBEAT: "2000"}),
        (GREATEST, GREATEST),
    ],
)
async def test_what_may_be_set(configs: GroupConfigs, given: dict[str, str], kept: dict[str, str]) -> None:
    assert configs.check(given) == kept


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nonsense": "1", SESSION: "x"}, "Unknown group config name: nonsense"),
        ({"share.session.timeout.ms": "50000"}, "Unknown group config name: share.session.timeout.ms"),
        ({SESSION: "soon"}, f"Invalid value soon for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: ""}, f"Invalid value  for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: "5_000"}, f"Invalid value 5_000 for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: "2147483648"}, f"Invalid value 2147483648 for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: "0"}, f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        ({ASSIGNMENT: "-1"}, f"Invalid value -1 for configuration {ASSIGNMENT}: Value must be at least 0"),
        ({SESSION: "1999"}, f"{SESSION} must be greater than or equal to {MIN}.session.timeout.ms"),
        ({SESSION: "60001"}, f"{SESSION} must be less than or equal to {MAX}.session.timeout.ms"),
        ({SESSION: "1", HEARTBEAT: "1"}, f"{HEARTBEAT} must be greater than or equal to {MIN}.heartbeat.interval.ms"),
        ({ASSIGNMENT: "15001"}, f"{ASSIGNMENT} must be less than or equal to {MAX}.assignment.interval.ms"),
        ({SESSION: "5000"}, f"{SESSION} must be greater than {HEARTBEAT}"),
        ({SESSION: "6000", HEARTBEAT: "6000"}, f"{SESSION} must be greater than {HEARTBEAT}"),
    ],
)
async def test_what_may_not_be_set(configs: GroupConfigs, given: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        configs.check(given)
    assert str(raised.value) == message


async def test_what_is_set_counts_at_once_and_after_a_restart(
    catalog: Catalog, configs: GroupConfigs, changes: Changes
) -> None:
    await configs.configure("g", {SESSION: "50000"})
    await configs.configure("h", {HEARTBEAT: "6000"})
    await configs.configure("h", {})
    assert changes == [("g", {SESSION: 50000}), ("h", {HEARTBEAT: 6000}), ("h", {})]
    changes.clear()
    again = configs_on(catalog, changes)
    assert (again.group_ids(), again.own("g"), again.own("h")) == (["g"], {SESSION: "50000"}, {})
    assert changes == [("g", {SESSION: 50000})]


async def test_what_lies_outside_of_new_bounds_counts_as_the_nearest_within(
    catalog: Catalog, configs: GroupConfigs, changes: Changes
) -> None:
    await configs.configure("g", {SESSION: "50000", HEARTBEAT: "2000"})
    changes.clear()
    again = configs_on(
        catalog, changes, group_consumer_max_session_timeout_ms="46000", group_consumer_min_heartbeat_interval_ms="3000"
    )
    assert changes == [("g", {HEARTBEAT: 3000, SESSION: 46000})]
    assert again.own("g") == {SESSION: "50000", HEARTBEAT: "2000"}


async def test_what_cannot_be_stored_does_not_count(tmp_path: Path, changes: Changes) -> None:
    catalog = Catalog.open(tmp_path)
    configs = configs_on(catalog, changes)
    await catalog.close()
    with pytest.raises(CatalogError, match="closed"):
        await configs.configure("g", {SESSION: "50000"})
    assert (configs.group_ids(), changes) == ([], [])
