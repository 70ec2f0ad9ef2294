"""Configs of topics, groups and brokers as DescribeConfigs shows them: all known keys, with defaults, synonyms and
sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker_contract import topics_pb2 as pb
from protocol_lib.errors import ErrorCode

from storage_svc.topics.broker_configs import BrokerValue
from storage_svc.topics.configs import TOPIC_CONFIGS, ConfigType
from storage_svc.topics.group_configs import GROUP_CONFIGS

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32

#: Names and values of configs are cut in messages about them: old versions have strings of up to 32,767 bytes.
MESSAGE_LENGTH_MAX: Final = 1000

#: Kafka's config sources.
_TOPIC_SOURCE: Final = 1
_STATIC_BROKER_SOURCE: Final = 4
_DEFAULT_SOURCE: Final = 5
_GROUP_SOURCE: Final = 8


class _Config(Protocol):
    """The common properties of topic and group configs."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> ConfigType: ...
    @property
    def default(self) -> str: ...
    @property
    def broker_key(self) -> str | None: ...
    @property
    def documentation(self) -> str: ...


class ConfigDescriptions:
    def __init__(
        self,
        broker: Mapping[str, BrokerValue],
        topic_configs: Callable[[str], Mapping[str, str] | None],
        group_configs: Callable[[str], Mapping[str, str]],
        is_broker: Callable[[int], bool],
    ) -> None:
        self._broker = broker
        #: Topic name -> the configs that were set for it; None: there is no such topic.
        self._topic_configs = topic_configs
        #: Group id -> the configs that were set for it, whether or not there is such a group.
        self._group_configs = group_configs
        self._is_broker = is_broker

    def describe(self, resource: pb.ConfigResource) -> pb.ResourceConfigs:
        answer = pb.ResourceConfigs(type=resource.type, name=resource.name)
        configs: list[pb.Config] = []
        if resource.type == TOPIC_RESOURCE:
            own = self._topic_configs(resource.name)
            if own is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.error_message = f"Topic '{resource.name}' does not exist."
            else:
                configs = self.of_topic(own)
        elif resource.type == BROKER_RESOURCE:
            # The empty name is the cluster-wide default, of which nothing is set: configs of brokers are static here.
            if resource.name and not (resource.name.isascii() and resource.name.isdigit()):
                answer.error_code = ErrorCode.INVALID_REQUEST
                answer.error_message = f"Broker id must be a whole number, not '{resource.name[:100]}'."
            elif resource.name and not self._is_broker(int(resource.name)):
                answer.error_code = ErrorCode.INVALID_REQUEST
                answer.error_message = f"Unexpected broker id {resource.name[:100]}."
            elif resource.name:
                configs = [_broker_config(value) for value in self._broker.values()]
        elif resource.type == GROUP_RESOURCE:
            if resource.name:
                own = self._group_configs(resource.name)
                configs = [self._config(each, own, _GROUP_SOURCE) for each in GROUP_CONFIGS.values()]
            else:
                answer.error_code = ErrorCode.INVALID_REQUEST
                answer.error_message = "Group name must not be empty"
        else:
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = f"Unsupported resource type {resource.type}."
        wanted = frozenset(resource.keys)
        answer.configs.extend(config for config in configs if resource.all_keys or config.name in wanted)
        return answer

    def of_topic(self, own: Mapping[str, str]) -> list[pb.Config]:
        return [
            self._config(each, own, _TOPIC_SOURCE, is_read_only=each.check is None) for each in TOPIC_CONFIGS.values()
        ]

    def _config(
        self, config: _Config, own: Mapping[str, str], own_source: int, *, is_read_only: bool = False
    ) -> pb.Config:
        synonyms = []
        if config.name in own:
            synonyms.append(pb.Synonym(name=config.name, value=own[config.name], source=own_source))
        broker = self._broker.get(config.broker_key or "")
        if broker is not None and broker.is_set:
            synonyms.append(pb.Synonym(name=broker.name, value=broker.value, source=_STATIC_BROKER_SOURCE))
        synonyms.append(pb.Synonym(name=config.broker_key or config.name, value=config.default, source=_DEFAULT_SOURCE))
        first = synonyms[0]
        return pb.Config(
            name=config.name,
            value=first.value,
            is_read_only=is_read_only,
            is_default=first.source == _DEFAULT_SOURCE,
            source=first.source,
            type=config.type,
            documentation=config.documentation,
            synonyms=synonyms,
        )


def _broker_config(value: BrokerValue) -> pb.Config:
    synonyms = [pb.Synonym(name=value.name, value=value.default, source=_DEFAULT_SOURCE)]
    if value.is_set:
        synonyms.insert(0, pb.Synonym(name=value.name, value=value.value, source=_STATIC_BROKER_SOURCE))
    return pb.Config(
        name=value.name,
        value=value.value,
        is_read_only=True,
        is_default=not value.is_set,
        source=synonyms[0].source,
        type=value.type,
        documentation=value.documentation,
        synonyms=synonyms,
    )
