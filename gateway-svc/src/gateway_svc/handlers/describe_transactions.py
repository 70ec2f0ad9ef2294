"""DescribeTransactions: the state of transactional ids, with the partitions that wait for a marker (KIP-664).

Each id is answered as often as it is named, up to a thousand names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_contract import transactions_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TransactionContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, transactional_id
from gateway_svc.requests.rights import Rights, Rows
from gateway_svc.requests.turns import AnswerMemory, in_turns, keep_duplicates

#: Transactions that storage describes at a time: each may have thousands of partitions.
_IDS_PIECE: Final = 20


async def handle(
    call: Call, request: DescribeTransactionsRequest, context: TransactionContext
) -> tuple[DescribeTransactionsResponse, int]:
    states: list[TransactionState] = []
    memory = AnswerMemory(call.size)
    async for piece in in_turns(keep_duplicates(request.transactional_ids), _IDS_PIECE):
        answer = await context.transactions.describe_transactions(
            transactions_pb2.DescribeTransactionsRequest(correlation_id=call.correlation_id, transactional_ids=piece)
        )
        memory.take(10 * answer.ByteSize())
        states += [_state(name, found, call.rights) for name, found in zip(piece, answer.transactions, strict=True)]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=tuple(states)), first_error(states)


def _state(
    name: str, found: transactions_pb2.DescribeTransactionsResponse.Description, rights: Rights
) -> TransactionState:
    """Return the row of a transaction; topics that the client may not describe are left out of it."""
    return TransactionState(
        error_code=found.error_code,
        transactional_id=name,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=tuple(
            TopicData(topic=each.name, partitions=tuple(each.partitions))
            for each in found.topics
            if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, each.name)
        ),
    )


def resources(_call: Call, request: DescribeTransactionsRequest, _context: object) -> Iterable[Resource]:
    return [transactional_id(Operation.DESCRIBE, each) for each in dict.fromkeys(request.transactional_ids)]


def refuse(
    call: Call, request: DescribeTransactionsRequest, error: int, _context: object
) -> DescribeTransactionsResponse:
    refused = transactions_pb2.DescribeTransactionsResponse.Description(error_code=error)
    states = tuple(_state(name, refused, call.rights) for name in keep_duplicates(request.transactional_ids))
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


HANDLER = Handler(
    ApiKey.DESCRIBE_TRANSACTIONS,
    0,
    0,
    handle,
    context=TransactionContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TRANSACTIONAL_ID}),
    rows=Rows("transactional_ids", "transaction_states", lambda entry, _: transactional_id(Operation.DESCRIBE, entry)),
)
