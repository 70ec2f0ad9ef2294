"""EndTxn: commit or abort a transaction. Version 5 raises the producer epoch and answers with the new one (KIP-890).

Without its client the request is not begun: the client may have ended this transaction through another gateway, and
begun the next one with the same epoch (before version 5).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_contract import transactions_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.end_txn import EndTxnRequest, EndTxnResponse

from gateway_svc.handlers.transaction_errors import for_old_client
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TransactionContext
from gateway_svc.requests.handler import Handler, with_error
from gateway_svc.requests.resources import Operation, Resource, transactional_id

_FENCED_VERSION: Final = 2
#: The version from which on the client has transaction.version 2.
_EPOCH_BUMP_VERSION: Final = 5


async def handle(call: Call, request: EndTxnRequest, context: TransactionContext) -> tuple[EndTxnResponse, int]:
    answer = await context.transactions.end_transaction(
        transactions_pb2.EndTransactionRequest(
            correlation_id=call.correlation_id,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            commit=request.committed,
            client_version=2 if call.version >= _EPOCH_BUMP_VERSION else 0,
        )
    )
    error = for_old_client(answer.error_code, knows=call.version >= _FENCED_VERSION)
    response = EndTxnResponse(
        throttle_time_ms=0,
        error_code=error,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
    return response, error


def resources(_call: Call, request: EndTxnRequest, _context: object) -> Iterable[Resource]:
    return (transactional_id(Operation.WRITE, request.transactional_id),)


HANDLER = Handler(
    ApiKey.END_TXN,
    0,
    5,
    handle,
    context=TransactionContext,
    resources=resources,
    refuse=with_error(EndTxnResponse, throttle_time_ms=0),
)
