"""Storage as admin-api sees it: the gRPC contract, one method per question, Kafka error codes raised as ApiError.

`Storage` owns the channel and is built once. `Storage.calls(correlation_id)` returns the calls of one request, so that
storage's debug log has the request's number too.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from broker_contract import (
    access_pb2,
    administration_pb2,
    cluster_pb2,
    data_pb2,
    groups_pb2,
    logs_pb2,
    stubs,
    topics_pb2,
    transactions_pb2,
)
from broker_contract.acls import CLUSTER_NAME, Operation
from broker_contract.version import CONTRACT_VERSION
from service_chassis import logs, rpc
from service_chassis.grpc_status import RpcError, Status
from service_chassis.internal_tls import InternalTls

from admin_api import errors
from admin_api.rights import CLUSTER, EVERYTHING, GROUP, TOPIC, TRANSACTIONAL_ID, Policy, Rights, Sender

#: Kafka's special timestamps of ListOffsets.
LATEST = -1
EARLIEST = -2
#: Kafka's types of a resource that has configurations.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
#: Offsets in one commit: storage writes them as one batch.
OFFSETS_BATCH = 1000

#: No answer at all. Only the first of a row is worth a warning: probes ask many times a second.
_SILENCE = frozenset({Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED})
#: Silence of storage after the start, in seconds, before it is reported: both services start at once.
_START_PATIENCE_S = 10.0
#: Seconds for a change of topics, which may have thousands of partitions, or of access, for which storage waits until
#: every gateway obeys it. `millrace` waits 30 s for REST.
CHANGE_TIMEOUT_S = 25.0

log = logs.get(__name__)
Request = TypeVar("Request")
Response = TypeVar("Response")


class Storage:
    """The channel to storage-svc; it connects on first use and reconnects by itself. Build it inside the event loop."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float,
        start_patience_s: float = _START_PATIENCE_S,
        tls: InternalTls | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        #: Whether the last call was not answered, and whether that was warned of.
        self._is_silent = False
        self._warned = False
        self._patient_until = time.monotonic() + start_patience_s
        self._channel = rpc.channel(address, CONTRACT_VERSION, tls=tls)
        self.access = stubs.AccessStub(self._channel)
        self.cluster = stubs.ClusterStub(self._channel)
        self.data = stubs.DataStub(self._channel)
        self.groups = stubs.GroupsStub(self._channel)
        self.logs = stubs.LogsStub(self._channel)
        self.administration = stubs.AdministrationStub(self._channel)
        self.topics = stubs.TopicsStub(self._channel)
        self.transactions = stubs.TransactionsStub(self._channel)
        self.users = stubs.UsersStub(self._channel)

    def calls(
        self,
        correlation_id: int,
        *,
        timeout_s: float | None = None,
        policy: Policy | None = None,
        sender: Sender | None = None,
    ) -> StorageCalls:
        """Return the calls of one request. Without a policy they have every right."""
        calls = StorageCalls(self, correlation_id, self.timeout_s if timeout_s is None else timeout_s)
        if policy is not None:
            calls.rights = Rights(calls.decide, policy, sender)
        return calls

    def answered(self) -> bool:
        """Note that a call was answered. Return True after a silence."""
        after_silence = self._is_silent
        self._is_silent, self._warned, self._patient_until = False, False, 0.0
        return after_silence

    def silent(self) -> bool:
        """Note that a call was not answered at all. Return True when to warn: once, and not at the start."""
        self._is_silent = True
        worth_it = not self._warned and time.monotonic() >= self._patient_until
        self._warned = self._warned or worth_it
        return worth_it

    async def close(self) -> None:
        await self._channel.close()


