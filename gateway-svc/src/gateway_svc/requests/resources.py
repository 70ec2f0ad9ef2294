"""The resources a request uses, in the terms of Kafka's ACLs.

Numbers are those of `org.apache.kafka.common.resource.ResourceType` and `…acl.AclOperation`. A handler declares with
`resources` which of them each of its requests needs; a policy (`admission`) decides whether the client may use them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.schema import ZERO_UUID

from gateway_svc.requests.topic_names import TopicNames


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


#: The operations that Kafka has for a topic and for the cluster, as the bits of `…_authorized_operations`.
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
ALL_CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
#: The name of the one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
#: Stands for every name: any resource of the type meets the rule.
ANY_NAME: Final = "*"


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

    @property
    def denied(self) -> ErrorCode:
        """Kafka's error code for a client that may not use the resource."""
        return _DENIED[self.type]


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


def configured(operation: Operation, named: Iterable[tuple[int, str]]) -> list[Resource]:
    """Return the resources whose configs are meant by (type, name) of Kafka's ConfigResource.

    Configs of brokers, and of every type but topics and groups, are the cluster's.
    """
    found = []
    for config_type, name in dict.fromkeys(named):
        kind = _CONFIGURED.get(config_type, ResourceType.CLUSTER)
        found.append(Resource(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else name, operation))
    return found


#: Types of Kafka's ConfigResource.
_CONFIGURED: Final = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}
