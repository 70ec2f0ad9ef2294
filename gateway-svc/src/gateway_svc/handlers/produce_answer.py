"""The answer to a Produce request, from the outcomes that storage returned.

A request whose records were not all accepted is logged and counted as refused, with its first error as the reason.
Before version 4 clients do not know KAFKA_STORAGE_ERROR and receive NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from struct import Struct

from broker_contract.data import AppendedPartition, AppendOutcome, Buffer, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol_lib.records.header import HEADER_SIZE, RECORDS_COUNT_AT

from gateway_svc.clients.slices import Part
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


class Conclusion:
    """The outcomes of one request's batches, which it counts and logs, and the answer made of them."""

    __slots__ = ("_call", "_context", "_rows", "error")

    def __init__(self, call: Call, context: ProduceContext) -> None:
        self._call = call
        self._context = context
        #: The rows of each piece, by the index of its first partition.
        self._rows: dict[int, list[PartitionProduceResponse]] = {}
        #: An error code, or 0 if all batches were appended.
        self.error = 0

    def add(
        self,
        begin: int,
        partitions: Sequence[TopicIdPartition],
        batches: Sequence[Buffer],
        appended: Sequence[AppendOutcome],
    ) -> None:
        """Conclude a piece of the request, which begins with its partition number `begin`."""
        call, context, metrics = self._call, self._context, self._context.metrics
        for partition, batch, outcome in zip(partitions, batches, appended, strict=True):
            if not outcome.error_code:
                count_appended(context, partition.topic, partition.topic_id, (batch,))
            elif partition.topic in metrics.topics:
                metrics.topics[partition.topic].failed_produces += 1
        error = first_error(appended)
        if error and error not in _NOT_REFUSALS:
            _log_refusal(call, context, partitions, appended)
        self.error = error or self.error
        self._rows[begin] = [
            row_of(partition.partition, outcome, call.version)
            for partition, outcome in zip(partitions, appended, strict=True)
        ]

    def parts(self, request: ProduceRequest) -> Sequence[Part] | None:
        """Finish the request, of which all pieces were added; return its answer for `Call.send`."""
        if not request.acks:
            return self._call.unanswered(self.error)
        rows = iter([row for begin in sorted(self._rows) for row in self._rows[begin]])
        responses = tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(itertools.islice(rows, len(topic.partition_data))),
            )
            for topic in request.topic_data
        )
        return self._call.encoded(ProduceResponse(responses=responses), self.error)


def count_appended(context: ProduceContext, topic: str, topic_id: bytes, batches: Sequence[Buffer]) -> None:
    """Count batches of one topic that were appended, each for a partition of a request."""
    counts = topic_counts(context.metrics, context.names, topic, topic_id)
    counts.produces += len(batches)
    counts.bytes_in += sum(map(len, batches))
    counts.records_in += sum([_record_count(each, RECORDS_COUNT_AT)[0] for each in batches if len(each) >= HEADER_SIZE])


def refuse(call: Call, request: ProduceRequest, error: int, _context: object) -> ProduceResponse | None:
    """Return every partition with the error; with acks=0 close the connection."""
    if request.acks:
        return refused(call, request, error)
    call.send(call.unanswered(error))
    return None


def refused(call: Call, request: ProduceRequest, error: int) -> ProduceResponse:
    """Return the answer with the error for every partition."""
    outcome = AppendedPartition(error)
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple([row_of(data.index, outcome, call.version) for data in topic.partition_data]),
            )
            for topic in request.topic_data
        )
    )


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
