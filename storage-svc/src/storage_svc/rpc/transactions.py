"""The Transactions service: protobuf messages to the transaction coordinator's events and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from broker_contract import transactions_pb2 as pb
from protocol_lib.errors import ErrorCode
from service_chassis.steps import TaskSteps

from storage_svc.coordinator.topic_pattern import InvalidPatternError, TopicPattern, compile_pattern
from storage_svc.coordinator.transactions.coordinator import TransactionCoordinator
from storage_svc.coordinator.transactions.events import AddPartitions, EndTransaction, InitProducer
from storage_svc.coordinator.transactions.records import by_topic
from storage_svc.coordinator.transactions.transaction import EPOCH_BUMP_VERSION, NONE, STATE_NAMES, Transaction
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.names import INTERNAL_TOPICS
from storage_svc.transaction_ports import Claim, Marker, MarkerWriter

#: Partitions, transactional ids, or characters of ids to match, that are checked without a turn for others.
_PIECE: Final = 500
#: Bytes of transactional ids in one list. No client is sent a longer one.
_LISTED_BYTES_MAX: Final = 64 << 20


class TransactionsService:
    def __init__(
        self,
        coordinator: TransactionCoordinator,
        markers: MarkerWriter,
        partition_exists: Callable[[str, int], bool],
        offsets_partition: Callable[[str], TopicPartition],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """Serve the coordinator. `offsets_partition` returns the partition that holds a group's offsets."""
        self._coordinator = coordinator
        self._markers = markers
        self._partition_exists = partition_exists
        self._offsets_partition = offsets_partition
        self._now_ms = wall_clock_ms

    async def init_producer(self, request: pb.InitProducerRequest) -> pb.InitProducerResponse:
        producer_id, epoch = request.producer_id, request.producer_epoch
        if (producer_id == NONE) != (epoch == NONE):
            return pb.InitProducerResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=NONE, producer_epoch=NONE)
        expected = None if producer_id == NONE else (producer_id, epoch)
        answer = await self._coordinator.init_producer(
            request.transactional_id, InitProducer(request.timeout_ms, expected)
        )
        return pb.InitProducerResponse(
            error_code=answer.error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
        )

    async def add_partitions(self, request: pb.AddPartitionsRequest) -> pb.AddPartitionsResponse:
        response = pb.AddPartitionsResponse()
        for transaction in request.transactions:
            codes = await self._add(transaction, request.client_version)
            response.results.add(error_codes=codes)
        return response

    async def _add(self, transaction: pb.AddPartitionsRequest.Transaction, client_version: int) -> list[ErrorCode]:
        """Return the code of each partition. If one does not exist, or is a coordinator's and a client names it, none
        is added (Kafka)."""
        partitions = [
            (name, index)  # one string for all partitions of a topic: each access to the message makes one
            for topic in transaction.topics
            for name in (topic.name,)
            for index in topic.partitions
        ]
        faults = await self._faults(partitions, is_client=client_version < EPOCH_BUMP_VERSION)
        if any(faults):
            return [each or ErrorCode.OPERATION_NOT_ATTEMPTED for each in faults]
        transactional_id, producer_id = transaction.transactional_id, transaction.producer_id
        epoch = transaction.producer_epoch
        if transaction.verify_only:
            return self._coordinator.faults(Claim(transactional_id, producer_id, epoch, partitions))
        add = AddPartitions(producer_id, epoch, frozenset(partitions), client_version)
        return [await self._coordinator.add_partitions(transactional_id, add)] * len(partitions)

    async def _faults(self, partitions: Sequence[TopicPartition], *, is_client: bool) -> list[ErrorCode]:
        steps = TaskSteps(_PIECE)
        faults: list[ErrorCode] = []
        for begin in range(0, len(partitions), _PIECE):
            if begin:
                await steps.count(_PIECE)
            faults += [self._fault(each, is_client=is_client) for each in partitions[begin : begin + _PIECE]]
        return faults

    def _fault(self, partition: TopicPartition, *, is_client: bool) -> ErrorCode:
        if is_client and partition[0] in INTERNAL_TOPICS:  # mutant: no-client-marks-coordinators
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE if self._partition_exists(*partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def add_offsets(self, request: pb.AddOffsetsRequest) -> pb.AddOffsetsResponse:
        partition = self._offsets_partition(request.group_id)
        add = AddPartitions(request.producer_id, request.producer_epoch, frozenset((partition,)))
        return pb.AddOffsetsResponse(error_code=await self._coordinator.add_partitions(request.transactional_id, add))

    async def end_transaction(self, request: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
        end = EndTransaction(request.producer_id, request.producer_epoch, request.commit, request.client_version)
        answer = await self._coordinator.end(request.transactional_id, end)
        return pb.EndTransactionResponse(
            error_code=answer.error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
        )

    async def write_markers(self, request: pb.WriteMarkersRequest) -> pb.WriteMarkersResponse:
        loop = asyncio.get_running_loop()
        written: list[asyncio.Future[ErrorCode]] = []
        for each in request.markers:
            future: asyncio.Future[ErrorCode] = loop.create_future()
            written.append(future)
            if min(each.producer_id, each.producer_epoch) < 0:  # no batch is in a transaction of such a producer
                future.set_result(ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            marker = Marker(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                commit=each.commit,
                coordinator_epoch=each.coordinator_epoch,
                transaction_version=each.transaction_version,
            )
            self._markers.write((each.topic, each.partition), marker, _setting(future))
        return pb.WriteMarkersResponse(error_codes=await asyncio.gather(*written))

    # --- descriptions ---------------------------------------------------------------------------------------------

    async def describe_transactions(self, request: pb.DescribeTransactionsRequest) -> pb.DescribeTransactionsResponse:
        return pb.DescribeTransactionsResponse(transactions=map(self._described, request.transactional_ids))

    def _described(self, transactional_id: str) -> pb.DescribeTransactionsResponse.Description:
        error, found = self._coordinator.find(transactional_id)
        if error or found is None:
            return pb.DescribeTransactionsResponse.Description(error_code=error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return pb.DescribeTransactionsResponse.Description(
            state=STATE_NAMES[found.state],
            timeout_ms=found.timeout_ms,
            start_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                pb.TransactionTopic(name=name, partitions=partitions)
                for name, partitions in by_topic(found.partitions).items()
            ],
        )

    async def list_transactions(self, request: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse:
        """List the transactional ids that pass all filters, some in a turn."""
        response = pb.ListTransactionsResponse(error_code=self._coordinator.listing_fault())
        if response.error_code:
            return response
        response.unknown_states.extend(each for each in request.states if each not in STATE_NAMES.values())
        try:
            pattern = compile_pattern(request.pattern) if request.pattern else None
        except InvalidPatternError:
            return pb.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        states, producer_ids = frozenset(request.states), frozenset(request.producer_ids)
        # wall clock: the age of a transaction, whose begin is stored
        steps, now_ms, listed_bytes = TaskSteps(_PIECE), self._now_ms(), 0
        for transactional_id in list(self._coordinator.hosted):
            await steps.count(1 if pattern is None else len(transactional_id))
            found = self._coordinator.find(transactional_id)[1]
            if (
                found is not None
                and (not states or STATE_NAMES[found.state] in states)
                and (not producer_ids or found.producer_id in producer_ids)
                and (request.duration_ms < 0 or now_ms - found.start_ms > request.duration_ms)
                and _matches(pattern, found)
            ):
                response.transactions.add(
                    transactional_id=transactional_id,
                    producer_id=found.producer_id,
                    state=STATE_NAMES[found.state],
                )
                listed_bytes += len(transactional_id)
                if listed_bytes > _LISTED_BYTES_MAX:  # the gateway refuses it
                    break
        return response


def _matches(pattern: TopicPattern | None, found: Transaction) -> bool:
    return pattern is None or pattern.matches(found.transactional_id)


def _setting(future: asyncio.Future[ErrorCode]) -> Callable[[ErrorCode], None]:
    def done(code: ErrorCode) -> None:
        if not future.done():  # or its client has left
            future.set_result(code)

    return done
