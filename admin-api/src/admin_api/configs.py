"""Configurations from storage, in Confluent's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from broker_contract import topics_pb2

from admin_api.schemas.clusters import ConfigSource, ConfigSynonym

__all__ = ["ConfigFields", "fields"]

#: Kafka's numbers of a configuration's source.
_SOURCES: Mapping[int, ConfigSource] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
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
