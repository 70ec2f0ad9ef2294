"""The Producers service: producer ids from blocks of a thousand that the catalog allocates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_contract import producers_pb2 as pb
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.coordinator.transactions.coordinator import ProducerIdsUnavailableError
from storage_svc.topics.catalog_file import CatalogError, CatalogFile

log = service_logs.get(__name__)

#: Number of ids in a block, as in Kafka. A restart skips the rest of the block.
BLOCK_SIZE: Final = 1000
#: The first id that no broker reaches. A client has made up such an id; it must not use up the others.
_FOREIGN: Final = 2**62


class ProducersService:
    def __init__(self, catalog: CatalogFile, in_use: Iterable[int] = ()) -> None:
        """Allocate no id of `in_use`, the ids that logs remember.

        The catalog does not know them if it was lost, or if the logs are Apache Kafka's. A new producer with one of
        them would look like the old one, and its records like repeated ones.
        """
        catalog.skip_producer_ids(1 + max((each for each in in_use if each < _FOREIGN), default=-1))
        self._catalog = catalog
        self._block = range(0)

    async def init_producer_id(self, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse:
        """Return a new id, also to a caller that names the one it has: KIP-360 raises epochs of transactional ids only.

        As in Kafka: a caller may name any id, also another producer's.
        """
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return _refused(ErrorCode.INVALID_REQUEST)
        try:
            return pb.InitProducerIdResponse(producer_id=self.next_id(), producer_epoch=0)
        except ProducerIdsUnavailableError:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def next_id(self) -> int:
        """Return an id that no producer has.

        Raises:
            ProducerIdsUnavailableError: the catalog cannot allocate a block of them.
        """
        if not self._block:
            try:
                self._block = self._catalog.allocate_producer_ids(BLOCK_SIZE)
            except CatalogError as error:
                log.error("cannot allocate a block of producer ids", reason=str(error))
                raise ProducerIdsUnavailableError from error
        first, self._block = self._block[0], self._block[1:]
        return first


def _refused(code: ErrorCode) -> pb.InitProducerIdResponse:
    return pb.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
