"""Unary calls of storage, and the answers that clients get when storage gives none.

once         at most one call                                     creating a topic
repeatable   another call when storage dies before it answers     listing offsets
parked       one call, as long as it takes                        joining a group

A method that is cancelled cancels its call: storage does not begin one that it has not begun yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import grpc
from broker_contract import data_pb2, groups_pb2, logs_pb2, producers_pb2, topics_pb2
from protocol_lib.errors import ErrorCode

from gateway_svc.errors import StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_stream import CONTROL_WAIT_S
from gateway_svc.storage.lasting_stream import RECONNECT_MAX_S

_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT
_NO_COORDINATOR: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
#: A method of the Protocols in `storage.protocols`.
Method = Callable[[RequestT], Coroutine[Any, Any, AnswerT]]
StubMethod = grpc.aio.UnaryUnaryMultiCallable


class Unary:
    """A maker of the Protocols' methods from one channel's unary calls."""

    def __init__(self, metrics: GatewayMetrics, connected: asyncio.Event) -> None:
        """Make methods that wait for `connected`, where they must not start without storage."""
        self._metrics = metrics
        self._connected = connected

    def once(
        self,
        method: StubMethod[RequestT, AnswerT],
        otherwise: Callable[[RequestT], AnswerT] | None = None,
        timeout_s: float = CONTROL_WAIT_S,
    ) -> Method[RequestT, AnswerT]:
        """Return a method that calls storage once: storage may have done its work before it died.

        Args:
            method: of a stub.
            otherwise: returns the answer when storage has none in time, or raises. Without it the method raises.
            timeout_s: for the call, and for storage to be there.
        """

        async def call(request: RequestT) -> AnswerT:
            try:
                return await self._ask(method, request, timeout_s)
            except StorageUnavailable:
                if otherwise is None:
                    raise
                return otherwise(request)

        return call

    def repeatable(
        self,
        method: StubMethod[RequestT, AnswerT],
        otherwise: Callable[[RequestT], AnswerT],
        may_repeat: Callable[[RequestT], bool] = lambda _: True,
    ) -> Method[RequestT, AnswerT]:
        """Return a method that calls storage again when it died before it answered.

        The call must change nothing the second time, not even after acts of others in between.

        Args:
            method: of a stub.
            otherwise: as for `once`.
            may_repeat: returns whether that holds for a request.
        """

        async def call(request: RequestT) -> AnswerT:
            loop = asyncio.get_running_loop()
            until = loop.time() + CONTROL_WAIT_S
            while True:
                try:
                    return await self._ask(method, request, until - loop.time())
                except StorageUnavailable:
                    if loop.time() + RECONNECT_MAX_S >= until or not may_repeat(request):  # mutant: delete-records-once
                        return otherwise(request)
                    await asyncio.sleep(RECONNECT_MAX_S)

        return call

    def parked(
        self, method: StubMethod[RequestT, AnswerT], otherwise: Callable[[RequestT], AnswerT]
    ) -> Method[RequestT, AnswerT]:
        """Return a method for a call that storage may park for as long as other clients make it wait; it calls once.

        Storage must be there first: the wait for it would be as long otherwise. `otherwise`: as for `once`.
        """

        async def call(request: RequestT) -> AnswerT:
            try:
                async with asyncio.timeout(CONTROL_WAIT_S):
                    await self._connected.wait()
                return await self._ask(method, request, None)
            except (TimeoutError, StorageUnavailable):
                return otherwise(request)

        return call

    async def _ask(self, method: StubMethod[RequestT, AnswerT], request: RequestT, timeout_s: float | None) -> AnswerT:
        """Call storage, and wait until it is there. `timeout_s`: None for no end but that of the connection.

        Raises:
            StorageUnavailable: there was no answer in time, or an error instead.
        """
        started = time.perf_counter()
        try:
            return await method(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            self._metrics.storage_errors[error.code().name] += 1
            raise StorageUnavailable(f"{error.code().name}: {error.details()}") from error
        finally:
            name = type(request).__name__.removesuffix("Request")
            self._metrics.storage_calls[name].observe(time.perf_counter() - started)


# -- answers without storage -------------------------------------------------------------------------------------------


def offsets_missing(request: data_pb2.ListOffsetsRequest) -> data_pb2.ListOffsetsResponse:
    missing = data_pb2.ListOffsetsResponse.Found(error_code=_NOT_LEADER, timestamp=-1, offset=-1, leader_epoch=-1)
    return data_pb2.ListOffsetsResponse(offsets=[missing for _ in request.targets])


def producers_missing(request: logs_pb2.DescribeProducersRequest) -> logs_pb2.DescribeProducersResponse:
    missing = logs_pb2.DescribeProducersResponse.Partition(error_code=_NOT_LEADER)
    return logs_pb2.DescribeProducersResponse(partitions=[missing for _ in request.targets])


def folder_unknown(_: logs_pb2.DescribeLogDirsRequest) -> logs_pb2.DescribeLogDirsResponse:
    return logs_pb2.DescribeLogDirsResponse(error_code=_TIMED_OUT)


def epochs_missing(request: data_pb2.EndEpochsRequest) -> data_pb2.EndEpochsResponse:
    missing = data_pb2.EndEpochsResponse.End(error_code=_NOT_LEADER, leader_epoch=-1, end_offset=-1)
    return data_pb2.EndEpochsResponse(ends=[missing for _ in request.targets])


def records_not_deleted(request: data_pb2.DeleteRecordsRequest) -> data_pb2.DeleteRecordsResponse:
    missing = data_pb2.DeleteRecordsResponse.Deleted(error_code=_NOT_LEADER, log_start_offset=-1)
    return data_pb2.DeleteRecordsResponse(partitions=[missing for _ in request.targets])


def topics_unknown(request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse:
    if request.all:
        raise StorageUnavailable("which topics there are")
    error = ErrorCode.LEADER_NOT_AVAILABLE
    topics = [topics_pb2.Topic(error_code=error, name=each.name, id=each.id) for each in request.topics]
    return topics_pb2.DescribeTopicsResponse(topics=topics)


def topics_not_created(request: topics_pb2.CreateTopicsRequest) -> topics_pb2.CreateTopicsResponse:
    topics = [topics_pb2.CreatedTopic(name=each.name, error_code=_TIMED_OUT) for each in request.topics]
    return topics_pb2.CreateTopicsResponse(topics=topics)


def topics_not_deleted(request: topics_pb2.DeleteTopicsRequest) -> topics_pb2.DeleteTopicsResponse:
    topics = [topics_pb2.DeletedTopic(name=each.name, id=each.id, error_code=_TIMED_OUT) for each in request.topics]
    return topics_pb2.DeleteTopicsResponse(topics=topics)


def configs_unknown(request: topics_pb2.DescribeConfigsRequest) -> topics_pb2.DescribeConfigsResponse:
    resources = [
        topics_pb2.ResourceConfigs(type=each.type, name=each.name, error_code=_TIMED_OUT) for each in request.resources
    ]
    return topics_pb2.DescribeConfigsResponse(resources=resources)


def configs_not_altered(request: topics_pb2.AlterConfigsRequest) -> topics_pb2.AlterConfigsResponse:
    resources = [topics_pb2.AlteredResource(error_code=_TIMED_OUT) for _ in request.resources]
    return topics_pb2.AlterConfigsResponse(resources=resources)


def partitions_not_created(request: topics_pb2.CreatePartitionsRequest) -> topics_pb2.CreatePartitionsResponse:
    topics = [topics_pb2.GrownTopic(name=each.name, error_code=_TIMED_OUT) for each in request.topics]
    return topics_pb2.CreatePartitionsResponse(topics=topics)


def resources_unknown(_: topics_pb2.ListConfigResourcesRequest) -> topics_pb2.ListConfigResourcesResponse:
    return topics_pb2.ListConfigResourcesResponse(error_code=_TIMED_OUT)


def not_joined(request: groups_pb2.JoinGroupRequest) -> groups_pb2.JoinGroupResponse:
    return groups_pb2.JoinGroupResponse(error_code=_NO_COORDINATOR, generation_id=-1, member_id=request.member_id)


def not_synced(_: groups_pb2.SyncGroupRequest) -> groups_pb2.SyncGroupResponse:
    return groups_pb2.SyncGroupResponse(error_code=_NO_COORDINATOR)


def not_left(_: groups_pb2.LeaveGroupRequest) -> groups_pb2.LeaveGroupResponse:
    return groups_pb2.LeaveGroupResponse(error_code=_NO_COORDINATOR)


def consumer_groups_unknown(
    request: groups_pb2.DescribeConsumerGroupsRequest,
) -> groups_pb2.DescribeConsumerGroupsResponse:
    group = groups_pb2.DescribeConsumerGroupsResponse.Group
    groups = [group(group_id=each, error_code=_NO_COORDINATOR) for each in request.group_ids]
    return groups_pb2.DescribeConsumerGroupsResponse(groups=groups)


def offsets_not_committed(request: groups_pb2.CommitTransactionOffsetsRequest) -> groups_pb2.CommitOffsetsResponse:
    return groups_pb2.CommitOffsetsResponse(error_codes=[_NO_COORDINATOR for _ in request.commit.offsets])


def commits_unknown(request: groups_pb2.FetchOffsetsRequest) -> groups_pb2.FetchOffsetsResponse:
    group = groups_pb2.FetchOffsetsResponse.Group
    groups = [group(group_id=each.group_id, error_code=_NO_COORDINATOR) for each in request.groups]
    return groups_pb2.FetchOffsetsResponse(groups=groups)


def groups_not_listed(_: groups_pb2.ListGroupsRequest) -> groups_pb2.ListGroupsResponse:
    return groups_pb2.ListGroupsResponse(error_code=_NO_COORDINATOR)


def groups_unknown(request: groups_pb2.DescribeGroupsRequest) -> groups_pb2.DescribeGroupsResponse:
    group = groups_pb2.DescribeGroupsResponse.Group
    groups = [group(group_id=each, error_code=_NO_COORDINATOR) for each in request.group_ids]
    return groups_pb2.DescribeGroupsResponse(groups=groups)


def groups_not_deleted(request: groups_pb2.DeleteGroupsRequest) -> groups_pb2.DeleteGroupsResponse:
    return groups_pb2.DeleteGroupsResponse(error_codes=[_NO_COORDINATOR for _ in request.group_ids])


def offsets_not_deleted(_: groups_pb2.DeleteOffsetsRequest) -> groups_pb2.DeleteOffsetsResponse:
    return groups_pb2.DeleteOffsetsResponse(error_code=_NO_COORDINATOR)


def no_producer_id(_: producers_pb2.InitProducerIdRequest) -> producers_pb2.InitProducerIdResponse:
    return producers_pb2.InitProducerIdResponse(error_code=_NO_COORDINATOR)
