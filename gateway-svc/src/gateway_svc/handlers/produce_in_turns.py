"""A Produce request of hundreds of partitions, appended a piece at a time with turns for other clients between.

Storage receives the pieces in the order of the request. No later request of the connection starts before all of them
are on their way, so that the batches of one partition keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

from broker_contract.data import Append, AppendedPartition, AppendOutcome, AppendResponse, Buffer, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

from gateway_svc.handlers.produce_answer import conclude, row_of
from gateway_svc.requests.call import Call
from gateway_svc.requests.services import Services
from gateway_svc.requests.turns import PIECE, next_turn


class LongAppend:
    """One request. It answers when storage has answered for every piece."""

    def __init__(
        self,
        call: Call,
        request: ProduceRequest,
        services: Services,
        partitions: Sequence[TopicIdPartition],
        batches: Sequence[Buffer],
        known: dict[int, AppendedPartition],
    ) -> None:
        """Prepare the pieces; the arguments are those of `produce._append`."""
        self._call = call
        self._request = request
        self._services = services
        self._partitions = partitions
        self._batches = batches
        self._known = known
        #: The rows of each piece, by the index of its first partition.
        self._rows: dict[int, list[PartitionProduceResponse]] = {}
        self._error = 0

    def start(self) -> None:
        """Append all pieces in later turns."""
        self._call.client.block_later_requests()  # mutant: long-append-keeps-order
        next_turn(self._call, self._services.loop, partial(self._append, 0))

    def _append(self, begin: int) -> None:
        call, request = self._call, self._request
        end = begin + PIECE
        append = Append(
            call.correlation_id,
            call.client_id,
            call.version,
            request.acks,
            request.timeout_ms,
            list(self._partitions[begin:end]),
            list(self._batches[begin:end]),
            request.transactional_id,
        )
        self._services.storage.records.append(append, partial(self._appended, begin))
        if end < len(self._partitions):
            next_turn(call, self._services.loop, partial(self._append, end))
        else:
            call.client.unblock_later_requests()

    def _appended(self, begin: int, response: AppendResponse) -> None:
        try:
            self._conclude(begin, list(response.outcomes))
            if sum(map(len, self._rows.values())) == len(self._partitions):
                next_turn(self._call, self._services.loop, self._answer)
        except Exception as error:
            self._call.failed(error)

    def _conclude(self, begin: int, appended: list[AppendOutcome]) -> None:
        for index in range(len(appended)):
            known = self._known.get(begin + index)
            if known is not None and appended[index].error_code == ErrorCode.INVALID_RECORD:
                appended[index] = known  # storage's answer to no records at all
        end = begin + len(appended)
        partitions, batches = self._partitions[begin:end], self._batches[begin:end]
        self._error = conclude(self._call, self._services, partitions, batches, appended) or self._error
        version = self._call.version
        self._rows[begin] = [
            row_of(partition.partition, outcome, version)
            for partition, outcome in zip(partitions, appended, strict=True)
        ]

    def _answer(self) -> None:
        if not self._request.acks:
            if self._error:
                self._call.close(self._error)
            else:
                self._call.answer_nothing()
            return
        rows = iter([row for begin in sorted(self._rows) for row in self._rows[begin]])
        responses = tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(islice(rows, len(topic.partition_data))),
            )
            for topic in self._request.topic_data
        )
        self._call.answer(ProduceResponse(responses=responses), self._error)
