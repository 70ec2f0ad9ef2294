"""The append of one Produce request, from its batches to its answer.

A request of hundreds of partitions is appended a piece at a time, with turns for other clients between. Storage
receives the pieces in the order of the request. No later request of the connection starts before all of them are on
their way, so that the batches of one partition keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from broker_contract.data import Append, AppendedPartition, AppendOutcome, AppendResponse, Buffer, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.produce import ProduceRequest
from service_chassis.steps import Steps

from gateway_svc.handlers.produce_answer import Conclusion
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ProduceContext
from gateway_svc.requests.turns import PIECE

_NO_RECORDS: Final = ErrorCode.INVALID_RECORD


class AcceptedRecords:
    """The news for a pattern that storage has accepted a decoded request, so that it can learn it.

    So a client cannot fill memory with the heads of topics that do not exist.
    """

    __slots__ = ("is_accepted", "learn")

    def __init__(self) -> None:
        self.is_accepted = False
        self.learn: Callable[[], None] | None = None

    def accept(self) -> None:
        self.is_accepted = True
        if self.learn is not None:
            self.learn()

    def when_accepted(self, learn: Callable[[], None]) -> None:
        """Call `learn` once the records are accepted, maybe at once."""
        self.learn = learn
        if self.is_accepted:  # mutant: learn-accepted-only
            learn()


class RequestAppend:
    """One request. It is answered when storage has answered for every piece."""

    __slots__ = (
        "_accepted_records",
        "_batches",
        "_call",
        "_conclusion",
        "_context",
        "_known",
        "_missing",
        "_partitions",
        "_request",
    )

    def __init__(
        self,
        call: Call,
        request: ProduceRequest,
        context: ProduceContext,
        partitions: Sequence[TopicIdPartition],
        batches: Sequence[Buffer],
        known: dict[int, AppendedPartition],
        accepted_records: AcceptedRecords,
    ) -> None:
        """Prepare the pieces of a request with a batch for each partition.

        Args:
            known: outcomes of partitions without records to append, by index. Storage's come first.
            accepted_records: accepted if there is no error.
        """
        self._call = call
        self._request = request
        self._context = context
        self._partitions = partitions
        self._batches = batches
        self._known = known
        self._accepted_records = accepted_records
        self._conclusion = Conclusion(call, context)
        #: The number of outcomes that are missing.
        self._missing = len(partitions)

    def start(self) -> None:
        """Append everything now or, if it is long, in later turns."""
        if len(self._partitions) <= PIECE:
            self._append(0)
            return
        self._call.client.block_later_requests()  # mutant: long-append-keeps-order
        Steps(self._context.loop, self._append_in_steps(), self._call.failed)

    def _append_in_steps(self) -> Iterator[None]:
        for begin in range(0, len(self._partitions), PIECE):
            if begin:
                yield
            self._append(begin)
        self._call.client.unblock_later_requests()

    def _append(self, begin: int) -> None:
        call, request, end = self._call, self._request, begin + PIECE
        append = Append(
            call.correlation_id,
            call.client_id,
            call.version,
            request.acks,
            request.timeout_ms,
            self._partitions[begin:end],
            self._batches[begin:end],
            request.transactional_id,
        )
        self._context.records.append(append, partial(self._appended, begin))

    def _appended(self, begin: int, response: AppendResponse) -> None:
        try:
            appended = list(response.outcomes)
            for index, outcome in self._known.items():
                # INVALID_RECORD is storage's answer to no records at all.
                if 0 <= index - begin < len(appended) and appended[index - begin].error_code == _NO_RECORDS:
                    appended[index - begin] = outcome
            self._conclude(begin, appended)
            if self._missing:
                return
            if len(self._partitions) <= PIECE:
                self._answer()
            else:
                Steps.of_one(self._context.loop, self._answer, self._call.failed)
        except Exception as error:
            self._call.failed(error)

    def refuse(self, outcome: AppendedPartition) -> None:
        """Answer with this outcome for every partition, and append nothing."""
        self._conclude(0, [outcome] * len(self._partitions))
        self._answer()

    def _conclude(self, begin: int, appended: Sequence[AppendOutcome]) -> None:
        """Conclude a piece."""
        end = begin + len(appended)
        self._conclusion.add(begin, self._partitions[begin:end], self._batches[begin:end], appended)
        self._missing -= len(appended)

    def _answer(self) -> None:
        self._call.send(self._conclusion.parts(self._request))
        if not self._conclusion.error:
            self._accepted_records.accept()
