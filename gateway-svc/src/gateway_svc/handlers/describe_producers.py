"""DescribeProducers: the producers that each partition remembers, with their open transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from broker_contract import logs_pb2
from broker_contract.topic_names import name_fault
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import LogContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topic_of, topics_called
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.turns import AnswerMemory, in_turns

#: Bytes of memory that a producer takes: 67 in storage's answer, 205 in ours, 37 as it is sent.
_PRODUCER_BYTES: Final = 310


async def handle(
    call: Call, request: DescribeProducersRequest, context: LogContext
) -> tuple[DescribeProducersResponse, int]:
    rows: list[PartitionResponse] = []
    memory = AnswerMemory(call.size)
    async for piece in in_turns([(topic.name, index) for topic in request.topics for index in topic.partition_indexes]):
        answer = await context.logs.describe_producers(
            logs_pb2.DescribeProducersRequest(
                correlation_id=call.correlation_id,
                targets=[
                    logs_pb2.DescribeProducersRequest.Target(topic=topic, partition=index) for topic, index in piece
                ],
            )
        )
        for (topic, index), found in zip(piece, answer.partitions, strict=True):
            memory.take(len(found.producers) * _PRODUCER_BYTES)  # before `zip` misses logs that storage left out
            rows.append(await _partition(topic, index, found))
    partitions = iter(rows)
    topics = tuple(
        TopicResponse(name=topic.name, partitions=tuple(islice(partitions, len(topic.partition_indexes))))
        for topic in request.topics
    )
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics), first_error(rows)


def _unjudged(_asked: Sequence[TopicRequest]) -> Callable[[TopicRequest], bool]:
    """Return the test for names that no topic can have, which Kafka refuses before it asks for rights."""
    return lambda topic: name_fault(topic.name) is not None


async def _partition(topic: str, index: int, found: logs_pb2.DescribeProducersResponse.Partition) -> PartitionResponse:
    states: list[ProducerState] = []
    async for piece in in_turns(found.producers):
        states += _states(piece)
    error = found.error_code if name_fault(topic) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return PartitionResponse(partition_index=index, error_code=error, active_producers=tuple(states))


def _states(producers: Sequence[logs_pb2.DescribeProducersResponse.Producer]) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=each.id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.transaction_first_offset,
        )
        for each in producers
    ]


def resources(_call: Call, request: DescribeProducersRequest, _context: object) -> Iterable[Resource]:
    return topics_called(Operation.READ, (topic.name for topic in request.topics))


def refuse(_call: Call, request: DescribeProducersRequest, error: int, _context: object) -> DescribeProducersResponse:
    topics = tuple(
        TopicResponse(
            name=topic.name,
            partitions=tuple(
                PartitionResponse(partition_index=index, error_code=error, active_producers=())
                for index in topic.partition_indexes
            ),
        )
        for topic in request.topics
    )
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


HANDLER = Handler(
    ApiKey.DESCRIBE_PRODUCERS,
    0,
    0,
    handle,
    context=LogContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", topic_of(Operation.READ), unjudged=_unjudged),
    elements_max=STEP_ELEMENTS_MAX,
)
