"""Configurations from storage, in Confluent's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from broker_contract import topics_pb2

from admin_api import errors
from admin_api.schemas.clusters import ConfigSource, ConfigSynonym
from admin_api.schemas.configs import AlterConfigsRequest, ConfigType, DocumentedConfig
from admin_api.storage import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, StorageCalls

#: Kafka's operations on a configuration.
_SET, _DELETE = 0, 1
_NOUNS = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker", GROUP_RESOURCE: "group"}

#: Kafka's numbers of a configuration's source.
_SOURCES: Mapping[int, ConfigSource] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
#: Kafka's numbers of a configuration's type.
_TYPES: Mapping[int, ConfigType] = {
    1: "BOOLEAN",
    2: "STRING",
    3: "INT",
    4: "SHORT",
    5: "LONG",
    6: "DOUBLE",
    7: "LIST",
    8: "CLASS",
    9: "PASSWORD",
}


class ConfigFields(TypedDict):
    """Fields that the configurations of a topic and of a broker have in common."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: ConfigSource
    synonyms: list[ConfigSynonym]


class ConfiguredResource:
    """One resource with configurations, as storage has it. Every method raises ApiError as `StorageCalls` does."""

    __slots__ = ("_name", "_storage", "_type")

    def __init__(self, storage: StorageCalls, resource_type: int, name: str) -> None:
        self._storage = storage
        self._type = resource_type
        self._name = name

    async def configs(self) -> list[topics_pb2.Config]:
        """Return all configurations in the order of their names."""
        (resource,) = await self._storage.configs(self._type, [self._name])
        return sorted(resource.configs, key=lambda config: config.name)

    async def config(self, name: str) -> topics_pb2.Config:
        """Return one configuration. Raises ApiError (404) if there is none of this name."""
        (resource,) = await self._storage.configs(self._type, [self._name], key=name)
        for config in resource.configs:
            if config.name == name:
                return config
        raise errors.not_found(f"A {_NOUNS[self._type]} has no configuration of this name.")

    async def set(self, name: str, value: str | None) -> None:
        """Give a configuration a value, which storage checks."""
        await self._alter([topics_pb2.ConfigChange(name=name, operation=_SET, value=value)])

    async def reset(self, name: str) -> None:
        """Return a configuration to its default."""
        await self._alter([topics_pb2.ConfigChange(name=name, operation=_DELETE)])

    async def alter(self, given: AlterConfigsRequest) -> None:
        """Make all changes of a request, or none if storage refuses one."""
        names = [change.name for change in given.data]
        if len(set(names)) != len(names):
            raise errors.refused("A configuration is given twice.")
        changes = [
            topics_pb2.ConfigChange(name=change.name, operation=_DELETE)
            if change.operation == "DELETE"
            else topics_pb2.ConfigChange(name=change.name, operation=_SET, value=change.value)
            for change in given.data
        ]
        await self._alter(changes, validate_only=given.validate_only)  # mutant: configs-changed-together

    async def _alter(self, changes: list[topics_pb2.ConfigChange], *, validate_only: bool = False) -> None:
        await self._storage.alter_configs(self._type, self._name, changes, validate_only=validate_only)


def fields(config: topics_pb2.Config) -> ConfigFields:
    return ConfigFields(
        name=config.name,
        value=config.value if config.HasField("value") and not config.is_sensitive else None,
        is_default=config.is_default,
        is_read_only=config.is_read_only,
        is_sensitive=config.is_sensitive,
        source=_SOURCES.get(config.source, "UNKNOWN"),
        synonyms=[
            ConfigSynonym(
                name=synonym.name,
                value=synonym.value if synonym.HasField("value") and not config.is_sensitive else None,
                source=_SOURCES.get(synonym.source, "UNKNOWN"),
            )
            for synonym in config.synonyms
        ],
    )


def documented(config: topics_pb2.Config) -> DocumentedConfig:
    """Return a configuration with its meaning, and with the value that holds after a reset."""
    common = fields(config)
    is_shown = config.HasField("inherited") and not config.is_sensitive
    return DocumentedConfig(
        **common,
        default=config.inherited if is_shown else None,
        type=_TYPES.get(config.type, "UNKNOWN"),
        documentation=config.documentation,
    )
