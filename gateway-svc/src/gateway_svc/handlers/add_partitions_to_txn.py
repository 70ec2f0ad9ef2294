"""AddPartitionsToTxn: partitions that a transaction is about to write to.

Clients send versions 0 to 3. Versions 4 and 5 are for brokers: many transactions in one request, to add partitions or
only to verify them (KIP-890). If one partition of a transaction does not exist, it is UNKNOWN_TOPIC_OR_PARTITION, the
others are OPERATION_NOT_ATTEMPTED, and none is added. The same holds for a partition of an internal topic in a client's
request, which is TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from broker_contract import transactions_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

from gateway_svc.handlers.partitions import partition_counts
from gateway_svc.handlers.transaction_errors import for_old_client
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TransactionContext
from gateway_svc.requests.error_codes import first_code
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, cluster, topics_called, transactional_id
from gateway_svc.requests.turns import in_turns

_FENCED_VERSION: Final = 2
#: The version from which on brokers send the request.
_BROKERS_VERSION: Final = 4
#: Transactions that storage works on at a time.
_TRANSACTIONS_PIECE: Final = 50
#: The transaction.version of the clients whose transactions a broker names.
_CLIENT_VERSION: Final = 2


async def handle(
    call: Call, request: AddPartitionsToTxnRequest, context: TransactionContext
) -> tuple[AddPartitionsToTxnResponse, int]:
    if call.version < _BROKERS_VERSION and (denied := await _denied(call, request, context)) is not None:
        return denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    results: list[AddPartitionsToTxnResult] = []
    codes: list[int] = []
    async for piece in in_turns(_transactions(call, request), _TRANSACTIONS_PIECE):
        answer = await context.transactions.add_partitions(
            transactions_pb2.AddPartitionsRequest(
                correlation_id=call.correlation_id,
                transactions=map(_asked, piece),
                client_version=_CLIENT_VERSION if call.version >= _BROKERS_VERSION else 0,
            )
        )
        for transaction, result in zip(piece, answer.results, strict=True):
            found = [for_old_client(each, knows=call.version >= _FENCED_VERSION) for each in result.error_codes]
            codes += found
            left, rows = iter(found), list[AddPartitionsToTxnTopicResult]()
            async for topics in in_turns(transaction.topics):
                rows += [_topic_result(topic, left) for topic in topics]
            results.append(
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=tuple(rows))
            )
    return _response(call, results), first_code(codes)


async def _denied(
    call: Call, request: AddPartitionsToTxnRequest, context: TransactionContext
) -> AddPartitionsToTxnResponse | None:
    """Return the answer to a request of which the client may not write every topic: no partition is added."""
    (transaction,) = _transactions(call, request)
    rights = call.rights
    allowed = {
        topic.name for topic in transaction.topics if rights.may(Operation.WRITE, ResourceType.TOPIC, topic.name)
    }
    if len(allowed) == len({topic.name for topic in transaction.topics}):
        return None
    counts = await partition_counts(call, context.topics, allowed)

    def code(name: str, partition: int) -> ErrorCode:
        if name not in allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        is_known = 0 <= partition < counts.get(name, 0)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    codes = [code(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    return _response(call, [_result(transaction, codes)])


def _transactions(call: Call, request: AddPartitionsToTxnRequest) -> Sequence[AddPartitionsToTxnTransaction]:
    if call.version >= _BROKERS_VERSION:
        return request.transactions
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return (only,)


def _asked(transaction: AddPartitionsToTxnTransaction) -> transactions_pb2.AddPartitionsRequest.Transaction:
    return transactions_pb2.AddPartitionsRequest.Transaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        verify_only=transaction.verify_only,
        topics=[
            transactions_pb2.TransactionTopic(name=topic.name, partitions=topic.partitions)
            for topic in transaction.topics
            if topic.partitions
        ],
    )


def _result(transaction: AddPartitionsToTxnTransaction, codes: Iterable[int]) -> AddPartitionsToTxnResult:
    left = iter(codes)
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=tuple(_topic_result(topic, left) for topic in transaction.topics),
    )


def _topic_result(topic: AddPartitionsToTxnTopic, codes: Iterable[int]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=tuple(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in zip(topic.partitions, islice(codes, len(topic.partitions)), strict=True)
        ),
    )


def _response(call: Call, results: Sequence[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    if call.version >= _BROKERS_VERSION:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=tuple(results))
    (only,) = results
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=only.topic_results)


def resources(call: Call, request: AddPartitionsToTxnRequest, _context: object) -> Iterable[Resource]:
    if call.version >= _BROKERS_VERSION:
        return (cluster(Operation.CLUSTER_ACTION),)
    return (
        transactional_id(Operation.WRITE, request.v3_and_below_transactional_id),
        *topics_called(Operation.WRITE, (topic.name for topic in request.v3_and_below_topics)),
    )


def refuse(call: Call, request: AddPartitionsToTxnRequest, error: int, _context: object) -> AddPartitionsToTxnResponse:
    if call.version >= _BROKERS_VERSION:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=error)
    results = [
        _result(each, [error for topic in each.topics for _ in topic.partitions])
        for each in _transactions(call, request)
    ]
    return _response(call, results)


HANDLER = Handler(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    0,
    5,
    handle,
    context=TransactionContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    elements_max=STEP_ELEMENTS_MAX,
)
