"""Produce requests that a pattern has found one after the other: one append, one write of answers.

If all batches are appended, the answers are filled into templates. Otherwise each request is concluded by itself, as a
decoded one is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from broker_contract.data import Append, AppendOutcome, AppendResponse, TopicIdPartition
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from gateway_svc.clients.slices import Part
from gateway_svc.handlers.produce_answer import Conclusion, count_appended
from gateway_svc.handlers.produce_template import TopicTemplate
from gateway_svc.requests.call import Call, Client, Ring
from gateway_svc.requests.contexts import ProduceContext


@dataclass(slots=True)
class FoundRequests:
    """The requests of a run, in the order of their arrival."""

    #: The template of the first request.
    template: TopicTemplate
    #: The template of each request; None if all of them have the first one's.
    templates: Sequence[TopicTemplate] | None
    correlation_ids: Sequence[int]
    #: The partition of each request.
    partitions: Sequence[int]
    #: The begin and the end of each record batch.
    spans: Sequence[tuple[int, int]]
    #: The end of the last request.
    end: int


class CallRun(Call):
    """The call of all requests of a run."""

    __slots__ = ("_context", "batches", "correlation_ids", "partitions", "template", "templates")

    #: One for each request, in order.
    correlation_ids: Sequence[int]

    def __init__(
        self,
        client: Client,
        ring: Ring,
        context: ProduceContext,
        found: FoundRequests,
        batches: Sequence[memoryview],
        size: int,
    ) -> None:
        ids = found.correlation_ids
        super().__init__(client, ring, found.template.subject, ids[0], size, len(ids))
        self._context = context
        self.template = found.template
        self.templates = found.templates
        self.correlation_ids = ids
        self.partitions = found.partitions
        self.batches = batches

    def append(self) -> None:
        """Append the batches; the requests are answered when storage has answered."""
        head, partitions = self.template, self.partitions
        if self.templates is None and (self.count == 1 or partitions.count(partitions[0]) == self.count):
            targets = [TopicIdPartition(head.topic, partitions[0], head.topic_id)]
        else:
            targets = self._targets()
        append = Append(
            self.correlation_id,
            self.subject.client_id,
            self.route.version,
            head.acks,
            head.timeout_ms,
            targets,
            self.batches,
        )
        self._context.records.append(append, self._done)

    def _done(self, response: AppendResponse) -> None:
        try:
            offsets = response.offsets()
            if offsets is None:
                self._answer_one_by_one(response.outcomes)
                return
            answers = self._answers(offsets, 0) if self.template.acks else []
            size = sum(map(len, answers)) - 4 * len(answers)
            if self.ring.throttles and (throttle_ms := self.throttle(size)) and answers:
                answers = self._answers(response.offsets() or (), throttle_ms)  # mutant: throttle-of-produce
            self.client.answered(self, (b"".join(answers),) if len(answers) > 1 else answers)
        except Exception as error:
            self.failed(error)
        else:
            self._finish_all(answers, size)

    def _answers(self, offsets: Iterable[tuple[int, ...]], throttle_ms: int) -> list[bytes]:
        """Return an answer to each request, of its base offset, append time and log start offset."""
        if self.count == 1:
            ((base, time_ms, start),) = offsets
            return [self.template.fill(self.correlation_id, self.partitions[0], base, time_ms, start, throttle_ms)]
        columns = tuple(zip(*offsets, strict=True))
        if len(columns[0]) != self.count:
            raise ValueError(f"{len(columns[0])} outcomes of {self.count} batches")
        times_ms = itertools.repeat(throttle_ms)
        if self.templates is None:
            return [*map(self.template.fill, self.correlation_ids, self.partitions, *columns, times_ms)]
        fields = zip(self.correlation_ids, self.partitions, *columns, times_ms)  # noqa: B905 (which has no end)
        return [head.fill(*values) for head, values in zip(self.templates, fields, strict=True)]

    def _finish_all(self, answers: list[bytes], size: int) -> None:
        """Finish all requests without an error, after the answer of `size` bytes was sent."""
        head = self.template
        if self.templates is None:
            count_appended(self._context, head.topic, head.topic_id, self.batches)
            self.finish(0, size)
            return
        self.finished = True
        for number, (head, call) in enumerate(zip(self.templates, self._calls(), strict=True)):
            count_appended(self._context, head.topic, head.topic_id, (self.batches[number],))
            call.finish(0, len(answers[number]) - 4 if answers else 0)

    def _answer_one_by_one(self, outcomes: Sequence[AppendOutcome]) -> None:
        """Conclude each request by itself."""
        answers = list[Sequence[Part] | None]()
        concluded = zip(self._requests(), self._targets(), self.batches, outcomes, strict=True)
        for (call, request), target, batch, outcome in concluded:
            conclusion = Conclusion(call, self._context)
            conclusion.add(0, (target,), (batch,), (outcome,))
            answers.append(conclusion.parts(request))
        self._send_all(answers)

    def _send_all(self, answers: Sequence[Sequence[Part] | None]) -> None:
        """Send the answers of requests that are finished, or close the connection if one has None."""
        self.finished = True
        parts = list[Part]()
        for answer in answers:
            if answer is None:
                self.send(None)
                return
            parts += answer
        self.send(parts)

    def _each_template(self) -> Sequence[TopicTemplate]:
        return self.templates or [self.template] * self.count

    def _targets(self) -> list[TopicIdPartition]:
        """Return the partition that each batch goes to."""
        return [
            TopicIdPartition(head.topic, index, head.topic_id)
            for head, index in zip(self._each_template(), self.partitions, strict=True)
        ]

    def _requests(self) -> Iterator[tuple[Call, ProduceRequest]]:
        """Return each of the requests by itself, without records."""
        head = self.template
        for call, target in zip(self._calls(), self._targets(), strict=True):
            data = PartitionProduceData(index=target.partition, records=None)
            topic = TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=(data,))
            yield call, ProduceRequest(acks=head.acks, timeout_ms=head.timeout_ms, topic_data=(topic,))

    def _calls(self) -> Iterator[Call]:
        """Return a call for each of the requests."""
        for head, correlation_id, batch in zip(self._each_template(), self.correlation_ids, self.batches, strict=True):
            call = Call(self.client, self.ring, head.subject, correlation_id, head.request_size(len(batch)))
            call.started_at = self.started_at
            call.recognised = True
            yield call
