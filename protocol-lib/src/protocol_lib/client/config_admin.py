"""Configs of topics and brokers: describe, change one by one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from protocol_lib.client.cluster import NOT_THERE, Cluster
from protocol_lib.client.errors import check
from protocol_lib.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol_lib.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class ResourceType(IntEnum):
    """Kinds of resources with configs, by number in the APIs (org.apache.kafka.common.config.ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Source of a value, by its number in DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, _value: object) -> "ConfigSource":
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic by its name, a broker by its node id as text (empty for the default of all brokers)."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config; sensitive ones have no value."""

    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool


class ConfigAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self, resource: ConfigResource, names: Collection[str] | None = None) -> dict[str, ConfigEntry]:
        """Return these configs by name, by default all of the resource."""
        asked = DescribeConfigsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configuration_keys=None if names is None else tuple(names),
        )
        request = DescribeConfigsRequest(resources=(asked,))

        async def attempt() -> dict[str, ConfigEntry]:
            response: DescribeConfigsResponse = await self._ask(resource, request)
            answer = response.results[0]
            check(answer.error_code, resource.name, answer.error_message)
            return {
                each.name: ConfigEntry(
                    each.value,
                    ConfigSource.DEFAULT if each.is_default else ConfigSource(each.config_source),
                    each.read_only,
                    each.is_sensitive,
                )
                for each in answer.configs
            }

        return await self._cluster.retrying(attempt, but=NOT_THERE)

    async def alter(
        self,
        resource: ConfigResource,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 (the operation's name)
        delete: Collection[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change some configs and leave the others (KIP-339): set values, restore defaults, add to lists and subtract
        from them."""
        values = (
            (ConfigOperation.SET, set or {}),
            (ConfigOperation.DELETE, dict.fromkeys(delete)),
            (ConfigOperation.APPEND, append or {}),
            (ConfigOperation.SUBTRACT, subtract or {}),
        )
        altered = AlterConfigsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configs=tuple(
                AlterableConfig(name=name, config_operation=operation, value=value)
                for operation, chosen in values
                for name, value in chosen.items()
            ),
        )
        request = IncrementalAlterConfigsRequest(resources=(altered,), validate_only=validate_only)

        async def attempt() -> None:
            response: IncrementalAlterConfigsResponse = await self._ask(resource, request)
            answer = response.responses[0]
            check(answer.error_code, resource.name, answer.error_message)

        await self._cluster.retrying(attempt, but=NOT_THERE)

    async def _ask(self, resource: ConfigResource, request: Any) -> Any:
        """Ask a broker for its own configs, and any of them for all others."""
        if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name:
            return await self._cluster.request(int(resource.name), request)
        return await self._cluster.any_request(request)
