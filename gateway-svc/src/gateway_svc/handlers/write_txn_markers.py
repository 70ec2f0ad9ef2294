"""WriteTxnMarkers: end transactions in partitions, without their coordinator. Administrators abort hanging ones by it.

Every partition named gets its marker and its code; a marker that is named twice is written twice, which changes
nothing. Version 2 names the transaction.version of the producer (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from broker_contract import transactions_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TransactionContext
from gateway_svc.requests.error_codes import first_code
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, cluster
from gateway_svc.requests.turns import in_turns


async def handle(
    call: Call, request: WriteTxnMarkersRequest, context: TransactionContext
) -> tuple[WriteTxnMarkersResponse, int]:
    named = [
        (marker, topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    codes: list[int] = []
    async for piece in in_turns(named):
        answer = await context.transactions.write_markers(
            transactions_pb2.WriteMarkersRequest(
                correlation_id=call.correlation_id, markers=[_marker(*each) for each in piece]
            )
        )
        codes += answer.error_codes
    return _response(request, codes), first_code(codes)


def _marker(marker: WritableTxnMarker, topic: str, partition: int) -> transactions_pb2.WriteMarkersRequest.Marker:
    return transactions_pb2.WriteMarkersRequest.Marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        topic=topic,
        partition=partition,
    )


def _response(request: WriteTxnMarkersRequest, codes: Iterable[int]) -> WriteTxnMarkersResponse:
    left = iter(codes)
    return WriteTxnMarkersResponse(markers=tuple(_result(each, left) for each in request.markers))


def _result(marker: WritableTxnMarker, codes: Iterator[int]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index, code in zip(
                        topic.partition_indexes, islice(codes, len(topic.partition_indexes)), strict=True
                    )
                ),
            )
            for topic in marker.topics
        ),
    )


def resources(_call: Call, _request: WriteTxnMarkersRequest, _context: object) -> Iterable[Resource]:
    return (cluster(Operation.ALTER, alternative=cluster(Operation.CLUSTER_ACTION)),)


def refuse(_call: Call, request: WriteTxnMarkersRequest, error: int, _context: object) -> WriteTxnMarkersResponse:
    codes = [error for marker in request.markers for topic in marker.topics for _ in topic.partition_indexes]
    return _response(request, codes)


HANDLER = Handler(
    ApiKey.WRITE_TXN_MARKERS,
    1,
    2,
    handle,
    context=TransactionContext,
    resources=resources,
    refuse=refuse,
    elements_max=STEP_ELEMENTS_MAX,
)
