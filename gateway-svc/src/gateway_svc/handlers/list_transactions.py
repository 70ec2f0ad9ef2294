"""ListTransactions: every transactional id, since storage coordinates them all (KIP-664).

Filters are states and producer ids. From version 1 on one is how long a transaction runs (KIP-994), from version 2 on
a pattern in RE2's syntax that matches a whole transactional id (KIP-1152).
"""

from __future__ import annotations

from typing import Final

from broker_contract import transactions_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TransactionContext
from gateway_svc.requests.handler import NOTHING, Handler, with_error
from gateway_svc.requests.resources import Operation, ResourceType
from gateway_svc.requests.turns import AnswerMemory, in_turns

#: Bytes of memory that a transactional id takes in the answer, with a name of usual length.
_ROW_BYTES: Final = 300
_USUAL_LENGTH: Final = 100


async def handle(
    call: Call, request: ListTransactionsRequest, context: TransactionContext
) -> tuple[ListTransactionsResponse, int]:
    answer = await context.transactions.list_transactions(
        transactions_pb2.ListTransactionsRequest(
            correlation_id=call.correlation_id,
            states=request.state_filters,
            producer_ids=request.producer_id_filters,
            duration_ms=request.duration_filter,
            pattern=request.transactional_id_pattern or "",
        )
    )
    memory = AnswerMemory(call.size)
    rights = call.rights
    rows: list[TransactionState] = []
    async for piece in in_turns(answer.transactions):
        rows += [
            TransactionState(
                transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state
            )
            for each in piece
            if rights.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ]
        memory.take(sum(_ROW_BYTES + max(0, len(each.transactional_id) - _USUAL_LENGTH) for each in piece))
    response = ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=answer.error_code,
        unknown_state_filters=tuple(answer.unknown_states),
        transaction_states=tuple(rows),
    )
    return response, answer.error_code


#: Nothing is refused: ids that the client may not describe are left out of the answer.
HANDLER = Handler(
    ApiKey.LIST_TRANSACTIONS,
    0,
    2,
    handle,
    context=TransactionContext,
    resources=NOTHING,
    refuse=with_error(ListTransactionsResponse, throttle_time_ms=0, unknown_state_filters=(), transaction_states=()),
)
