"""The requests of groups, short enough to tell a story with: one function for each API, defaults as clients send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from protocol_lib.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from protocol_lib.consumer_protocol import TopicPartitions as Owned
from protocol_lib.messages import alter_configs, incremental_alter_configs
from protocol_lib.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol_lib.messages.delete_groups import DeleteGroupsRequest
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.describe_groups import DescribeGroupsRequest
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol_lib.messages.list_config_resources import ListConfigResourcesRequest
from protocol_lib.messages.list_groups import ListGroupsRequest
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol_lib.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 10_000
GROUP_RESOURCE = 32
#: The configs of groups that both brokers have, and the operations of IncrementalAlterConfigs.
CONFIGS = {
    "SESSION": "consumer.session.timeout.ms",
    "HEARTBEAT": "consumer.heartbeat.interval.ms",
    "ASSIGNMENT": "consumer.assignment.interval.ms",
    "SET": 0,
    "DELETE": 1,
    "APPEND": 2,
    "SUBTRACT": 3,
}


def subscription(*topics: str, owned: Sequence[int] = (), user_data: bytes | None = None) -> bytes:
    """Return a classic member's metadata; `owned` are partitions of "orders"."""
    rows = (Owned(topic="orders", partitions=tuple(owned)),) if owned else ()
    return encode_subscription(Subscription(topics=topics, owned_partitions=rows, user_data=user_data))


def share(*partitions: int) -> bytes:
    """Return an assignment of partitions of "orders"."""
    rows = (Owned(topic="orders", partitions=partitions),) if partitions else ()
    return encode_assignment(Assignment(assigned_partitions=rows))


ORDERS, USERS = subscription("orders"), subscription("users")


class Asked(NamedTuple):
    api_key: int
    version: int
    message: Any


class GroupRequests:
    """The requests about one group, `group_id=` for another one. Other fields of a message are given by their names."""

    def __init__(self, group: str, topic_ids: Mapping[str, bytes]) -> None:
        self.group = group
        self.topic_ids = topic_ids

    def join(self, version: int = 9, **fields: Any) -> Asked:
        protocols = fields.pop("protocols", {"range": ORDERS})
        given = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": tuple(JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()),
        }
        if version >= 1:
            given["rebalance_timeout_ms"] = SESSION_MS
        return Asked(11, version, JoinGroupRequest(**(given | fields)))

    def sync(self, member_id: str, generation_id: int, version: int = 3, **fields: Any) -> Asked:
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in fields.pop("assignments", {}).items()
        )
        given = {"group_id": self.group, "generation_id": generation_id, "member_id": member_id}
        return Asked(14, version, SyncGroupRequest(assignments=assignments, **(given | fields)))

    def heartbeat(self, member_id: str, generation_id: int, version: int = 4, **fields: Any) -> Asked:
        given = {"group_id": self.group, "generation_id": generation_id, "member_id": member_id}
        return Asked(12, version, HeartbeatRequest(**(given | fields)))

    def leave(self, *members: str | tuple[str, str], version: int = 5, **fields: Any) -> Asked:
        """Leave the group; members are a member id, or (member id, group instance id)."""
        named = [(each, None) if isinstance(each, str) else each for each in members]
        given: dict[str, Any] = {"group_id": self.group}
        if version >= 3:
            given["members"] = tuple(MemberIdentity(member_id=each, group_instance_id=name) for each, name in named)
        else:
            ((given["member_id"], _),) = named
        return Asked(13, version, LeaveGroupRequest(**(given | fields)))

    def commit(self, *offsets: tuple[str, int, int], version: int = 9, metadata: str = "", **fields: Any) -> Asked:
        """Commit offsets, (topic, partition, offset); `member` is (member id, generation id or member epoch)."""
        given: dict[str, Any] = {"group_id": self.group}
        if "member" in fields:
            given["member_id"], given["generation_id_or_member_epoch"] = fields.pop("member")
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for topic, partition, offset in offsets:
            by_topic.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        given["topics"] = tuple(
            OffsetCommitRequestTopic(**self._topic(topic, version), partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        )
        return Asked(8, version, OffsetCommitRequest(**(given | fields)))

    def fetch(self, *partitions: tuple[str, int], version: int = 8, **fields: Any) -> Asked:
        """Fetch the committed offsets, all if no partition is named."""
        is_stable = fields.pop("require_stable", False)
        if version < 8:
            fields |= {"require_stable": is_stable} if version == 7 else {}
            old = tuple(OffsetFetchRequestTopic(name=name, partition_indexes=(index,)) for name, index in partitions)
            given = {"group_id": self.group, "topics": old if partitions else None}
            return Asked(9, version, OffsetFetchRequest(**(given | fields)))
        topics = tuple(
            OffsetFetchRequestTopics(**self._topic(name, version), partition_indexes=(index,))
            for name, index in partitions
        )
        named = {"group_id": self.group, "topics": topics if partitions else None} | fields
        groups = (OffsetFetchRequestGroup(**named),)
        return Asked(9, version, OffsetFetchRequest(groups=groups, require_stable=is_stable))

    def fetch_many(self, groups: Mapping[str, Sequence[tuple[str, int]] | None]) -> Asked:
        """Fetch offsets of many groups, all of a group where there is None."""
        rows = tuple(
            OffsetFetchRequestGroup(
                group_id=name,
                topics=None
                if partitions is None
                else tuple(
                    OffsetFetchRequestTopics(name=topic, partition_indexes=(index,) if index >= 0 else ())
                    for topic, index in partitions
                ),
            )
            for name, partitions in groups.items()
        )
        return Asked(9, 8, OffsetFetchRequest(groups=rows))

    def describe(self, *groups: str, version: int = 6) -> Asked:
        request = DescribeGroupsRequest(groups=groups or (self.group,), include_authorized_operations=version >= 3)
        return Asked(15, version, request)

    def list(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> Asked:
        """List groups. Those of other scripts are left out of the answer."""
        return Asked(16, 5, ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types)))

    def delete(self, *groups: str, version: int = 2) -> Asked:
        return Asked(42, version, DeleteGroupsRequest(groups_names=groups or (self.group,)))

    def forget(self, *partitions: tuple[str, int], **fields: Any) -> Asked:
        """Delete committed offsets; partition -1 stands for a topic without partitions."""
        topics = tuple(
            OffsetDeleteRequestTopic(
                name=name,
                partitions=(OffsetDeleteRequestPartition(partition_index=index),) if index >= 0 else (),
            )
            for name, index in partitions
        )
        return Asked(47, 0, OffsetDeleteRequest(**({"group_id": self.group, "topics": topics} | fields)))

    # --- KIP-848 --------------------------------------------------------------------------------------------------

    def beat(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Asked:
        """Send a heartbeat; `owned` are partitions of "orders", or partitions by topic id."""
        if "owned" in fields:
            fields["topic_partitions"] = self._owned(fields.pop("owned"))
        for name in ("topics", "regex"):
            if name in fields:
                fields[f"subscribed_topic_{name.replace('topics', 'names')}"] = fields.pop(name)
        given = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch}
        return Asked(68, version, ConsumerGroupHeartbeatRequest(**(given | fields)))

    def enter(self, member_id: str, **fields: Any) -> Asked:
        """Send the heartbeat with which a member joins."""
        given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ("orders",), "topic_partitions": ()}
        if "regex" in fields:
            given["topics"] = None
        return self.beat(member_id, 0, **(given | fields))

    def described(self, *groups: str, version: int = 1, with_rights: bool = True) -> Asked:
        request = ConsumerGroupDescribeRequest(
            group_ids=groups or (self.group,), include_authorized_operations=with_rights
        )
        return Asked(69, version, request)

    def about_nothing(self) -> Sequence[Asked]:
        """Return the requests about groups that name no group, topic or partition."""
        empty = (OffsetCommitRequestTopic(name="orders", partitions=()),)
        return (
            Asked(8, 9, OffsetCommitRequest(group_id=self.group, topics=empty)),
            Asked(9, 5, OffsetFetchRequest(group_id=self.group, topics=())),
            Asked(9, 8, OffsetFetchRequest(groups=())),
            Asked(15, 1, DescribeGroupsRequest(groups=())),
            Asked(15, 6, DescribeGroupsRequest(groups=())),
            Asked(42, 2, DeleteGroupsRequest(groups_names=())),
            Asked(69, 1, ConsumerGroupDescribeRequest(group_ids=(), include_authorized_operations=False)),
        )

    # --- configs of groups ----------------------------------------------------------------------------------------

    def configs(self, *keys: str, name: str | None = None, version: int = 4) -> Asked:
        """Describe configs, all that both brokers have if none is named."""
        resource = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=self.group if name is None else name,
            configuration_keys=keys or tuple(each for each in CONFIGS.values() if isinstance(each, str)),
        )
        return Asked(32, version, DescribeConfigsRequest(resources=(resource,), include_synonyms=True))

    def alter(self, *changes: tuple[str, int, str | None], version: int = 1, **fields: Any) -> Asked:
        """Alter configs, (key, operation, value)."""
        of = incremental_alter_configs
        configs = tuple(of.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes)
        return Asked(44, version, self._altered(of, of.IncrementalAlterConfigsRequest, configs, fields))

    def replace(self, *configs: tuple[str, str | None], **fields: Any) -> Asked:
        """Send AlterConfigs: these and no others."""
        of = alter_configs
        given = tuple(of.AlterableConfig(name=key, value=value) for key, value in configs)
        return Asked(33, 2, self._altered(of, of.AlterConfigsRequest, given, fields))

    def config_resources(self, *types: int, version: int = 1) -> Asked:
        return Asked(74, version, ListConfigResourcesRequest(**({"resource_types": types} if version else {})))

    def _altered(self, of: Any, request: Any, configs: Any, fields: dict[str, Any]) -> Any:
        name = fields.pop("name", self.group)
        resource = of.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=configs)
        return request(resources=(resource,), **({"validate_only": False} | fields))

    def _topic(self, name: str, version: int) -> dict[str, Any]:
        """Return the field that names a topic in a request about offsets."""
        return {"topic_id": self.topic_ids[name]} if version >= 10 else {"name": name}

    def _owned(self, owned: Any) -> tuple[TopicPartitions, ...]:
        rows = owned if owned and isinstance(owned[0], tuple) else [(self.topic_ids["orders"], owned)] if owned else []
        return tuple(TopicPartitions(topic_id=topic_id, partitions=tuple(each)) for topic_id, each in rows)
