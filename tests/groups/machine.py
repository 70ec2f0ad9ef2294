"""The level `machine`: requests become events of played groups, and their answers responses.

Not here: committed offsets, whose log no machine has, and what lists, describes, deletes or configures groups. A commit
is only asked for leave.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any, Final

from protocol_lib.codec import decode, encode
from protocol_lib.errors import ErrorCode
from protocol_lib.messages import consumer_group_heartbeat as modern
from protocol_lib.messages.heartbeat import HeartbeatResponse
from protocol_lib.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol_lib.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol_lib.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol_lib.messages.sync_group import SyncGroupResponse
from storage_svc.coordinator.classic import events
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.machine import not_a_consumer_group
from storage_svc.coordinator.consumer.offset_rules import commit_fault
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.limits import CoordinatorSettings, group_id_fault, heartbeat_fault, join_fault

from tests.groups.answers import CLIENT
from tests.groups.played_group import PlayedGroup, PlayedTopics
from tests.groups.requests import Asked, GroupRequests

SIZE_MAX: Final = 3
E = ErrorCode


class MachineLevel:
    """Groups by their names, with one clock. Answers come at once, or when another event brings them."""

    short_ms, soon_ms = 6_000, 4_000

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = PlayedTopics()
        self.topic_ids = {name: self.topics.create(name, partitions) for name, partitions in topics.items()}
        self.groups: dict[str, PlayedGroup] = {}
        self._numbers = count(1)
        self._connections: dict[str, int] = {}
        self._waiting: dict[int, tuple[PlayedGroup, Callable[[Any], None]]] = {}
        self._serve: dict[int, Callable[[str, Any, int, int], Any]] = {
            8: self._commit,
            11: self._join,
            12: self._heartbeat,
            13: self._leave,
            14: self._sync,
            68: self._consumer_heartbeat,
        }

    def serves(self, api_key: int) -> bool:
        return api_key in self._serve

    async def send(self, who: str, asked: Asked) -> Awaitable[Any]:
        answer = self._send(who, asked)
        assert answer.done(), "the machine does not answer"
        return answer

    async def park(self, who: str, asked: Asked) -> Awaitable[Any]:
        answer = self._send(who, asked)
        assert not answer.done(), "the machine has answered"
        return answer

    def _send(self, who: str, asked: Asked) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        api_key, version, message = asked
        request = next(self._numbers)

        def done(response: Any) -> None:
            answer.set_result(decode(type(response), version, encode(response, version)))

        response = self._serve[api_key](who, message, version, request)
        if isinstance(response, tuple):
            played, event, made = response
            self._waiting[request] = played, lambda value: done(made(value))
            value = played.send(event)
            if played.written:  # a heartbeat that is refused makes no group
                self.groups.setdefault(message.group_id, played)
            if value is not None:
                played.answers[request] = value
            self._deliver()
        else:
            done(response)
        return answer

    async def wait(self, milliseconds: float) -> None:
        self._deliver(milliseconds)

    async def until_epoch_after(self, epoch: int, requests: GroupRequests) -> None:
        group = self.groups[requests.group].group
        assert isinstance(group, ConsumerGroup)
        assert group.epoch > epoch

    def _deliver(self, milliseconds: float = 0) -> None:
        """Let time pass, timers that are due fire, and hand over the answers that came."""
        for played in self.groups.values():
            played.pass_time(milliseconds)
        for request, (played, done) in list(self._waiting.items()):
            if request in played.answers:
                del self._waiting[request]
                done(played.answers.pop(request))
        for played in self.groups.values():
            played.group.check_invariants()

    # --- the classic protocol -------------------------------------------------------------------------------------

    def _classic(self, group_id: str) -> PlayedGroup:
        limits = GroupLimits(initial_rebalance_delay_ms=0, size_max=SIZE_MAX)
        settings = ConsumerGroupSettings(assignment_interval_ms=0, size_max=SIZE_MAX)
        now_ms = max((each.now_ms for each in self.groups.values()), default=1_000_000)
        group = Group(group_id, limits, now_ms)
        return PlayedGroup(group, settings=settings, limits=limits, topics=self.topics, now_ms=now_ms)

    def _join(self, _: str, message: Any, version: int, request: int) -> Any:
        timeout_ms = message.rebalance_timeout_ms
        join = events.Join(
            request=request,
            member_id=message.member_id,
            new_member_id=str(uuid.uuid4()),
            instance_id=message.group_instance_id,
            session_timeout_ms=message.session_timeout_ms,
            rebalance_timeout_ms=message.session_timeout_ms if timeout_ms < 0 else timeout_ms,
            protocol_type=message.protocol_type,
            protocols=tuple((each.name, bytes(each.metadata)) for each in message.protocols),
            require_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
            **CLIENT,
        )
        error = group_id_fault(message.group_id, empty_allowed=False) or join_fault(join, CoordinatorSettings())
        played = self.groups.get(message.group_id)
        is_renewed = played is not None and isinstance(played.group, ConsumerGroup) and not played.group.members
        if not error and (played is None or is_renewed):
            error = E.UNKNOWN_MEMBER_ID if join.member_id else E.NONE
            played = self._classic(message.group_id)
        if error:
            return self._joined(version, events.JoinAnswer(error=error, member_id=join.member_id))
        assert played is not None
        self.groups[message.group_id] = played
        return played, join, lambda answer: self._joined(version, answer)

    def _joined(self, version: int, answer: events.JoinAnswer) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=answer.error,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name if version >= 7 else answer.protocol_name or "",
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
                )
                for each in answer.members
            ),
        )

    def _played(self, message: Any) -> tuple[E, PlayedGroup | None]:
        return group_id_fault(message.group_id, empty_allowed=False), self.groups.get(message.group_id)

    def _sync(self, _: str, message: Any, version: int, request: int) -> Any:
        error, played = self._played(message)
        if version >= 5 and None in (message.protocol_type, message.protocol_name):
            error = E.INCONSISTENT_GROUP_PROTOCOL
        if error or played is None:
            return SyncGroupResponse(error_code=error or E.UNKNOWN_MEMBER_ID, assignment=b"")
        event = events.Sync(
            request=request,
            member_id=message.member_id,
            generation_id=message.generation_id,
            instance_id=message.group_instance_id,
            protocol_type=message.protocol_type,
            protocol_name=message.protocol_name,
            assignments={each.member_id: bytes(each.assignment) for each in message.assignments},
        )
        return (
            played,
            event,
            lambda answer: SyncGroupResponse(
                error_code=answer.error,
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol_name,
                assignment=answer.assignment,
            ),
        )

    def _heartbeat(self, _: str, message: Any, _version: int, request: int) -> Any:
        error, played = self._played(message)
        if error or played is None:
            return HeartbeatResponse(error_code=error or E.UNKNOWN_MEMBER_ID)
        event = events.Heartbeat(
            request=request,
            member_id=message.member_id,
            generation_id=message.generation_id,
            instance_id=message.group_instance_id,
        )
        return played, event, lambda answer: HeartbeatResponse(error_code=answer.error)

    def _leave(self, _: str, message: Any, version: int, request: int) -> Any:
        error, played = self._played(message)
        leavers = message.members if version >= 3 else (MemberIdentity(member_id=message.member_id),)

        def left(answer: events.LeaveAnswer) -> LeaveGroupResponse:
            if version < 3:
                return LeaveGroupResponse(error_code=answer.error or answer.members[0])
            rows = tuple(
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
                for each, code in zip(leavers, answer.members, strict=bool(not answer.error))
            )
            return LeaveGroupResponse(error_code=answer.error, members=rows)

        if error or played is None:
            return left(events.LeaveAnswer(error, () if error else (E.UNKNOWN_MEMBER_ID,) * len(leavers)))
        members = [events.Leaver(each.member_id, each.group_instance_id) for each in leavers]
        return played, events.Leave(request=request, members=members), left

    def _commit(self, _: str, message: Any, version: int, request: int) -> Any:
        generation_id = message.generation_id_or_member_epoch
        played = self.groups.get(message.group_id)
        names = [self.topics.name_of(each.topic_id) or each.name for each in message.topics]

        def committed(error: E) -> OffsetCommitResponse:
            return OffsetCommitResponse(
                topics=tuple(
                    OffsetCommitResponseTopic(
                        **({"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}),
                        partitions=tuple(
                            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                            for each in topic.partitions
                        ),
                    )
                    for topic in message.topics
                )
            )

        if played is None:
            unknown = E.GROUP_ID_NOT_FOUND if version >= 9 else E.ILLEGAL_GENERATION
            return committed(E.NONE if generation_id < 0 else unknown)
        if isinstance(played.group, ConsumerGroup):
            partitions = [
                (name, each.partition_index)
                for name, topic in zip(names, message.topics, strict=True)
                for each in topic.partitions
            ]
            return committed(
                commit_fault(
                    played.group,
                    message.member_id,
                    generation_id,
                    partitions,
                    self.topics,
                    knows_epochs=version >= 9,
                )
            )
        event = events.Commit(
            request=request,
            member_id=message.member_id,
            generation_id=generation_id,
            instance_id=message.group_instance_id,
        )
        return played, event, lambda answer: committed(answer.error)

    # --- KIP-848 --------------------------------------------------------------------------------------------------

    def _consumer_heartbeat(self, who: str, message: Any, version: int, request: int) -> Any:
        owned: dict[bytes, frozenset[int]] | None = None if message.topic_partitions is None else {}
        for row in message.topic_partitions or ():
            assert owned is not None
            owned[bytes(row.topic_id)] = owned.get(bytes(row.topic_id), frozenset()) | frozenset(row.partitions)
        names = message.subscribed_topic_names
        heartbeat = ConsumerHeartbeat(
            request=request,
            member_id=message.member_id,
            member_epoch=message.member_epoch,
            instance_id=message.instance_id,
            rack_id=message.rack_id,
            rebalance_timeout_ms=message.rebalance_timeout_ms,
            topics=None if names is None else frozenset(names),
            pattern=message.subscribed_topic_regex,
            assignor=message.server_assignor,
            owned=owned,
            connection_id=self._connections.setdefault(who, len(self._connections) + 1),
            **CLIENT,
        )
        played = self.groups.get(message.group_id)
        fault = heartbeat_fault(heartbeat, ConsumerGroupSettings(), needs_member_id=version >= 1)
        if fault is None and not message.group_id:
            fault = HeartbeatAnswer(error=E.INVALID_REQUEST)
        if fault is None and played is None and heartbeat.member_epoch:
            fault = not_a_consumer_group(message.group_id)
        if fault is not None:
            return _beaten(fault)
        heartbeat = replace(heartbeat, member_id=heartbeat.member_id or str(uuid.uuid4()))
        if played is None:
            played = self._classic(message.group_id)
            played.group = ConsumerGroup(message.group_id)
        return played, heartbeat, _beaten


def _beaten(answer: HeartbeatAnswer) -> modern.ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        rows = tuple(
            modern.TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(held)))
            for topic_id, held in sorted(answer.assignment.items())
        )
        assignment = modern.Assignment(topic_partitions=rows)
    return modern.ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )
