"""Topic and broker configs as DescribeConfigs shows them: all known keys, with defaults, synonyms and sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker_contract import topics_pb2 as pb
from protocol_lib.errors import ErrorCode

from storage_svc.topics.broker_configs import BrokerValue
from storage_svc.topics.configs import TOPIC_CONFIGS, TopicConfig

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

#: Kafka's config sources.
_TOPIC_SOURCE: Final = 1
_STATIC_BROKER_SOURCE: Final = 4
_DEFAULT_SOURCE: Final = 5


class ConfigDescriptions:
    def __init__(
        self,
        broker: Mapping[str, BrokerValue],
        topic_configs: Callable[[str], Mapping[str, str] | None],
        is_broker: Callable[[int], bool],
    ) -> None:
        self._broker = broker
        #: Topic name -> what was set for it; None: there is no such topic.
        self._topic_configs = topic_configs
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
        else:
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = f"Unsupported resource type {resource.type}."
        wanted = frozenset(resource.keys)
        answer.configs.extend(config for config in configs if resource.all_keys or config.name in wanted)
        return answer

    def of_topic(self, own: Mapping[str, str]) -> list[pb.Config]:
        return [self._topic_config(config, own.get(config.name)) for config in TOPIC_CONFIGS.values()]

    def _topic_config(self, config: TopicConfig, own: str | None) -> pb.Config:
        synonyms = []
        if own is not None:
            synonyms.append(pb.Synonym(name=config.name, value=own, source=_TOPIC_SOURCE))
        broker = self._broker.get(config.broker_key or "")
        if broker is not None and broker.is_set:
            synonyms.append(pb.Synonym(name=broker.name, value=broker.value, source=_STATIC_BROKER_SOURCE))
        synonyms.append(pb.Synonym(name=config.broker_key or config.name, value=config.default, source=_DEFAULT_SOURCE))
        first = synonyms[0]
        return pb.Config(
            name=config.name,
            value=first.value,
            is_read_only=config.check is None,
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
