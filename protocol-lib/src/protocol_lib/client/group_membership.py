"""A member of a consumer group: joins, learns its assignment, says that it is alive, leaves (the classic protocol).

    join ──► JoinGroup ──► (leader: assign) ──► SyncGroup ──► assignment, heartbeats from now on
      ▲                                                            │
      └── rejoin_needed: a rebalance began, or the membership is lost (`is_lost`: the partitions belong to others)

`join` may be called again at any time; it goes on until there is an assignment or the coordinator refuses for good.
A consumer that does not poll for longer than `rebalance_timeout_ms` leaves, and heartbeats stop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from protocol_lib.client.assignors import Assignor, GroupMember
from protocol_lib.client.backoff import Backoff
from protocol_lib.client.cluster import Cluster, Purpose, means_no_coordinator
from protocol_lib.client.errors import BrokerError, KafkaError, check
from protocol_lib.client.group_offsets import Member
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol_lib.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol_lib.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

#: The membership is gone; the partitions may belong to others by now.
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
#: Codes after which the member joins again, from the start.
_JOIN_AGAIN: Final = _LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}
#: Time beyond the rebalance timeout for which a member waits for its JoinGroup's answer, in milliseconds.
_JOIN_GRACE_MS: Final = 5_000
_NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times are in milliseconds."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[Assignor, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Outcome of a rebalance."""

    assignor: Assignor
    assigned: frozenset[TopicPartition]


