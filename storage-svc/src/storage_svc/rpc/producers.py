"""The Producers service: producer ids for producers without a transactional id."""

from __future__ import annotations

from broker_contract import producers_pb2 as pb
from protocol_lib.errors import ErrorCode

from storage_svc.topics.producer_ids import ProducerIds


class ProducersService:
    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def init_producer_id(self, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse:
        """Return a new id, also to a caller that names the one it has: KIP-360 raises epochs of transactional ids only.

        As in Kafka: a caller may name any id, also another producer's.
        """
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return _refused(ErrorCode.INVALID_REQUEST)
        producer_id = await self._producer_ids.next()
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return pb.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> pb.InitProducerIdResponse:
    return pb.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
