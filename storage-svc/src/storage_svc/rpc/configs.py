"""Configs of topics, groups, brokers and subscriptions to clients' metrics as DescribeConfigs shows them: all known
keys, with defaults, synonyms and sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker_contract import topics_pb2 as pb
from broker_contract.topic_names import name_fault
from protocol_lib.errors import ErrorCode

from storage_svc.topics.broker_configs import BROKER_CONFIGS
from storage_svc.topics.broker_settings import DEFAULT, DYNAMIC_DEFAULT, EVERY_BROKER, BrokerSettings, Synonym
from storage_svc.topics.client_metrics import CLIENT_METRICS_CONFIGS
from storage_svc.topics.configs import TOPIC_CONFIGS, ConfigType, TopicConfig
from storage_svc.topics.group_configs import GROUP_CONFIGS

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32

#: Names and values of configs are cut in messages about them: old versions have strings of up to 32,767 bytes.
MESSAGE_LENGTH_MAX: Final = 1000

#: Kafka's config sources, but for those in broker_settings.
_TOPIC_SOURCE: Final = 1
_CLIENT_METRICS_SOURCE: Final = 7
_GROUP_SOURCE: Final = 8

_NODE_ID: Final = re.compile(r"[+-]?[0-9]{1,9}")


class _Config(Protocol):
    """The common properties of the configs of topics, groups and subscriptions."""

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
        broker: BrokerSettings,
        topic_configs: Callable[[str], Mapping[str, str] | None],
        group_configs: Callable[[str], Mapping[str, str]],
        client_metrics: Callable[[str], Mapping[str, str]],
        is_broker: Callable[[int], bool],
    ) -> None:
        self._broker = broker
        #: Topic name -> the configs that were set for it; None: there is no such topic.
        self._topic_configs = topic_configs
        #: Group id -> the configs that were set for it, whether or not there is such a group.
        self._group_configs = group_configs
        #: Subscription -> the configs that were set for it.
        self._client_metrics = client_metrics
        self._is_broker = is_broker
        #: Broker config -> its synonyms, of the version of the settings.
        self._synonyms: dict[str, list[pb.Synonym]] = {}
        #: Each config of a topic that does not set it, of the same version.
        self._defaults: dict[str, pb.Config] = {}
        self._version = -1

    def describe(self, resource: pb.ConfigResource, asking_broker: int = 0) -> pb.ResourceConfigs:
        """Describe the configs of one resource; messages name the broker that asks, unless it is 0."""
        answer = pb.ResourceConfigs(type=resource.type, name=resource.name)
        configs: list[pb.Config] = []
        if resource.type == TOPIC_RESOURCE:
            own = self._topic_configs(resource.name)
            if (reason := name_fault(resource.name)) is not None:
                answer.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
                answer.error_message = f"Topic name is invalid: {reason}."
            elif own is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.error_message = f"Topic '{resource.name}' does not exist."
            else:
                configs = self.of_topic(own)
        elif resource.type == BROKER_RESOURCE:
            if resource.name == EVERY_BROKER:
                configs = self._of_every_broker()
            elif (node_id := broker_id(resource.name)) is None or not self._is_broker(node_id):
                answer.error_code = ErrorCode.INVALID_REQUEST
                answer.error_message = _wrong_broker(resource.name, node_id, asking_broker)
            else:
                configs = [self._of_broker(name, node_id) for name in self._broker.names(node_id)]
        elif resource.type == GROUP_RESOURCE:
            if resource.name:
                own = self._group_configs(resource.name)
                configs = [self._config(each, own, _GROUP_SOURCE, None) for each in GROUP_CONFIGS.values()]
            else:
                answer.error_code = ErrorCode.INVALID_REQUEST
                answer.error_message = "Group name must not be empty"
        elif resource.type == CLIENT_METRICS_RESOURCE:
            if resource.name:
                own = self._client_metrics(resource.name)
                every = CLIENT_METRICS_CONFIGS.values()
                configs = [self._config(each, own, _CLIENT_METRICS_SOURCE, each.default) for each in every]
            else:
                answer.error_code = ErrorCode.INVALID_REQUEST
                answer.error_message = "Client metrics subscription name must not be empty"
        else:
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = f"Unsupported resource type {resource.type}."
        wanted = frozenset(resource.keys)
        answer.configs.extend(config for config in configs if resource.all_keys or config.name in wanted)
        return answer

    def of_topic(self, own: Mapping[str, str]) -> list[pb.Config]:
        """Return the configs of a topic. Those that it does not set are messages shared by all topics."""
        self._renew()
        if not self._defaults:
            self._defaults = {name: self._of_topic(each, {}) for name, each in TOPIC_CONFIGS.items()}
        if not own:
            return list(self._defaults.values())
        return [
            self._of_topic(TOPIC_CONFIGS[name], own) if name in own else default
            for name, default in self._defaults.items()
        ]

    def _of_topic(self, config: TopicConfig, own: Mapping[str, str]) -> pb.Config:
        default = self._broker.topic_defaults().get(config.name)
        return self._config(config, own, _TOPIC_SOURCE, default, is_read_only=config.check is None)

    def _config(
        self,
        config: _Config,
        own: Mapping[str, str],
        own_source: int,
        default: str | None,
        *,
        is_read_only: bool = False,
    ) -> pb.Config:
        """Describe a config that a resource may set. `default`: the value without an own one; None: the broker's."""
        synonyms = self._broker_synonyms(config.broker_key) if config.broker_key else []
        inherited = default
        if inherited is None:
            inherited = (self._broker.value(config.broker_key) if config.broker_key else None) or config.default
        value = inherited
        if config.name in own:
            value = own[config.name]
            synonyms = [pb.Synonym(name=config.name, value=value, source=own_source), *synonyms]
        source = synonyms[0].source if synonyms else DEFAULT
        return pb.Config(
            name=config.name,
            value=value,
            is_read_only=is_read_only,
            is_default=source == DEFAULT,
            source=source,
            type=config.type,
            documentation=config.documentation,
            synonyms=synonyms,
            inherited=inherited,
        )

    def _renew(self) -> None:
        """Forget what was made of older settings."""
        if self._version != self._broker.version:
            self._version, self._synonyms, self._defaults = self._broker.version, {}, {}  # mutant: descriptions-renewed

    def _broker_synonyms(self, name: str) -> list[pb.Synonym]:
        self._renew()
        found = self._synonyms.get(name)
        if found is None:
            found = self._synonyms[name] = [_synonym(each) for each in self._broker.synonyms(name)]
        return found

    def _of_broker(self, name: str, node_id: int) -> pb.Config:
        synonyms = [_synonym(each) for each in self._broker.synonyms(name, node_id)]
        source = synonyms[0].source if synonyms else DEFAULT
        is_sensitive = BROKER_CONFIGS[name].type is ConfigType.PASSWORD  # mutant: sensitive-configs-hidden
        if is_sensitive:
            synonyms = [pb.Synonym(name=each.name, source=each.source) for each in synonyms]
        return pb.Config(
            name=name,
            value=None if is_sensitive else self._broker.value(name, node_id),
            is_sensitive=is_sensitive,
            is_read_only=not BROKER_CONFIGS[name].is_dynamic,
            is_default=source == DEFAULT,
            source=source,
            type=BROKER_CONFIGS[name].type,
            documentation=self._broker.documentation(name, node_id),
            synonyms=synonyms,
            inherited=self._broker.value(name),
        )

    def _of_every_broker(self) -> list[pb.Config]:
        """Describe the configs that were altered for all brokers, with the given values."""
        return [
            pb.Config(
                name=name,
                value=value,
                source=DYNAMIC_DEFAULT,
                type=BROKER_CONFIGS[name].type,
                documentation=self._broker.documentation(name),
                synonyms=[pb.Synonym(name=name, value=value, source=DYNAMIC_DEFAULT)],
            )
            for name, value in sorted(self._broker.altered(EVERY_BROKER).items())
        ]


def _synonym(synonym: Synonym) -> pb.Synonym:
    return pb.Synonym(name=synonym.name, value=synonym.value, source=synonym.source)


def broker_id(name: str) -> int | None:
    """Return the node id that the name of a broker's resource is; None for other names."""
    return int(name) if _NODE_ID.fullmatch(name) else None


def _wrong_broker(name: str, node_id: int | None, asking_broker: int) -> str:
    if node_id is None:
        return f"Broker id must be an integer, but it is: {name[:100]}"
    expected = f", expected {asking_broker} or empty string" if asking_broker else ""
    return f"Unexpected broker id{expected}, but received {name}"
