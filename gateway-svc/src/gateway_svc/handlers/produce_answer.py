"""The answer to a Produce request, from the outcomes that storage returned.

A request whose records were not all accepted is logged and counted as refused, with its first error as the reason.
Before version 4 clients do not know KAFKA_STORAGE_ERROR and receive NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from broker_contract.data import AppendedPartition, AppendOutcome, Buffer, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol_lib.records.header import HEADER_SIZE, RECORDS_COUNT_AT

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ProduceContext
from gateway_svc.requests.error_codes import error_name, first_error
from gateway_svc.requests.topic_counts import topic_counts

#: Errors of storage, not of the producer: counted with the answer, not logged as refusals.
_NOT_REFUSALS = frozenset(
    {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT}
)
_STORAGE_ERROR_VERSION = 4

_record_count = Struct(">i").unpack_from


def conclude(
    call: Call,
    context: ProduceContext,
    partitions: Sequence[TopicIdPartition],
    batches: Sequence[Buffer],
    appended: Sequence[AppendOutcome],
) -> int:
    """Count the batches that were appended, log a refusal, and return the first error code or 0."""
    metrics = context.metrics
    for partition, batch, outcome in zip(partitions, batches, appended, strict=True):
        if not outcome.error_code:
            count_appended(context, partition.topic, partition.topic_id, (batch,))
        elif partition.topic in metrics.topics:
            metrics.topics[partition.topic].failed_produces += 1
    error = first_error(appended)
    if error and error not in _NOT_REFUSALS:
        _log_refusal(call, context, partitions, appended)
    return error


def count_appended(context: ProduceContext, topic: str, topic_id: bytes, batches: Sequence[Buffer]) -> None:
    """Count batches of one topic that were appended, each for a partition of a request."""
    counts = topic_counts(context.metrics, context.names, topic, topic_id)
    counts.produces += len(batches)
    counts.bytes_in += sum(map(len, batches))
    counts.records_in += sum([_record_count(each, RECORDS_COUNT_AT)[0] for each in batches if len(each) >= HEADER_SIZE])


def response_of(
    topic_data: Sequence[TopicProduceData], appended: Iterable[AppendOutcome], version: int
) -> ProduceResponse:
    """Return the answer with these outcomes, in the order of the request's partitions."""
    outcomes = iter(appended)
    return ProduceResponse(responses=tuple([_topic(topic, outcomes, version) for topic in topic_data]))


def refuse(call: Call, request: ProduceRequest, error: int, _context: object) -> ProduceResponse | None:
    """Return every partition with the error; with acks=0 close the connection."""
    if not request.acks:
        call.close(error)
        return None
    refused = itertools.repeat(AppendedPartition(error))
    return response_of(request.topic_data, refused, call.version)


def row_of(index: int, outcome: AppendOutcome, version: int) -> PartitionProduceResponse:
    """Return the row of one partition."""
    response = PartitionProduceResponse(
        index=index,
        error_code=outcome.error_code,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
    )
    if outcome.error_code:
        response.error_message = outcome.error_message
        response.record_errors = tuple(
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in outcome.record_errors
        )
        if response.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_VERSION:
            response.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return response


def _topic(topic: TopicProduceData, outcomes: Iterator[AppendOutcome], version: int) -> TopicProduceResponse:
    responses = [row_of(data.index, next(outcomes), version) for data in topic.partition_data]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=tuple(responses))


def _log_refusal(
    call: Call, context: ProduceContext, partitions: Sequence[TopicIdPartition], appended: Sequence[AppendOutcome]
) -> None:
    partition, outcome = next(pair for pair in zip(partitions, appended, strict=True) if pair[1].error_code)
    context.refusals.request(
        error_name(outcome.error_code),
        peer=call.client.peer,
        client_id=call.client_id,
        api_key=call.route.api_key,
        version=call.version,
        correlation_id=call.correlation_id,
        topic=partition.topic or partition.topic_id.hex(),
        partition=partition.partition,
        detail=outcome.error_message or "",
    )
