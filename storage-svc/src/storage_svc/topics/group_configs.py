"""Configs of groups (KIP-848; Kafka's GroupConfig): the table of keys, and the configs of each group.

    consumer.session.timeout.ms       silence after which a member is removed
    consumer.heartbeat.interval.ms    how often members send heartbeats
    consumer.assignment.interval.ms   least time between two assignments

A key that a group does not set follows the broker's group.<key>; a value that it sets must lie between the broker's
group.consumer.min.* and group.consumer.max.*. Values that lie outside since those were set otherwise count as the
nearest that is allowed. All concern members that speak KIP-848. A group need not exist to be configured, and its
configs outlive it, as in Kafka. Kafka's keys of share groups and of streams groups are unknown here: there are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from service_chassis import logs as service_logs

from storage_svc.topics.catalog import Catalog
from storage_svc.topics.configs import ConfigType, InvalidConfigError

log = service_logs.get(__name__)

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

_INT_MAX: Final = 2**31 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    name: str
    #: The least value, for every broker.
    minimum: int
    default: str
    documentation: str
    type: ConfigType = ConfigType.INT

    @property
    def broker_key(self) -> str:
        return f"group.{self.name}"

    @property
    def min_key(self) -> str:
        return self.broker_key.replace("consumer.", "consumer.min.", 1)

    @property
    def max_key(self) -> str:
        return self.broker_key.replace("consumer.", "consumer.max.", 1)


#: The configs, in the order in which Kafka checks them.
GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {
    config.name: config
    for config in (
        GroupConfig(
            HEARTBEAT_INTERVAL, 1, "5000", "Time between two heartbeats of a member of this KIP-848 consumer group."
        ),
        GroupConfig(SESSION_TIMEOUT, 1, "45000", "Session timeout of a member of this KIP-848 consumer group."),
        GroupConfig(ASSIGNMENT_INTERVAL, 0, "1000", "Shortest time between two assignments of this group."),
    )
}


class GroupConfigs:
    """Owner: the storage service's event loop.

    `on_changed` is called with a group's id and the values that count instead of the broker's: after `load` for each
    group that has any, and after every change.
    """

    def __init__(
        self,
        catalog: Catalog,
        own: Mapping[str, Mapping[str, str]],
        broker_number: Callable[[str], int],
        on_changed: Callable[[str, Mapping[str, int]], None],
    ) -> None:
        """Begin with the configs of each group that the catalog has."""
        self._catalog = catalog
        #: The value in force of a broker config.
        self._broker_number = broker_number
        self._on_changed = on_changed
        self._own = dict(own)

    def __len__(self) -> int:
        return len(self._own)

    def load(self) -> None:
        """Let the configs of all groups count."""
        for group_id, own in self._own.items():
            self._on_changed(group_id, self._in_force(group_id, own))

    def group_ids(self) -> list[str]:
        """Return the groups that have configs."""
        return sorted(self._own)

    def own(self, group_id: str) -> Mapping[str, str]:
        """Return the configs set for the group."""
        return self._own.get(group_id, {})

    async def configure(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Set these configs and no others for the group, which follows them from then on. One change after the other.

        Raises:
            CatalogError: the catalog cannot be written; all is as it was.
        """
        await self._catalog.set_group_configs(group_id, configs)
        if configs:
            self._own[group_id] = dict(configs)
        else:
            self._own.pop(group_id, None)
        self._on_changed(group_id, self._in_force(group_id, configs))

    def check(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the configs to store of a group.

        Raises:
            InvalidConfigError: an unknown key, a value that is no number or out of bounds, a session no longer than
                the time between two heartbeats.
        """
        kept = {name: value.strip() for name, value in given.items()}
        for name in kept:
            if name not in GROUP_CONFIGS:
                raise InvalidConfigError(f"Unknown group config name: {name[:300]}")
        numbers = {config.name: _number(config, kept[config.name]) for config in _those(kept)}
        for config in _those(kept):
            number = numbers[config.name]
            if number < self._limit(config.min_key):
                raise InvalidConfigError(f"{config.name} must be greater than or equal to {config.min_key}")
            if number > self._limit(config.max_key):
                raise InvalidConfigError(f"{config.name} must be less than or equal to {config.max_key}")
        session_ms, heartbeat_ms = (
            numbers.get(name, self._limit(GROUP_CONFIGS[name].broker_key))
            for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
        )
        if kept and session_ms <= heartbeat_ms:
            raise InvalidConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")
        return {name: str(number) for name, number in numbers.items()}

    def _in_force(self, group_id: str, own: Mapping[str, str]) -> dict[str, int]:
        found = {}
        for config in _those(own):
            stored = int(own[config.name])
            found[config.name] = min(max(stored, self._limit(config.min_key)), self._limit(config.max_key))
            if found[config.name] != stored:
                log.warning(
                    "a group's config is outside of the broker's bounds",
                    group=group_id,
                    config=config.name,
                    value=stored,
                    counts_as=found[config.name],
                )
        return found

    def _limit(self, broker_key: str) -> int:
        return self._broker_number(broker_key)


def _those(given: Mapping[str, str]) -> list[GroupConfig]:
    return [config for config in GROUP_CONFIGS.values() if config.name in given]


def _number(config: GroupConfig, value: str) -> int:
    fault = None
    if _NUMBER.fullmatch(value) is None or not -_INT_MAX - 1 <= int(value) <= _INT_MAX:
        fault = f"Not a number of type {config.type.name}"
    elif int(value) < config.minimum:
        fault = f"Value must be at least {config.minimum}"
    if fault is not None:
        raise InvalidConfigError(f"Invalid value {value[:100]} for configuration {config.name}: {fault}")
    return int(value)
