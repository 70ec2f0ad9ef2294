"""InitProducerId: a producer id and epoch for an idempotent producer; from version 3 on a raised epoch for one it has.

Transactions are not served: a transactional id is answered UNSUPPORTED_VERSION, which Java and franz-go report at
once and librdkafka when init_transactions' timeout is over. (The errors it would report at once say that the producer
is not authorised or was fenced, which sends its user looking in the wrong place.)
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import producers_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.handler import Handler, with_error
from gateway_svc.requests.resources import ANY_NAME, Operation, Resource, ResourceType, cluster
from gateway_svc.requests.services import Services


async def handle(call: Call, request: InitProducerIdRequest, services: Services) -> tuple[InitProducerIdResponse, int]:
    if request.transactional_id is not None:
        refused = ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=refused, producer_epoch=-1), refused
    answer = await services.storage.producers.init_producer_id(
        producers_pb2.InitProducerIdRequest(
            correlation_id=call.correlation_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
    )
    response = InitProducerIdResponse(
        error_code=answer.error_code,
        producer_id=-1 if answer.error_code else answer.producer_id,
        producer_epoch=-1 if answer.error_code else answer.producer_epoch,
    )
    return response, answer.error_code


#: The right of an idempotent producer: either of the two.
_IDEMPOTENT_WRITE = cluster(
    Operation.IDEMPOTENT_WRITE, alternative=Resource(ResourceType.TOPIC, ANY_NAME, Operation.WRITE)
)


def resources(_call: Call, request: InitProducerIdRequest, _services: Services) -> Iterable[Resource]:
    if request.transactional_id is None:
        return (_IDEMPOTENT_WRITE,)
    return (Resource(ResourceType.TRANSACTIONAL_ID, request.transactional_id, Operation.WRITE),)


HANDLER = Handler(
    ApiKey.INIT_PRODUCER_ID,
    0,
    5,
    handle,
    resources=resources,
    refuse=with_error(InitProducerIdResponse, producer_epoch=-1),
)
