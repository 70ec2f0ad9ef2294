"""Produce: append record batches to partitions.

Decided here: the request version, and that transactional records name their transactional id (53 for the whole request
otherwise); everything else about the records is storage's. The answer leaves when storage has answered for all
partitions: after the sync with acks -1, after the write with acks 1. With acks 0 there is no answer; an error then
closes the connection, the only sign such a client can be given.

Versions 0-2 carry message sets of formats 0 and 1, which are converted here (message_sets.py); such requests are
worked on one at a time for each connection. Before version 4 clients do not know KAFKA_STORAGE_ERROR and are told
NOT_LEADER_OR_FOLLOWER. Version 13 names topics by id. Storage answers transactional records INVALID_TXN_STATE:
transactions are not served. `current_leader` and `node_endpoints` (KIP-951) are never sent: every gateway serves every
partition.

Records that are not taken are a refusal: one log line with the first error's name as its reason, and one count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker_contract.data import (
    Append,
    AppendedPartition,
    AppendOutcome,
    AppendResponse,
    Buffer,
    TopicIdPartition,
)
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol_lib.records.header import MAGIC, TRANSACTIONAL

from gateway_svc.clients.pipeline import Kind
from gateway_svc.fetching.message_sets import batches_of, is_quick
from gateway_svc.requests.call import Call, Services, error_name
from gateway_svc.requests.route import InlineHandler

_RECORD_BATCH_VERSION = 3
#: Errors that are storage's trouble, not the producer's fault: counted with the answer, not logged as refusals.
_NOT_REFUSALS = frozenset(
    {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT}
)
_STORAGE_ERROR_VERSION = 4
#: Positions in a record batch (format v2): the format, the low byte of the attributes, the record count, the records.
_MAGIC_AT, _ATTRIBUTES_AT, _RECORD_COUNT_AT, _BATCH_HEADER_BYTES = 16, 22, 57, 61


def serve(call: Call, request: ProduceRequest, services: Services) -> None:
    partitions, batches = [], []
    for topic in request.topic_data:
        for data in topic.partition_data:
            partitions.append(TopicIdPartition(topic.name, data.index, topic.topic_id))
            batches.append(data.records or b"")
    if call.version < _RECORD_BATCH_VERSION:
        _serve_message_sets(call, request, services, partitions, batches)
    elif request.transactional_id is None and _are_transactional(batches):
        refused = AppendedPartition(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error_message="transactional records without an id"
        )
        _finish(call, request, services, partitions, batches, [refused for _ in partitions])
    else:
        _append(call, request, services, partitions, batches, {})


def _serve_message_sets(
    call: Call,
    request: ProduceRequest,
    services: Services,
    partitions: list[TopicIdPartition],
    sets: list[bytes | memoryview],
) -> None:
    def converted(result: tuple[list[Buffer], dict[int, AppendedPartition]]) -> None:
        batches, outcomes = result
        _append(call, request, services, partitions, batches, outcomes)

    services.conversions.run(call, lambda: batches_of(sets), converted, inline=is_quick(sets))


def _append(
    call: Call,
    request: ProduceRequest,
    services: Services,
    partitions: list[TopicIdPartition],
    batches: list[Buffer],
    known: dict[int, AppendedPartition],
) -> None:
    """Appends and answers. What is `known` of partitions, by index, is told unless storage knows worse of them."""

    def done(response: AppendResponse) -> None:
        try:
            appended = list(response.outcomes)
            for index, outcome in known.items():
                if appended[index].error_code == ErrorCode.INVALID_RECORD:  # what it says of no records at all
                    appended[index] = outcome
            _finish(call, request, services, partitions, batches, appended)
        except Exception as error:
            call.failed(error)

    append = Append(
        call.correlation_id, call.client_id, call.version, request.acks, request.timeout_ms, partitions, batches
    )
    services.storage.records.append(append, done)


def _finish(
    call: Call,
    request: ProduceRequest,
    services: Services,
    partitions: list[TopicIdPartition],
    batches: list[Buffer],
    appended: Sequence[AppendOutcome],
) -> None:
    response, error = told(call, request.topic_data, services, partitions, batches, appended)
    if request.acks:
        call.answer(response, error)
    elif error:
        call.client.abort()
    else:
        call.answer_nothing()


def told(
    call: Call,
    topic_data: Sequence[TopicProduceData],
    services: Services,
    partitions: list[TopicIdPartition],
    batches: list[Buffer],
    appended: Sequence[AppendOutcome],
) -> tuple[ProduceResponse, int]:
    """What is answered, and its first error code; refusals are logged, and what was appended is counted."""
    error = 0
    metrics = services.metrics
    for partition, batch, result in zip(partitions, batches, appended, strict=True):
        if result.error_code:
            error = error or result.error_code
            if partition.topic in metrics.topics:
                metrics.topics[partition.topic].failed_produces += 1
            continue
        counts = metrics.topic_by(partition.topic, partition.topic_id)
        counts.produces += 1
        counts.bytes_in += len(batch)
        counts.records_in += _record_count(batch)
    if error and error not in _NOT_REFUSALS:
        _refused(call, services, partitions, appended)
    results = iter(appended)
    topics = tuple([_topic(topic, results, call.version) for topic in topic_data])
    return ProduceResponse(responses=topics), error


def _topic(topic: TopicProduceData, results: Iterator[AppendOutcome], version: int) -> TopicProduceResponse:
    responses = []
    for data in topic.partition_data:
        result = next(results)
        response = PartitionProduceResponse(
            index=data.index,
            error_code=result.error_code,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        if result.error_code:
            response.error_message = result.error_message
            response.record_errors = tuple(
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in result.record_errors
            )
            if response.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_VERSION:
                response.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        responses.append(response)
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=tuple(responses))


def _refused(
    call: Call, services: Services, partitions: list[TopicIdPartition], appended: Sequence[AppendOutcome]
) -> None:
    partition, result = next(pair for pair in zip(partitions, appended, strict=True) if pair[1].error_code)
    services.refusals.request(
        error_name(result.error_code),
        peer=call.client.peer,
        client_id=call.client_id,
        api_key=call.route.api_key,
        version=call.version,
        correlation_id=call.correlation_id,
        topic=partition.topic or partition.topic_id.hex(),
        partition=partition.partition,
        detail=result.error_message or "",
    )


def _are_transactional(batches: list[Buffer]) -> bool:
    for records in batches:
        if len(records) > _ATTRIBUTES_AT and records[_MAGIC_AT] == MAGIC and records[_ATTRIBUTES_AT] & TRANSACTIONAL:
            return True
    return False


def _record_count(records: bytes | memoryview) -> int:
    if len(records) < _BATCH_HEADER_BYTES:
        return 0
    return int.from_bytes(records[_RECORD_COUNT_AT:_BATCH_HEADER_BYTES], "big")


HANDLER = InlineHandler(ApiKey.PRODUCE, 0, 13, serve, Kind.APPEND, alone_below=_RECORD_BATCH_VERSION)