class GroupMembership:
    def __init__(self, cluster: Cluster, settings: GroupSettings, on_change: Callable[[], None]) -> None:
        """Create a membership that calls `on_change` when the consumer should look at `rejoin_needed` or `fault`."""
        self.member_id = ""
        self.generation_id = _NO_GENERATION
        self.rejoin_needed = True
        self.is_lost = False
        #: final refusal by the coordinator
        self.fault: KafkaError | None = None
        self._cluster = cluster
        self._settings = settings
        self._on_change = on_change
        self._heartbeats: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._polled_at = self._loop.time()
        #: whether no heartbeats are sent: their answers would wait for the one to JoinGroup
        self._is_joining = False
        #: number of partitions of each topic when this member, as leader, shared them out
        self._shared_out: dict[str, int] | None = None
        cluster.on_metadata(self._look_at_metadata)

    @property
    def member(self) -> Member:
        """The identity for commits of offsets."""
        return Member(self.member_id, self.generation_id, self._settings.group_instance_id)

    @property
    def is_member(self) -> bool:
        return self.generation_id != _NO_GENERATION

    def polled(self) -> None:
        """Note that the application polls."""
        self._polled_at = self._loop.time()

    async def join(self, topics: Iterable[str], owned: Iterable[TopicPartition]) -> Joined:
        """Take part in rebalances until there is an assignment; KafkaError when the coordinator refuses for good."""
        subscribed, owned = sorted(topics), sorted(owned)
        backoff = Backoff(self._cluster.settings)
        while True:
            self.rejoin_needed = False
            self._is_joining = True
            try:
                return await self._join_once(subscribed, owned)
            except KafkaError as fault:
                self.rejoin_needed = True
                code = fault.code if isinstance(fault, BrokerError) else None
                if code in _LOST:
                    self._lose()
                    # mutant: lost-partitions-not-claimed
                    owned = []  # others may read these by now: a claim could take them away again
                if means_no_coordinator(fault):
                    self._cluster.forget_coordinator(self._settings.group_id)
                if code not in _JOIN_AGAIN and not fault.retriable:
                    raise
                if code is not ErrorCode.MEMBER_ID_REQUIRED:
                    await backoff.wait()
            finally:
                self._is_joining = False

    async def leave(self, reason: str = "the consumer is closed") -> None:
        """Leave the group if possible; a static member sends nothing, and finds its partitions when it is back."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
        await self._leave(reason)

    async def _leave(self, reason: str) -> None:
        member_id, was_member = self.member_id, self.member_id != ""
        self._forget()
        if not was_member or self._settings.group_instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=self._settings.group_id,
            member_id=member_id,
            members=(MemberIdentity(member_id=member_id, reason=reason),),
        )
        with contextlib.suppress(KafkaError):
            await self._ask(request, timeout_ms=self._settings.heartbeat_interval_ms)

    # -- joining

    async def _join_once(self, topics: list[str], owned: list[TopicPartition]) -> Joined:
        settings = self._settings
        subscription = encode_subscription(
            Subscription(topics=tuple(topics), owned_partitions=_by_topic(owned), generation_id=self.generation_id)
        )
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(name=assignor.name, metadata=subscription) for assignor in settings.assignors
            ),
        )
        joined: JoinGroupResponse = await self._ask(request, settings.rebalance_timeout_ms + _JOIN_GRACE_MS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        check(joined.error_code, settings.group_id)
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        assignor = next((each for each in settings.assignors if each.name == joined.protocol_name), None)
        if assignor is None:
            raise KafkaError(f"{settings.group_id}: the group uses {joined.protocol_name}, which is not ours")
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = await self._share_out(assignor, joined)
        else:
            self._shared_out = None
        synced: SyncGroupResponse = await self._ask(
            SyncGroupRequest(
                group_id=settings.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=assignor.name,
                assignments=assignments,
            ),
            settings.rebalance_timeout_ms + _JOIN_GRACE_MS,
        )
        check(synced.error_code, settings.group_id)
        self._start_heartbeats()
        if not synced.assignment:
            return Joined(assignor, frozenset())
        try:
            assigned = decode_assignment(synced.assignment).assigned_partitions
        except DecodeError as fault:
            raise KafkaError(f"{settings.group_id}: assignment: {fault}") from fault
        return Joined(assignor, frozenset(TopicPartition(each.topic, p) for each in assigned for p in each.partitions))

    async def _share_out(self, assignor: Assignor, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Share the partitions out, as the group's leader."""
        members = []
        for each in joined.members:
            try:
                subscription = decode_subscription(each.metadata)
            except DecodeError as fault:
                raise KafkaError(f"{self._settings.group_id}: subscription of {each.member_id}: {fault}") from fault
            owned = tuple(
                TopicPartition(owned.topic, p) for owned in subscription.owned_partitions for p in owned.partitions
            )
            members.append(
                GroupMember(
                    each.member_id,
                    frozenset(subscription.topics),
                    each.group_instance_id,
                    owned,
                    subscription.generation_id,
                )
            )
        topics = {topic for member in members for topic in member.topics}
        self._cluster.want(topics)
        await self._cluster.refresh()
        counts = self._counts(topics)
        self._shared_out = counts
        present = {topic: count for topic, count in counts.items() if count}
        return tuple(
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(Assignment(assigned_partitions=_by_topic(topic_partitions))),
            )
            for member_id, topic_partitions in assignor.assign(present, members).items()
        )

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self._cluster.metadata.partitions(topic)) for topic in topics}

    def _look_at_metadata(self) -> None:
        """Rejoin when topics got partitions: the leader then shares them out again."""
        if self._shared_out is not None and self._counts(self._shared_out) != self._shared_out:
            self._rejoin()

    async def _ask(self, request: Any, timeout_ms: int | None = None) -> Any:
        node_id = await self._cluster.coordinator(self._settings.group_id)
        return await self._cluster.request(node_id, request, Purpose.COORDINATOR, timeout_ms=timeout_ms)

    # -- staying

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.create_task(self._beat())
            self._heartbeats.add_done_callback(self._note_end_of_heartbeats)  # mutant: heartbeat-bug-seen

    def _note_end_of_heartbeats(self, task: asyncio.Task[None]) -> None:
        """Make a bug in the heartbeats known: without them others get the partitions that this member still reads."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.fault = KafkaError(f"{self._settings.group_id}: heartbeats are broken: {fault!r}")
            self.fault.__cause__ = fault
            self._on_change()

    async def _beat(self) -> None:
        interval_s = self._settings.heartbeat_interval_ms / 1000
        backoff = Backoff(self._cluster.settings)
        wait_s = interval_s
        while self.is_member:
            await asyncio.sleep(wait_s)
            if self._is_joining:
                continue
            if self._loop.time() - self._polled_at > self._settings.rebalance_timeout_ms / 1000:
                self.is_lost = True  # first, so that no records are polled of partitions that others get
                self._rejoin()
                await self._leave("nothing was polled for longer than the rebalance timeout")
                continue  # it may have joined again by now
            if not self.is_member:
                return
            wait_s = interval_s
            generation_id = self.generation_id
            try:
                response: HeartbeatResponse = await self._ask(
                    HeartbeatRequest(
                        group_id=self._settings.group_id,
                        generation_id=generation_id,
                        member_id=self.member_id,
                        group_instance_id=self._settings.group_instance_id,
                    ),
                    self._settings.session_timeout_ms,
                )
                check(response.error_code, self._settings.group_id)
                backoff.reset()
            except KafkaError as fault:
                if generation_id == self.generation_id and not self._survives(fault):
                    return
                if fault.retriable:
                    wait_s = min(interval_s, backoff.next_delay())

    def _survives(self, fault: KafkaError) -> bool:
        """Return whether the membership goes on after the error that answered a heartbeat."""
        code = fault.code if isinstance(fault, BrokerError) else None
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if not self._is_joining:  # else it is the rebalance that is being joined
                self._rejoin()
        elif code in _LOST:
            self._lose()
            self._rejoin()
            return False
        elif means_no_coordinator(fault):
            self._cluster.forget_coordinator(self._settings.group_id)
        elif not fault.retriable:
            self._forget()
            self.fault = fault
            self._on_change()
            return False
        return True

    def _rejoin(self) -> None:
        self.rejoin_needed = True
        self._on_change()

    def _lose(self) -> None:
        """Forget a membership that the coordinator does not know any more."""
        if self.is_member:
            self.is_lost = True
        self._forget()

    def _forget(self) -> None:
        self.member_id = ""
        self.generation_id = _NO_GENERATION
        self._shared_out = None


def _by_topic(topic_partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    topics: dict[str, list[int]] = {}
    for topic_partition in sorted(topic_partitions):
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return tuple(TopicPartitions(topic=topic, partitions=tuple(each)) for topic, each in topics.items())
