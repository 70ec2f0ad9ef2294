"""AddOffsetsToTxn: a transaction is about to commit offsets of a group. Clients of transaction.version 2 need it not.

The partition of `__consumer_offsets` that holds the group is added to the transaction, and so gets its marker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_contract import transactions_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

from gateway_svc.handlers.transaction_errors import for_old_client
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TransactionContext
from gateway_svc.requests.handler import Handler, with_error
from gateway_svc.requests.resources import Operation, Resource, group, transactional_id

_FENCED_VERSION: Final = 2


async def handle(
    call: Call, request: AddOffsetsToTxnRequest, context: TransactionContext
) -> tuple[AddOffsetsToTxnResponse, int]:
    answer = await context.transactions.add_offsets(
        transactions_pb2.AddOffsetsRequest(
            correlation_id=call.correlation_id,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            group_id=request.group_id,
        )
    )
    error = for_old_client(answer.error_code, knows=call.version >= _FENCED_VERSION)
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error), error


def resources(_call: Call, request: AddOffsetsToTxnRequest, _context: object) -> Iterable[Resource]:
    return (transactional_id(Operation.WRITE, request.transactional_id), group(Operation.READ, request.group_id))


HANDLER = Handler(
    ApiKey.ADD_OFFSETS_TO_TXN,
    0,
    4,
    handle,
    context=TransactionContext,
    resources=resources,
    refuse=with_error(AddOffsetsToTxnResponse, throttle_time_ms=0),
)
