"""The Groups service: protobuf messages to the group coordinator's events and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker_contract import groups_pb2 as pb
from protocol_lib.errors import ErrorCode
from service_chassis.steps import TaskSteps

from storage_svc.coordinator.classic.events import Commit, GroupState, Heartbeat, Join, Leave, Leaver, Sync
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.group import ConsumerGroup, Topics
from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.coordinator.hosting.repeatable_heartbeats import RepeatableHeartbeat
from storage_svc.coordinator.limits import CommitRequest, NewOffset
from storage_svc.coordinator.repeatable_commits import RepeatableCommit
from storage_svc.coordinator.transactional_offsets import OfTransaction
from storage_svc.rpc.consumer_groups import described, heartbeat_of, heartbeat_response

#: Groups that are listed without a turn for others.
_LISTED_PIECE: Final = 500


def _optional(message: object, name: str) -> str | None:
    """Return a proto3 `optional string`; None when absent."""
    return getattr(message, name) if message.HasField(name) else None  # type: ignore[attr-defined]


class GroupsService:
    """Calls with a `done` answer by calling it exactly once, later or before they return; they raise nothing once they
    have."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def join_group(self, request: pb.JoinGroupRequest) -> pb.JoinGroupResponse:
        join = Join(
            request=0,
            member_id=request.member_id,
            new_member_id="",
            instance_id=_optional(request, "group_instance_id"),
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in request.protocols),
            require_known_member_id=request.require_known_member_id,
            supports_skipping_assignment=request.supports_skipping_assignment,
        )
        answer = await self._coordinator.join(request.group_id, join)
        return pb.JoinGroupResponse(
            error_code=answer.error,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=[
                pb.JoinGroupResponse.Member(
                    member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
                )
                for each in answer.members
            ],
        )

    async def sync_group(self, request: pb.SyncGroupRequest) -> pb.SyncGroupResponse:
        sync = Sync(
            request=0,
            member_id=request.member_id,
            generation_id=request.generation_id,
            instance_id=_optional(request, "group_instance_id"),
            protocol_type=_optional(request, "protocol_type"),
            protocol_name=_optional(request, "protocol_name"),
            assignments={each.member_id: each.assignment for each in request.assignments},
        )
        answer = await self._coordinator.sync(request.group_id, sync)
        return pb.SyncGroupResponse(
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )

    def heartbeat(
        self, request: pb.HeartbeatRequest, done: Callable[[pb.HeartbeatResponse], None]
    ) -> RepeatableHeartbeat | None:
        heartbeat = Heartbeat(
            request=0,
            member_id=request.member_id,
            generation_id=request.generation_id,
            instance_id=_optional(request, "group_instance_id"),
        )
        return self._coordinator.heartbeat(
            request.group_id, heartbeat, lambda error: done(pb.HeartbeatResponse(error_code=error))
        )

    async def leave_group(self, request: pb.LeaveGroupRequest) -> pb.LeaveGroupResponse:
        leavers = [Leaver(each.member_id, _optional(each, "group_instance_id")) for each in request.members]
        answer = await self._coordinator.leave(request.group_id, Leave(request=0, members=leavers))
        return pb.LeaveGroupResponse(error_code=answer.error, member_error_codes=answer.members)

    def commit_offsets(
        self,
        request: pb.CommitOffsetsRequest,
        done: Callable[[pb.CommitOffsetsResponse], None],
        is_wanted: Callable[[], bool] = lambda: True,  # noqa: ARG002 (it does not wait here)
    ) -> RepeatableCommit | None:
        name_of = self._coordinator.topics.name_of
        names = [name_of(each.topic_id) if each.topic_id else each.topic for each in request.offsets]

        def committed(errors: Sequence[ErrorCode]) -> None:
            if len(errors) != len(names):
                known = iter(errors)
                errors = [ErrorCode.UNKNOWN_TOPIC_ID if name is None else next(known) for name in names]
            done(pb.CommitOffsetsResponse(error_codes=errors))

        return self._coordinator.offsets.commit(_commit_of(request, names), committed)

    async def commit_transaction_offsets(self, request: pb.CommitTransactionOffsetsRequest) -> pb.CommitOffsetsResponse:
        commit = _commit_of(request.commit, [each.topic for each in request.commit.offsets], is_transactional=True)
        transaction = OfTransaction(
            request.transactional_id, request.producer_id, request.producer_epoch, request.version
        )
        answer: asyncio.Future[Sequence[ErrorCode]] = asyncio.get_running_loop().create_future()

        def committed(errors: Sequence[ErrorCode]) -> None:
            if not answer.done():  # its caller may have gone
                answer.set_result(errors)

        self._coordinator.transactional_offsets.commit(commit, transaction, committed)
        return pb.CommitOffsetsResponse(error_codes=await answer)

    async def fetch_offsets(self, request: pb.FetchOffsetsRequest) -> pb.FetchOffsetsResponse:
        stable = request.require_stable
        return pb.FetchOffsetsResponse(groups=[self._fetch(group, require_stable=stable) for group in request.groups])

    def _fetch(self, wanted: pb.FetchOffsetsRequest.Group, *, require_stable: bool) -> pb.FetchOffsetsResponse.Group:
        keys = None if wanted.all else [(each.topic, each.partition) for each in wanted.partitions]
        error, found = self._coordinator.offsets.fetch(
            wanted.group_id,
            keys,
            _optional(wanted, "member_id"),
            wanted.member_epoch if wanted.HasField("member_id") else -1,
        )
        answer = pb.FetchOffsetsResponse.Group(group_id=wanted.group_id, error_code=error)
        unstable = self._coordinator.offsets.unstable(wanted.group_id) if require_stable else ()
        for (topic, partition), offset in found:
            if (topic, partition) in unstable:
                code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                answer.offsets.add(topic=topic, partition=partition, offset=-1, leader_epoch=-1, error_code=code)
                continue
            answer.offsets.add(
                topic=topic,
                partition=partition,
                offset=-1 if offset is None else offset.offset,
                leader_epoch=-1 if offset is None else offset.leader_epoch,
                metadata="" if offset is None else offset.metadata,
            )
        return answer

    def consumer_group_heartbeat(
        self,
        request: pb.ConsumerGroupHeartbeatRequest,
        done: Callable[[pb.ConsumerGroupHeartbeatResponse], None],
    ) -> RepeatableHeartbeat | None:
        return self._coordinator.consumer_heartbeat(
            request.group_id,
            heartbeat_of(request),
            lambda answer: done(heartbeat_response(answer, request.group_id)),
            needs_member_id=request.needs_member_id,
            is_restricted=request.is_restricted,
        )

    async def resolve_patterns(self, request: pb.ResolvePatternsRequest) -> pb.ResolvePatternsResponse:
        self._coordinator.resolve_patterns(request.group_id, request.names, request.version)
        return pb.ResolvePatternsResponse()

    async def describe_consumer_groups(
        self, request: pb.DescribeConsumerGroupsRequest
    ) -> pb.DescribeConsumerGroupsResponse:
        topics, assignors = self._coordinator.topics, self._coordinator.assignors
        groups = [self._describe_consumers(group_id, topics, assignors) for group_id in request.group_ids]
        return pb.DescribeConsumerGroupsResponse(groups=groups)

    async def list_groups(self, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        if self._coordinator.is_loading():
            return pb.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = pb.ListGroupsResponse()
        states = {state.lower() for state in request.states}
        types = {each.lower() for each in request.types}
        steps = TaskSteps(_LISTED_PIECE)
        groups = self._coordinator.groups
        for group_id in sorted(groups):
            await steps.count()  # mutant: groups-in-turns
            hosted = groups.get(group_id)
            if hosted is None:  # deleted since
                continue
            group, state = hosted.entity, hosted.entity.state.value
            kind = group.type_name
            if (not states or state.lower() in states) and (not types or kind in types):
                answer.groups.add(group_id=group_id, protocol_type=group.protocol_type, state=state, type=kind)
        return answer

    async def describe_groups(self, request: pb.DescribeGroupsRequest) -> pb.DescribeGroupsResponse:
        return pb.DescribeGroupsResponse(groups=[self._describe(group_id) for group_id in request.group_ids])

    async def delete_groups(self, request: pb.DeleteGroupsRequest) -> pb.DeleteGroupsResponse:
        deleting = [self._coordinator.delete_group(group_id) for group_id in request.group_ids]
        return pb.DeleteGroupsResponse(error_codes=await asyncio.gather(*deleting))

    async def delete_offsets(self, request: pb.DeleteOffsetsRequest) -> pb.DeleteOffsetsResponse:
        keys = [(each.topic, each.partition) for each in request.partitions]
        error, errors = await self._coordinator.offsets.delete(request.group_id, keys)
        return pb.DeleteOffsetsResponse(error_code=error, partition_error_codes=errors)

    def _describe_consumers(
        self, group_id: str, topics: Topics, assignors: Sequence[str]
    ) -> pb.DescribeConsumerGroupsResponse.Group:
        error, group = self._coordinator.find(group_id, empty_allowed=False)
        describe = None if group is None else _CONSUMER_DESCRIPTIONS.get(group.type_name)
        if describe is None:
            error = error or ErrorCode.GROUP_ID_NOT_FOUND
            return pb.DescribeConsumerGroupsResponse.Group(error_code=error, group_id=group_id)
        return describe(group, topics, assignors)

    def _describe(self, group_id: str) -> pb.DescribeGroupsResponse.Group:
        error, group = self._coordinator.find(group_id)
        if error:
            return pb.DescribeGroupsResponse.Group(error_code=error, group_id=group_id, generation_id=-1)
        describe = None if group is None else _DESCRIPTIONS.get(group.type_name)
        if describe is None:
            return pb.DescribeGroupsResponse.Group(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                group_id=group_id,
                state=GroupState.DEAD.value,
                generation_id=-1,
            )
        return describe(group)


def _commit_of(
    request: pb.CommitOffsetsRequest, names: Sequence[str | None], *, is_transactional: bool = False
) -> CommitRequest:
    """Return a commit of the offsets whose topic has a name."""
    caller = Commit(
        request=0,
        member_id=request.member_id,
        generation_id=request.generation_id,
        instance_id=_optional(request, "group_instance_id"),
        is_transactional=is_transactional,
    )
    offsets = [
        NewOffset(name, each.partition, each.offset, each.leader_epoch, _optional(each, "metadata"))
        for name, each in zip(names, request.offsets, strict=True)
        if name is not None
    ]
    return CommitRequest(
        request.group_id,
        caller,
        offsets,
        retention_time_ms=request.retention_time_ms,
        knows_epochs=request.group_not_found_supported,
        will_repeat=request.will_repeat and None not in names,
    )


def _described(group: Group) -> pb.DescribeGroupsResponse.Group:
    """Return a classic group. Metadata of members is shown only while the group is stable; their last assignments are
    shown always (Kafka)."""
    is_stable = group.state is GroupState.STABLE
    protocol_name = group.protocol_name or "" if is_stable else ""
    return pb.DescribeGroupsResponse.Group(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_name=protocol_name,
        generation_id=group.generation_id,
        members=[
            pb.DescribeGroupsResponse.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(protocol_name) if is_stable else b"",
                assignment=member.assignment,
            )
            for member in group.members
        ],
    )


#: The kinds of groups that DescribeGroups describes, and those of ConsumerGroupDescribe (KIP-848).
_DESCRIPTIONS: Final[Mapping[str, Callable[..., pb.DescribeGroupsResponse.Group]]] = {Group.type_name: _described}
_CONSUMER_DESCRIPTIONS: Final[Mapping[str, Callable[..., pb.DescribeConsumerGroupsResponse.Group]]] = {
    ConsumerGroup.type_name: described
}
