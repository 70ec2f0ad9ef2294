"""The requests of consumer groups, short enough to tell a story with: one method per API, defaults as clients send."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from protocol_lib.consumer_protocol import Subscription, encode_subscription
from protocol_lib.messages import alter_configs, incremental_alter_configs
from protocol_lib.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol_lib.messages.delete_groups import DeleteGroupsRequest
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.describe_groups import DescribeGroupsRequest
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.leave_group import LeaveGroupRequest, MemberIdentity
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

from tests.parity.conversation import Pending, Talk

ORDERS = encode_subscription(Subscription(topics=("orders",)))
RANGE = (("range", ORDERS),)
SESSION_MS = 10_000
GROUP_RESOURCE = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
#: Time between the announcement of a config by Kafka's broker and its use.
FOLLOWED_S = 0.05


class GroupTalk(Talk):
    #: Number of configs that were set for `_until_followed`.
    _marks = 0

    async def join(self, who: str, *, version: int = 9, **fields: Any) -> Any:
        return await self.ask(who, 11, version, self._join(version, fields))

    async def join_later(self, who: str, *, version: int = 9, **fields: Any) -> Pending:
        return await self.later(who, 11, version, self._join(version, fields))

    def _join(self, version: int, fields: dict[str, Any]) -> JoinGroupRequest:
        protocols = fields.pop("protocols", RANGE)
        given = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": tuple(JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols),
        }
        if version >= 1:
            given["rebalance_timeout_ms"] = SESSION_MS
        return JoinGroupRequest(**(given | fields))

    async def sync(self, who: str, member_id: str, generation_id: int, **fields: Any) -> Any:
        version = fields.pop("version", 3)
        return await self.ask(who, 14, version, self._sync(member_id, generation_id, fields))

    async def sync_later(self, who: str, member_id: str, generation_id: int, **fields: Any) -> Pending:
        version = fields.pop("version", 3)
        return await self.later(who, 14, version, self._sync(member_id, generation_id, fields))

    def _sync(self, member_id: str, generation_id: int, fields: dict[str, Any]) -> SyncGroupRequest:
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in fields.pop("assignments", {}).items()
        )
        given = {"group_id": self.group, "generation_id": generation_id, "member_id": member_id}
        return SyncGroupRequest(assignments=assignments, **(given | fields))

    async def heartbeat(self, who: str, member_id: str, generation_id: int, **fields: Any) -> Any:
        version = fields.pop("version", 4)
        given = {"group_id": self.group, "generation_id": generation_id, "member_id": member_id}
        return await self.ask(who, 12, version, HeartbeatRequest(**(given | fields)))

    async def leave(self, who: str, *members: tuple[str, str | None], **fields: Any) -> Any:
        """Leave the group; members are (member id, group instance id)."""
        version = fields.pop("version", 5)
        given: dict[str, Any] = {"group_id": self.group}
        if version >= 3:
            given["members"] = tuple(MemberIdentity(member_id=each, group_instance_id=name) for each, name in members)
        else:
            ((given["member_id"], _),) = members
        return await self.ask(who, 13, version, LeaveGroupRequest(**(given | fields)))

    async def commit(self, who: str, *offsets: tuple[str, int, int], **fields: Any) -> Any:
        """Commit offsets, (topic, partition, offset); `member` is (member id, generation id or member epoch)."""
        version, metadata = fields.pop("version", 9), fields.pop("metadata", "")
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
        topics = tuple(
            OffsetCommitRequestTopic(
                **({"topic_id": self.topic_ids[topic]} if version >= 10 else {"name": topic}),
                partitions=tuple(partitions),
            )
            for topic, partitions in by_topic.items()
        )
        return await self.ask(who, 8, version, OffsetCommitRequest(topics=topics, **(given | fields)))

    async def fetch(self, who: str, *partitions: tuple[str, int], **fields: Any) -> Any:
        """Fetch the committed offsets, all if no partition is named."""
        version = fields.pop("version", 8)
        is_stable = fields.pop("require_stable", False)
        if version < 8:
            fields |= {"require_stable": is_stable} if version == 7 else {}
            old = tuple(OffsetFetchRequestTopic(name=name, partition_indexes=(index,)) for name, index in partitions)
            request = OffsetFetchRequest(group_id=self.group, topics=old if partitions else None, **fields)
            return await self.ask(who, 9, version, request)
        topics = tuple(
            OffsetFetchRequestTopics(
                **({"topic_id": self.topic_ids[name]} if version >= 10 else {"name": name}), partition_indexes=(index,)
            )
            for name, index in partitions
        )
        group = OffsetFetchRequestGroup(
            group_id=fields.pop("group_id", self.group), topics=topics if partitions else None, **fields
        )
        return await self.ask(who, 9, version, OffsetFetchRequest(groups=(group,), require_stable=is_stable))

    async def describe(self, who: str, *, version: int = 6) -> Any:
        request = DescribeGroupsRequest(groups=(self.group,), include_authorized_operations=version >= 3)
        return await self.ask(who, 15, version, request)

    async def listed(self, who: str, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        """Put the listed state of the script's group into the transcript."""
        request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
        response = await self.ask(who, 16, 5, request)
        name, _ = self.transcript.pop()  # type: ignore[misc]
        own = [self._named(each) for each in response.groups if each.group_id == self.group]
        self.transcript.append((name, response.error_code, own))

    async def delete(self, who: str, *, version: int = 2, group_id: str | None = None) -> Any:
        names = (self.group if group_id is None else group_id,)
        return await self.ask(who, 42, version, DeleteGroupsRequest(groups_names=names))

    async def forget(self, who: str, *partitions: tuple[str, int]) -> Any:
        topics = tuple(
            OffsetDeleteRequestTopic(name=name, partitions=(OffsetDeleteRequestPartition(partition_index=index),))
            for name, index in partitions
        )
        return await self.ask(who, 47, 0, OffsetDeleteRequest(group_id=self.group, topics=topics))

    # --- KIP-848 --------------------------------------------------------------------------------------------------

    async def beat(self, who: str, member_id: str, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat; `owned` are partitions of "orders"."""
        version = fields.pop("version", 1)
        if "owned" in fields:
            fields["topic_partitions"] = self.partitions(fields.pop("owned"))
        given = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch}
        return await self.ask(who, 68, version, ConsumerGroupHeartbeatRequest(**(given | fields)))

    async def enter(self, who: str, member_id: str, **fields: Any) -> Any:
        """Send the heartbeat with which a member joins."""
        given: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ("orders",),
            "topic_partitions": (),
        }
        return await self.beat(who, member_id, 0, **(given | fields))

    def partitions(self, owned: Sequence[int]) -> tuple[TopicPartitions, ...]:
        return (TopicPartitions(topic_id=self.topic_ids["orders"], partitions=tuple(owned)),) if owned else ()

    async def described(self, who: str, *, version: int = 1) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=(self.group,), include_authorized_operations=True)
        return await self.ask(who, 69, version, request)

    async def until_resolved(self, joined: Any) -> None:
        """Wait until the broker has found the topics of the pattern of a member that has just joined.

        It searches in the background, and begins a new epoch when it has found some.
        """
        request = ConsumerGroupDescribeRequest(group_ids=(self.group,), include_authorized_operations=False)
        async with asyncio.timeout(30):
            while (await self.silent("a", 69, 1, request)).groups[0].group_epoch <= joined.member_epoch:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def couple(self) -> tuple[Any, Any]:
        """Join members "m1" and "m2" of clients "a" and "b" until they are reconciled; return their last heartbeats."""
        first = await self.enter("a", "m1")
        second = await self.enter("b", "m2")
        reduced = await self.beat("a", "m1", first.member_epoch, owned=(0, 1, 2))
        kept = reduced.assignment.topic_partitions[0].partitions
        await self.beat("a", "m1", reduced.member_epoch, owned=kept)
        settled = await self.beat("b", "m2", second.member_epoch, owned=())
        return await self.beat("a", "m1", settled.member_epoch), await self.beat("b", "m2", settled.member_epoch)

    # --- stories that many scripts begin with ---------------------------------------------------------------------

    async def stable(self, who: str = "a", **fields: Any) -> tuple[str, int]:
        """Join a group of one with an assignment; return (member id, generation id)."""
        joined = await self.join(who, version=3, **fields)
        await self.sync(who, joined.member_id, joined.generation_id, assignments={joined.member_id: b"all"})
        return joined.member_id, joined.generation_id

    async def pair(self) -> tuple[str, str, int]:
        """Join a stable group of two, "a" its leader; return their member ids and the generation id."""
        first, _ = await self.stable("a")
        second = await self.join_later("b", version=3)
        await self.join("a", version=3, member_id=first)
        joined = await self.answer(second)
        generation_id = joined.generation_id
        following = await self.sync_later("b", joined.member_id, generation_id)
        await self.sync("a", first, generation_id, assignments={first: b"one", joined.member_id: b"two"})
        await self.answer(following)
        return first, joined.member_id, generation_id

    async def static(self, who: str = "s", name: str = "static", **fields: Any) -> tuple[str, int]:
        """Join a stable group of one static member."""
        joined = await self.join(who, version=5, group_instance_id=name, **fields)
        await self.sync(
            who,
            joined.member_id,
            joined.generation_id,
            version=3,
            group_instance_id=name,
            assignments={joined.member_id: b"all"},
        )
        return joined.member_id, joined.generation_id

    # --- configs of groups ----------------------------------------------------------------------------------------

    async def describe_configs(self, *keys: str, name: str | None = None, version: int = 4) -> None:
        resource = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=self.group if name is None else name,
            configuration_keys=keys or (SESSION, HEARTBEAT, ASSIGNMENT),
        )
        await self.ask("a", 32, version, DescribeConfigsRequest(resources=(resource,), include_synonyms=True))

    async def alter_configs(
        self, *changes: tuple[str, int, str | None], name: str | None = None, version: int = 1, **fields: Any
    ) -> None:
        """Alter configs; the answer's texts are part of the transcript."""
        of = incremental_alter_configs
        configs = tuple(of.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes)
        await self._altered(44, version, of, of.IncrementalAlterConfigsRequest, name, configs, fields)

    async def replace_configs(self, *configs: tuple[str, str | None], name: str | None = None, **fields: Any) -> None:
        """Send AlterConfigs: these and no others."""
        of = alter_configs
        given = tuple(of.AlterableConfig(name=key, value=value) for key, value in configs)
        await self._altered(33, 2, of, of.AlterConfigsRequest, name, given, fields)

    async def _altered(
        self, api_key: int, version: int, of: Any, request: Any, name: str | None, configs: Any, fields: dict[str, Any]
    ) -> None:
        group = self.group if name is None else name
        resource = of.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
        answer = await self.ask(
            "a", api_key, version, request(resources=(resource,), **({"validate_only": False} | fields))
        )
        self.transcript.append(answer.responses[0].error_message)
        await self._until_followed()

    async def _until_followed(self) -> None:
        """Wait until Kafka's broker has read a mark, and so all writes before it.

        The broker reads its controller's writes in their order.
        """
        self._marks += 1
        name, value = f"{self.group}-mark", str(5_000 + self._marks)
        of = incremental_alter_configs
        change = of.AlterableConfig(name=HEARTBEAT, config_operation=0, value=value)
        marked = of.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=(change,))
        made = await self.silent(
            "a", 44, 1, of.IncrementalAlterConfigsRequest(resources=(marked,), validate_only=False)
        )
        assert made.responses[0].error_code == 0
        looked_at = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=name, configuration_keys=(HEARTBEAT,)
        )
        async with asyncio.timeout(30):
            known = ""
            while known != value:
                answer = await self.silent("a", 32, 4, DescribeConfigsRequest(resources=(looked_at,)))
                known = answer.results[0].configs[0].value
        await asyncio.sleep(FOLLOWED_S)
