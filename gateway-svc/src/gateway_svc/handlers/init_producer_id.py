"""InitProducerId: a producer id and epoch for an idempotent producer; from version 3 on a raised epoch for one it has.

With a transactional id the transaction coordinator answers, and fences all producers before this one. If one of them
has left a transaction open, it is aborted; the client is answered CONCURRENT_TRANSACTIONS, and asks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_contract import producers_pb2, transactions_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from gateway_svc.handlers.transaction_errors import for_old_client
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TransactionContext
from gateway_svc.requests.handler import Handler, with_error
from gateway_svc.requests.resources import Operation, Resource, ResourceType, cluster, transactional_id

_FENCED_VERSION: Final = 4


async def handle(
    call: Call, request: InitProducerIdRequest, context: TransactionContext
) -> tuple[InitProducerIdResponse, int]:
    answer = await _ask(call, request, context)
    error = for_old_client(answer.error_code, knows=call.version >= _FENCED_VERSION)
    response = InitProducerIdResponse(
        error_code=error,
        producer_id=-1 if error else answer.producer_id,
        producer_epoch=-1 if error else answer.producer_epoch,
    )
    return response, error


async def _ask(
    call: Call, request: InitProducerIdRequest, context: TransactionContext
) -> producers_pb2.InitProducerIdResponse | transactions_pb2.InitProducerResponse:
    if request.transactional_id is None:
        return await context.producers.init_producer_id(
            producers_pb2.InitProducerIdRequest(
                correlation_id=call.correlation_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
            )
        )
    return await context.transactions.init_producer(
        transactions_pb2.InitProducerRequest(
            correlation_id=call.correlation_id,
            transactional_id=request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
    )


#: The right of an idempotent producer: either of the two.
_IDEMPOTENT_WRITE = cluster(
    Operation.IDEMPOTENT_WRITE, alternative=Resource(ResourceType.TOPIC, "", Operation.WRITE, is_any=True)
)


def resources(_call: Call, request: InitProducerIdRequest, _context: object) -> Iterable[Resource]:
    if request.transactional_id is None:
        return (_IDEMPOTENT_WRITE,)
    return (transactional_id(Operation.WRITE, request.transactional_id),)


HANDLER = Handler(
    ApiKey.INIT_PRODUCER_ID,
    0,
    5,
    handle,
    context=TransactionContext,
    resources=resources,
    refuse=with_error(InitProducerIdResponse, producer_epoch=-1),
)
