"""Settings of consumer groups (KIP-848), and the surroundings in which their machine handles an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from storage_svc.coordinator.classic.group import GroupLimits
from storage_svc.coordinator.consumer.group import Topics
from storage_svc.topics import group_configs


class MigrationPolicy(StrEnum):
    """A direction in which a group with members may change its protocol (group.consumer.migration.policy)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """The group.consumer.* settings of Kafka; a group may override some of them."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 10_000
    #: The first is the one for members that ask for none.
    assignors: tuple[str, ...] = ("uniform", "range")
    #: The least time between two computations of a target assignment.
    assignment_interval_ms: int = 1_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def with_configs(self, own: Mapping[str, int]) -> ConsumerGroupSettings:
        """Return these settings, with the configs of a group in their place, by the names of `group_configs`."""
        fields: dict[str, Any] = {_FIELDS[name]: value for name, value in own.items()}
        return replace(self, **fields)


#: The settings that a group's configs stand for.
_FIELDS: Final = {
    group_configs.SESSION_TIMEOUT: "session_timeout_ms",
    group_configs.HEARTBEAT_INTERVAL: "heartbeat_interval_ms",
    group_configs.ASSIGNMENT_INTERVAL: "assignment_interval_ms",
}


@dataclass(slots=True)
class Environment:
    """Everything that the machine may read except the group. Made for every event and never changed."""

    topics: Topics
    settings: ConsumerGroupSettings
    #: The limits of a group that turns into a classic one.
    classic_limits: GroupLimits
    #: Wall clock time.
    now_ms: int