class StorageCalls:
    """The questions of one request to storage. Every method raises ApiError when storage cannot answer.

    Lists of everything (topics, groups, transactions, committed offsets) leave out what the sender may not describe.
    """

    __slots__ = ("_change_timeout_s", "_storage", "_timeout_s", "correlation_id", "rights")

    def __init__(self, storage: Storage, correlation_id: int, timeout_s: float) -> None:
        self._storage = storage
        self._timeout_s = timeout_s
        self._change_timeout_s = max(timeout_s, CHANGE_TIMEOUT_S)
        self.correlation_id = correlation_id
        #: The rights of the request's sender.
        self.rights = EVERYTHING

    async def decide(self, request: access_pb2.DecideRequest) -> access_pb2.DecideResponse:
        return await self.ask(lambda storage: storage.access.Decide, request)

    async def cluster(self) -> cluster_pb2.DescribeClusterResponse:
        request = cluster_pb2.DescribeClusterRequest(correlation_id=self.correlation_id)
        return await self._answer(self._storage.cluster.DescribeCluster(request, timeout=self._timeout_s))

    async def topics(self) -> Sequence[topics_pb2.Topic]:
        """Return all topics in name order."""
        request = topics_pb2.DescribeTopicsRequest(correlation_id=self.correlation_id, all=True)
        response = await self._answer(self._storage.topics.DescribeTopics(request, timeout=self._timeout_s))
        return await self.rights.shown(TOPIC, response.topics, lambda each: each.name)

    async def topic(self, name: str) -> topics_pb2.Topic:
        request = topics_pb2.DescribeTopicsRequest(
            correlation_id=self.correlation_id, topics=[topics_pb2.TopicRef(name=name)]
        )
        response = await self._answer(self._storage.topics.DescribeTopics(request, timeout=self._timeout_s))
        topic = _only(response.topics)
        errors.check(_as_absent(topic.error_code))
        return topic

    async def create_topic(self, topic: topics_pb2.NewTopic, *, validate_only: bool) -> topics_pb2.CreatedTopic:
        created = _only(await self.create_topics([topic], validate_only=validate_only))
        if isinstance(created, errors.ApiError):
            raise created
        return created

    async def create_topics(
        self, topics: Sequence[topics_pb2.NewTopic], *, validate_only: bool
    ) -> list[topics_pb2.CreatedTopic | errors.ApiError]:
        """Create topics together; return each one, or the reason why it is refused, in order."""
        request = topics_pb2.CreateTopicsRequest(
            correlation_id=self.correlation_id, validate_only=validate_only, topics=topics
        )
        response = await self._answer(self._storage.topics.CreateTopics(request, timeout=self._change_timeout_s))
        return [errors.refusal(created.error_code, created.error_message) or created for created in response.topics]

    async def create_partitions(self, name: str, partition_count: int) -> None:
        """Add partitions to a topic until it has this number."""
        request = topics_pb2.CreatePartitionsRequest(
            correlation_id=self.correlation_id,
            topics=[topics_pb2.GrowingTopic(name=name, partition_count=partition_count)],
        )
        response = await self._answer(self._storage.topics.CreatePartitions(request, timeout=self._change_timeout_s))
        grown = _only(response.topics)
        errors.check(_as_absent(grown.error_code), grown.error_message)

    async def delete_topic(self, name: str) -> None:
        for refusal in (await self.delete_topics([name])).values():
            raise refusal

    async def delete_topics(self, names: Sequence[str]) -> dict[str, errors.ApiError]:
        """Delete topics of different names together; return the reasons of those that are refused, by name."""
        request = topics_pb2.DeleteTopicsRequest(
            correlation_id=self.correlation_id, topics=[topics_pb2.TopicRef(name=name) for name in names]
        )
        response = await self._answer(self._storage.topics.DeleteTopics(request, timeout=self._change_timeout_s))
        answers = {
            name: errors.refusal(_as_absent(answer.error_code), answer.error_message)
            for name, answer in zip(names, response.topics, strict=True)
        }
        return {name: refusal for name, refusal in answers.items() if refusal is not None}

    async def configs(
        self, resource_type: int, names: Iterable[str], *, key: str | None = None, skip_absent: bool = False
    ) -> list[topics_pb2.ResourceConfigs]:
        """Return the configurations of each named resource, in order: every key, or the named one."""
        request = topics_pb2.DescribeConfigsRequest(
            correlation_id=self.correlation_id,
            resources=[
                topics_pb2.ConfigResource(
                    type=resource_type, name=name, keys=[] if key is None else [key], all_keys=key is None
                )
                for name in names
            ],
        )
        response = await self._answer(self._storage.topics.DescribeConfigs(request, timeout=self._timeout_s))
        found = []
        for resource in response.resources:
            code = _as_absent(resource.error_code)
            if not (skip_absent and code == errors.UNKNOWN_TOPIC_OR_PARTITION):
                errors.check(code, resource.error_message)
                found.append(resource)
        return found

    async def alter_configs(
        self, resource_type: int, name: str, changes: Sequence[topics_pb2.ConfigChange], *, validate_only: bool = False
    ) -> None:
        request = topics_pb2.AlterConfigsRequest(
            correlation_id=self.correlation_id,
            resources=[topics_pb2.ConfigChanges(type=resource_type, name=name, changes=changes)],
            validate_only=validate_only,
        )
        response = await self._answer(self._storage.topics.AlterConfigs(request, timeout=self._timeout_s))
        altered = _only(response.resources)
        errors.check(_as_absent(altered.error_code), altered.error_message)

    async def offsets(
        self, targets: Sequence[tuple[str, int, int]], *, read_committed: bool = False
    ) -> list[data_pb2.ListOffsetsResponse.Found]:
        """Return the offset per (topic, partition, timestamp or EARLIEST or LATEST), in order; its error code is a
        value. At read_committed LATEST is the last stable offset.
        """
        if not targets:
            return []
        request = data_pb2.ListOffsetsRequest(
            correlation_id=self.correlation_id,
            isolation_level=int(read_committed),
            targets=[
                data_pb2.ListOffsetsRequest.Target(
                    topic=topic, partition=partition, timestamp=timestamp, current_leader_epoch=-1
                )
                for topic, partition, timestamp in targets
            ],
        )
        response = await self._answer(self._storage.data.ListOffsets(request, timeout=self._timeout_s))
        return list(response.offsets)

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records before an offset of each partition; return the log start offsets afterwards."""
        request = data_pb2.DeleteRecordsRequest(
            correlation_id=self.correlation_id,
            targets=[
                data_pb2.DeleteRecordsRequest.Target(topic=topic, partition=partition, offset=offset)
                for partition, offset in before.items()
            ],
        )
        response = await self._answer(self._storage.data.DeleteRecords(request, timeout=self._timeout_s))
        for deleted in response.partitions:
            errors.check(deleted.error_code)
        return {
            partition: deleted.log_start_offset for partition, deleted in zip(before, response.partitions, strict=True)
        }

    async def groups(self) -> Sequence[groups_pb2.ListGroupsResponse.Group]:
        request = groups_pb2.ListGroupsRequest(correlation_id=self.correlation_id)
        response = await self._answer(self._storage.groups.ListGroups(request, timeout=self._timeout_s))
        errors.check(response.error_code)
        if (await self.rights.allowed([(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)]))[0]:
            return response.groups
        return await self.rights.shown(GROUP, response.groups, lambda each: each.group_id)

    async def describe_groups(self, group_ids: Sequence[str]) -> list[groups_pb2.DescribeGroupsResponse.Group]:
        """Return the groups in the order asked. A missing group has error code GROUP_ID_NOT_FOUND or the state Dead."""
        if not group_ids:
            return []
        request = groups_pb2.DescribeGroupsRequest(correlation_id=self.correlation_id, group_ids=group_ids)
        response = await self._answer(self._storage.groups.DescribeGroups(request, timeout=self._timeout_s))
        return list(response.groups)

    async def describe_consumer_groups(
        self, group_ids: Sequence[str]
    ) -> list[groups_pb2.DescribeConsumerGroupsResponse.Group]:
        """Return groups of KIP-848, in the order asked; any other has error code GROUP_ID_NOT_FOUND."""
        if not group_ids:
            return []
        request = groups_pb2.DescribeConsumerGroupsRequest(correlation_id=self.correlation_id, group_ids=group_ids)
        response = await self._answer(self._storage.groups.DescribeConsumerGroups(request, timeout=self._timeout_s))
        return list(response.groups)

    async def committed_offsets(self, group_ids: Sequence[str]) -> list[groups_pb2.FetchOffsetsResponse.Group]:
        """Return all committed offsets of each group, in the order asked."""
        if not group_ids:
            return []
        request = groups_pb2.FetchOffsetsRequest(
            correlation_id=self.correlation_id,
            groups=[groups_pb2.FetchOffsetsRequest.Group(group_id=group_id, all=True) for group_id in group_ids],
        )
        response = await self._answer(self._storage.groups.FetchOffsets(request, timeout=self._timeout_s))
        await self.rights.hide(TOPIC, [group.offsets for group in response.groups], lambda each: each.topic)
        return list(response.groups)

    async def delete_group(self, group_id: str) -> None:
        request = groups_pb2.DeleteGroupsRequest(correlation_id=self.correlation_id, group_ids=[group_id])
        response = await self._answer(self._storage.groups.DeleteGroups(request, timeout=self._timeout_s))
        errors.check(_only(response.error_codes))

    async def delete_offsets(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        request = groups_pb2.DeleteOffsetsRequest(
            correlation_id=self.correlation_id,
            group_id=group_id,
            partitions=[groups_pb2.TopicPartition(topic=topic, partition=partition) for topic, partition in partitions],
        )
        response = await self._answer(self._storage.groups.DeleteOffsets(request, timeout=self._timeout_s))
        for code in (response.error_code, *response.partition_error_codes):
            errors.check(code)

    async def alter_offsets(
        self, group_id: str, offsets: Sequence[administration_pb2.AlterOffsetsRequest.Offset]
    ) -> None:
        """Commit offsets of a group without members, some at a time. ApiError 409 if it has some.

        The sender needs READ of each topic, as for commits over the Kafka protocol.
        """
        await self.rights.require(*[(Operation.READ, TOPIC, name) for name in sorted({each.topic for each in offsets})])
        for at in range(0, len(offsets), OFFSETS_BATCH):
            request = administration_pb2.AlterOffsetsRequest(
                correlation_id=self.correlation_id, group_id=group_id, offsets=offsets[at : at + OFFSETS_BATCH]
            )
            call = self._storage.administration.AlterOffsets(request, timeout=self._timeout_s)
            for code in (await self._answer(call)).error_codes:
                errors.check(code)

    async def log_dirs(self) -> logs_pb2.DescribeLogDirsResponse:
        """Return the data folder, and the size and the state of each log in it."""
        request = logs_pb2.DescribeLogDirsRequest(correlation_id=self.correlation_id)
        response = await self._answer(self._storage.logs.DescribeLogDirs(request, timeout=self._timeout_s))
        errors.check(response.error_code)
        return response

    async def producers(
        self, topic: str, partitions: Sequence[int]
    ) -> list[logs_pb2.DescribeProducersResponse.Partition]:
        """Return the producers of each log, in order; of fewer logs if they have too many."""
        request = logs_pb2.DescribeProducersRequest(
            correlation_id=self.correlation_id,
            targets=[
                logs_pb2.DescribeProducersRequest.Target(topic=topic, partition=partition) for partition in partitions
            ],
        )
        response = await self._answer(self._storage.logs.DescribeProducers(request, timeout=self._timeout_s))
        return list(response.partitions)

    async def transactions(
        self, states: Sequence[str], producer_ids: Sequence[int] = ()
    ) -> Sequence[transactions_pb2.ListTransactionsResponse.Listed]:
        """Return the transactional ids whose transactions have one of these states, or (empty) all."""
        request = transactions_pb2.ListTransactionsRequest(
            correlation_id=self.correlation_id, states=states, producer_ids=producer_ids, duration_ms=-1
        )
        response = await self._answer(self._storage.transactions.ListTransactions(request, timeout=self._timeout_s))
        errors.check(response.error_code)
        return await self.rights.shown(TRANSACTIONAL_ID, response.transactions, lambda each: each.transactional_id)

    async def describe_transactions(
        self, transactional_ids: Sequence[str]
    ) -> list[transactions_pb2.DescribeTransactionsResponse.Description]:
        """Return the transactions in the order asked; the error code of each is a value."""
        if not transactional_ids:
            return []
        request = transactions_pb2.DescribeTransactionsRequest(
            correlation_id=self.correlation_id, transactional_ids=transactional_ids
        )
        response = await self._answer(self._storage.transactions.DescribeTransactions(request, timeout=self._timeout_s))
        await self.rights.hide(TOPIC, [each.topics for each in response.transactions], lambda each: each.name)
        return list(response.transactions)

    async def fence_producer(self, transactional_id: str, timeout_ms: int) -> int:
        """Fence the producer of a transactional id, which aborts its transaction. Return Kafka's error code."""
        request = transactions_pb2.InitProducerRequest(
            correlation_id=self.correlation_id,
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await self._answer(self._storage.transactions.InitProducer(request, timeout=self._timeout_s))
        return answer.error_code

    async def abort_in_partition(
        self, topic: str, partition: int, producer: logs_pb2.DescribeProducersResponse.Producer
    ) -> None:
        """Write the marker that aborts a producer's transaction in one partition, without the coordinator."""
        marker = transactions_pb2.WriteMarkersRequest.Marker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            commit=False,
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            topic=topic,
            partition=partition,
        )
        request = transactions_pb2.WriteMarkersRequest(correlation_id=self.correlation_id, markers=[marker])
        response = await self._answer(self._storage.transactions.WriteMarkers(request, timeout=self._timeout_s))
        errors.check(_only(response.error_codes))

    async def samples(self, run_id: int, after: int) -> administration_pb2.DescribeSamplesResponse:
        """Return the oldest samples after one that storage has taken."""
        request = administration_pb2.DescribeSamplesRequest(
            correlation_id=self.correlation_id, run_id=run_id, after=after
        )
        return await self._answer(self._storage.administration.DescribeSamples(request, timeout=self._timeout_s))

    async def lag_times(self, group_ids: Sequence[str]) -> list[dict[tuple[str, int], float]]:
        """Return the lag in seconds by topic and partition for each group, in the order asked."""
        if not group_ids:
            return []
        request = administration_pb2.DescribeLagTimesRequest(correlation_id=self.correlation_id, group_ids=group_ids)
        answer = await self._answer(self._storage.administration.DescribeLagTimes(request, timeout=self._timeout_s))
        return [
            {(each.topic, each.partition): each.lag_ms / 1000 for each in group.partitions} for group in answer.groups
        ]

    async def scrub(self, limit: int) -> administration_pb2.DescribeScrubResponse:
        """Return the state of the scrub and the first files of damaged bytes."""
        request = administration_pb2.DescribeScrubRequest(correlation_id=self.correlation_id, limit=limit)
        return await self._answer(self._storage.administration.DescribeScrub(request, timeout=self._timeout_s))

    async def segments(
        self, topic: str, after: tuple[str, int, int] | None, limit: int
    ) -> administration_pb2.DescribeSegmentsResponse:
        """Return the segments after one, of a topic or (empty) of all."""
        request = administration_pb2.DescribeSegmentsRequest(
            correlation_id=self.correlation_id, topic=topic, limit=limit
        )
        if after is not None:
            request.after.topic, request.after.partition, request.after.base_offset = after
        return await self._answer(self._storage.administration.DescribeSegments(request, timeout=self._timeout_s))

    async def ask(self, method: Callable[[Storage], stubs.Unary[Request, Response]], request: Request) -> Response:
        """Return the answer to a question."""
        return await self._answer(method(self._storage)(request, timeout=self._timeout_s))

    async def change(self, method: Callable[[Storage], stubs.Unary[Request, Response]], request: Request) -> Response:
        """Return the answer to a change that storage may take long to make."""
        return await self._answer(method(self._storage)(request, timeout=self._change_timeout_s))

    async def _answer(self, call: Awaitable[Response]) -> Response:
        try:
            answer = await call
        except RpcError as error:
            warn = self._storage.silent() if error.status in _SILENCE else True
            (log.warning if warn else log.debug)(
                "storage call failed",
                correlation_id=self.correlation_id,
                code=error.status.name,
                details=error.details,
            )
            raise errors.from_rpc(error) from error
        if self._storage.answered():
            log.info("storage answers", correlation_id=self.correlation_id)
        return answer


def _only(answers: Sequence[Response]) -> Response:
    """Return the one answer to a request for one thing."""
    if len(answers) != 1:
        raise errors.internal_error()
    return answers[0]


def _as_absent(kafka_code: int) -> int:
    """Replace 17 INVALID_TOPIC_EXCEPTION: a topic with an illegal name does not exist."""
    return errors.UNKNOWN_TOPIC_OR_PARTITION if kafka_code == 17 else kafka_code
