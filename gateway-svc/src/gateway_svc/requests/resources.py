"""The resources a request uses, in the terms of Kafka's ACLs.

Operations and types are those of `broker_contract.acls`. A handler declares with
`resources` which of them each of its requests needs; a policy (`admission`) decides which of them the client may use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from broker_contract.acls import CLUSTER_NAME as CLUSTER_NAME
from broker_contract.acls import Operation as Operation
from broker_contract.acls import ResourceType as ResourceType
from protocol_lib.errors import ErrorCode
from protocol_lib.schema import ZERO_UUID

from gateway_svc.requests.topic_names import TopicNames


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


#: The operations that Kafka has for a topic, a group and the cluster, as the bits of `…_authorized_operations`.
ALL_TOPIC_OPERATIONS: Final = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
ALL_GROUP_OPERATIONS: Final = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
ALL_CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, and the operation a request performs on it."""

    type: ResourceType
    #: None for a topic that the request names by an id whose name this gateway does not know yet.
    name: str | None
    operation: Operation
    #: The id by which the request calls the topic, if it does.
    topic_id: bytes = ZERO_UUID
    #: A rule that suffices in place of this one.
    alternative: Resource | None = None
    #: Whether any one resource of the type meets the rule, whatever its name.
    is_any: bool = False

    @property
    def denied(self) -> ErrorCode:
        """Kafka's error code for a client that may not use the resource."""
        return _DENIED[self.type]


#: A function that returns the resource of an entry of a request, by the function that returns the name of a topic's id.
ResourceOf = Callable[[Any, Callable[[bytes], str | None]], Resource]

_DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def topics(operation: Operation, named: Iterable[tuple[str | None, bytes]], names: TopicNames) -> list[Resource]:
    """Return a topic resource for each (name, id), each once. The id counts where the name is empty or None."""
    found = []
    for name, topic_id in dict.fromkeys(named):
        if name or topic_id == ZERO_UUID:
            found.append(Resource(ResourceType.TOPIC, name or "", operation))
        else:
            found.append(Resource(ResourceType.TOPIC, names.name_of(topic_id), operation, topic_id))
    return found


def topic_of(operation: Operation) -> ResourceOf:
    """Return a function that returns the topic of an entry with a `name` or a `topic_id`, or with only a name."""

    def resource(entry: Any, name_of: Callable[[bytes], str | None]) -> Resource:
        topic_id = getattr(entry, "topic_id", ZERO_UUID)
        if entry.name or topic_id == ZERO_UUID:
            return Resource(ResourceType.TOPIC, entry.name or "", operation)
        return Resource(ResourceType.TOPIC, name_of(bytes(topic_id)), operation, bytes(topic_id))

    return resource


def group_of(operation: Operation) -> ResourceOf:
    """Return a function that returns the group of an entry, which is its id."""

    def resource(entry: str, _name_of: Callable[[bytes], str | None]) -> Resource:
        return group(operation, entry)

    return resource


def config_of(operation: Operation) -> ResourceOf:
    """Return a function that returns the resource whose configs an entry means."""

    def resource(entry: Any, _name_of: Callable[[bytes], str | None]) -> Resource:
        (found,) = configured(operation, [(entry.resource_type, entry.resource_name)])
        return found

    return resource


def topics_called(operation: Operation, names: Iterable[str]) -> list[Resource]:
    """Return a topic resource for each name, each once."""
    return [Resource(ResourceType.TOPIC, name, operation) for name in dict.fromkeys(names)]


def group(operation: Operation, group_id: str) -> Resource:
    """Return the resource of one group."""
    return Resource(ResourceType.GROUP, group_id, operation)


def transactional_id(operation: Operation, name: str) -> Resource:
    """Return the resource of one transactional id."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name, operation)


def cluster(operation: Operation, *, alternative: Resource | None = None) -> Resource:
    """Return the cluster as a resource."""
    return Resource(ResourceType.CLUSTER, CLUSTER_NAME, operation, alternative=alternative)


class ConfigType(IntEnum):
    """The types of Kafka's ConfigResource."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


#: All of them, as numbers of requests are compared with them.
CONFIG_TYPES: Final = frozenset(ConfigType)


def configured(operation: Operation, named: Iterable[tuple[int, str]]) -> list[Resource]:
    """Return the resources whose configs are meant by (type, name) of Kafka's ConfigResource.

    Configs of brokers, and of every type but topics and groups, are the cluster's.
    """
    found = []
    for config_type, name in dict.fromkeys(named):
        kind = _TYPES.get(config_type, ResourceType.CLUSTER)
        found.append(Resource(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else name, operation))
    return found


#: The types of resources that have configs.
CONFIGURED: Final = frozenset({ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER})
_TYPES: Final[Mapping[int, ResourceType]] = {ConfigType.TOPIC: ResourceType.TOPIC, ConfigType.GROUP: ResourceType.GROUP}
