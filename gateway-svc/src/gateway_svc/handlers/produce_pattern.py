"""Produce requests that follow each other and differ only in correlation id, partition and records, served as one run.

A producer's requests begin with the same bytes, their head. In a run only lengths and partitions are read, and the
record batches are cut out. The run has one position in its connection's order of answers, one append and one write of
answers. A request is recognised by its head:

    api key i16, version i16 │ correlation id i32 │ client id … acks, timeout, topic │ partition │ records
                                                  └───────────── head ──────────────┘

(`RecordsRequestTemplate`). A run may have heads of several topics, with the same client id, acks and timeout. A request
with several partitions, no records, transactions, formats before v2 or tagged fields ends the run and is decoded.
Storage checks the batches, as it does for decoded requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final

from broker_contract.data import Append, AppendedPartition, AppendOutcome, AppendResponse, TopicIdPartition
from protocol_lib.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol_lib.records.header import ATTRIBUTES_AT, MAGIC, MAGIC_AT, TRANSACTIONAL
from protocol_lib.template import HEAD_AT, AnswerTemplate, RecordsRequestTemplate
from protocol_lib.varint import write_unsigned

from gateway_svc.clients.pipeline import IN_FLIGHT_MAX, Pipeline
from gateway_svc.clients.slices import Part
from gateway_svc.handlers.produce_answer import conclude, count_appended, response_of
from gateway_svc.requests.call import Call, Client, Ring
from gateway_svc.requests.contexts import ProduceContext
from gateway_svc.requests.patterns import Store
from gateway_svc.requests.rights import OUTDATED

#: Heads remembered for one connection. Producers to more topics name several in one request.
TEMPLATES_MAX: Final = 64
#: Longer heads (names may be long) are not worth remembering.
TEMPLATE_BYTES_MAX: Final = 512
#: Memory of one head, about.
TEMPLATE_MEMORY: Final = 2304
#: The first version whose answers hold a log start offset.
_VERSION_MIN: Final = 5
#: The first flexible version, and the bytes that follow the records in it.
_FLEXIBLE: Final = 9
_NO_TAGS: Final = bytes(3)

_PARTITION: Final = "topic_data.partition_data.index"
_ANSWER: Final = "responses.partition_responses."
#: The fields of an answer that differ, in the order of `fill`'s values.
_ANSWERED: Final = (
    f"{_ANSWER}index",
    f"{_ANSWER}base_offset",
    f"{_ANSWER}log_append_time_ms",
    f"{_ANSWER}log_start_offset",
    "throttle_time_ms",
)

_length: Final = Struct(">i").unpack_from


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


class TopicTemplate:
    """The common part of all requests to one topic."""

    __slots__ = (
        "_is_flexible",
        "_overhead",
        "acks",
        "bytes",
        "fill",
        "find_records",
        "read",
        "records_at",
        "start",
        "subject",
        "timeout_ms",
        "topic",
        "topic_id",
    )

    def __init__(self, call: Call, request: ProduceRequest, template: RecordsRequestTemplate) -> None:
        (topic,) = request.topic_data
        self._is_flexible = call.version >= _FLEXIBLE
        #: Bytes of a request without its records and their length.
        self._overhead = template.records_at + (len(_NO_TAGS) if self._is_flexible else 0)
        self.bytes = template.head
        self.records_at = template.records_at
        self.start = template.start
        #: A function that returns API key and version, correlation id and partition of the request at a position.
        self.read = Struct(f">ii{template.records_at - 12}xi").unpack_from
        self.find_records = template.find_records
        self.subject = call.subject
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.topic = topic.name
        self.topic_id = bytes(topic.topic_id)
        partition = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=(partition,))
        #: A function that returns an answer without errors.
        self.fill = AnswerTemplate(ProduceResponse(responses=(answer,)), call.version, _ANSWERED).fill

    def request_size(self, batch: int) -> int:
        """Return the bytes of a request, without its length, with a record batch of this number of bytes."""
        length = len(write_unsigned(batch + 1)) if self._is_flexible else 4
        return self._overhead + length + batch

    def goes_with(self, other: TopicTemplate) -> bool:
        """Return whether requests with either head may be one run."""
        return (
            self.acks == other.acks
            and self.timeout_ms == other.timeout_ms
            and self.subject.client_id == other.subject.client_id
        )


class CallRun(Call):
    """Requests whose heads go together, in the order of their arrival, and their batches.

    `ProducePattern.open` sets the attributes below.
    """

    __slots__ = ("batches", "context", "correlation_ids", "partitions", "template", "templates")

    context: ProduceContext
    #: The template of the first request.
    template: TopicTemplate
    #: The template of each request; None if all of them have the first one's.
    templates: Sequence[TopicTemplate] | None
    #: The partition of each request.
    partitions: Sequence[int]
    correlation_ids: Sequence[int]
    batches: Sequence[memoryview]

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
        self.context.records.append(append, self._done)

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
            count_appended(self.context, head.topic, head.topic_id, self.batches)
            self.finish(0, size)
            return
        self.finished = True
        for number, (head, call) in enumerate(zip(self.templates, self._calls(), strict=True)):
            count_appended(self.context, head.topic, head.topic_id, (self.batches[number],))
            call.finish(0, len(answers[number]) - 4 if answers else 0)

    def _answer_one_by_one(self, outcomes: Sequence[AppendOutcome]) -> None:
        """Answer, count and log each request by itself."""
        errors = [
            conclude(call, self.context, [target], [batch], [outcome])
            for call, target, batch, outcome in zip(self._calls(), self._targets(), self.batches, outcomes, strict=True)
        ]
        self._answer_errors(outcomes, errors)

    def refuse_all(self, error: int) -> None:
        """Answer each request with the error; with acks=0 close the connection."""
        self._answer_errors([AppendedPartition(error)] * self.count, [error] * self.count)

    def _answer_errors(self, outcomes: Sequence[AppendOutcome], errors: Sequence[int]) -> None:
        self.finished = True
        parts = list[Part]()
        for call, target, outcome, error in zip(self._calls(), self._targets(), outcomes, errors, strict=True):
            if self.template.acks:
                data = PartitionProduceData(index=target.partition, records=None)
                topic = TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=(data,))
                parts += call.encoded(response_of((topic,), (outcome,), call.version), error)
            else:
                call.finish(error, 0)
        if self.template.acks:
            self.client.answered(self, parts)
        else:
            self.client.abort()

    def _each_template(self) -> Sequence[TopicTemplate]:
        return self.templates or [self.template] * self.count

    def _targets(self) -> list[TopicIdPartition]:
        """Return the partition that each batch goes to."""
        return [
            TopicIdPartition(head.topic, index, head.topic_id)
            for head, index in zip(self._each_template(), self.partitions, strict=True)
        ]

    def _calls(self) -> Iterator[Call]:
        """Return a call for each of the requests by itself."""
        for head, correlation_id, batch in zip(self._each_template(), self.correlation_ids, self.batches, strict=True):
            call = Call(self.client, self.ring, head.subject, correlation_id, head.request_size(len(batch)))
            call.started_at = self.started_at
            call.recognised = True
            yield call


class ProducePattern:
    """A `patterns.Pattern`: the heads of one connection's requests."""

    __slots__ = ("_by_head", "_client", "_context", "_latest", "_pipeline", "_ring", "_shared", "_sizes", "rights")

    def __init__(
        self, client: Client, ring: Ring, context: ProduceContext, pipeline: Pipeline, shared: bytearray
    ) -> None:
        self._client = client
        self._ring = ring
        self._context = context
        self._pipeline = pipeline
        self._shared = shared
        self.rights = OUTDATED
        self._by_head: dict[bytes, TopicTemplate] = {}
        #: The different lengths of the heads: few, mostly one.
        self._sizes: tuple[int, ...] = ()
        self._latest: TopicTemplate | None = None

    def open(self, store: Store, begin: int, frame_end: int, end: int) -> CallRun | None:
        """Return the run that begins with the request at `begin`, of requests that have arrived whole."""
        first = self._latest
        if first is None or not store.startswith(first.bytes, begin + HEAD_AT):
            first = self._find(store, begin)
            if first is None:
                return None
        if frame_end - begin < first.records_at:
            return None
        most = IN_FLIGHT_MAX - self._pipeline.requests
        run_begin = run_end = begin
        head, head_bytes, records_at, read = first, first.bytes, first.records_at, first.read
        start, find_records = first.start, first.find_records
        heads: list[TopicTemplate] | None = None
        correlation_ids: list[int] = []
        partitions: list[int] = []
        spans: list[tuple[int, int]] = []
        while True:
            found_start, correlation_id, partition = read(store, begin)
            span = find_records(store, begin + records_at, frame_end)
            if span is None or found_start != start:
                break
            batch = span[0]
            # mutant: no-transaction-in-run
            if store[batch + MAGIC_AT] != MAGIC or store[batch + ATTRIBUTES_AT] & TRANSACTIONAL:
                break
            correlation_ids.append(correlation_id)
            partitions.append(partition)
            spans.append(span)
            if heads is not None:
                heads.append(head)
            run_end = frame_end
            begin = frame_end + 4
            if begin > end or len(spans) == most:
                break
            (size,) = _length(store, frame_end)
            frame_end = begin + size
            if size < records_at or frame_end > end or not store.startswith(head_bytes, begin + HEAD_AT):
                if size < HEAD_AT or frame_end > end:
                    break
                found = self._find(store, begin)
                if found is None or size < found.records_at or not found.goes_with(first):
                    break
                heads = [first] * len(spans) if heads is None else heads
                head, head_bytes, records_at, read = found, found.bytes, found.records_at, found.read
        if not spans:
            return None
        view, shift = memoryview(store), 0
        if store is self._shared:
            view, shift = memoryview(view[run_begin:run_end].tobytes()), run_begin
        run = CallRun(self._client, self._ring, first.subject, correlation_ids[0], run_end - run_begin, len(spans))
        run.context = self._context
        run.template = first
        run.templates = heads
        run.partitions = partitions
        run.correlation_ids = correlation_ids
        run.batches = [view[begin - shift : end - shift] for begin, end in spans]
        return run

    def serve(self, call: Call) -> None:
        assert isinstance(call, CallRun)
        call.append()

    def refuse(self, call: Call, error: int) -> None:
        assert isinstance(call, CallRun)
        call.refuse_all(error)

    def learn(self, call: Call, request: Any, frame: bytes | memoryview, kept: object) -> None:
        """Remember the head of a decoded request once its records are accepted.

        Only a request in the encoding that most clients use has a head.
        """
        if call.subject.rights is not self.rights:
            self.forget()
            self.rights = call.subject.rights
        if call.version < _VERSION_MIN or request.transactional_id is not None or len(self._by_head) >= TEMPLATES_MAX:
            return
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        if not request.topic_data[0].partition_data[0].records:
            return
        template = RecordsRequestTemplate.learn(request, call.version, frame, (_PARTITION,))
        if template is None or len(template.head) > TEMPLATE_BYTES_MAX or template.head in self._by_head:
            return
        if isinstance(kept, AcceptedRecords):
            kept.when_accepted(partial(self._remember, call, request, template))

    def _remember(self, call: Call, request: ProduceRequest, template: RecordsRequestTemplate) -> None:
        heads = self._by_head
        if self._pipeline.closed or call.subject.rights is not self.rights or template.head in heads:
            return
        if len(heads) < TEMPLATES_MAX and not self._context.templates.full:
            self._context.templates.take(TEMPLATE_MEMORY)
            heads[template.head] = TopicTemplate(call, request, template)
            self._sizes = tuple({len(each) for each in heads})

    def forget(self) -> None:
        self._context.templates.give(TEMPLATE_MEMORY * len(self._by_head))
        self._by_head.clear()
        self.rights = OUTDATED  # no head is learned from records that are accepted later
        self._sizes = ()
        self._latest = None

    def _find(self, store: Store, begin: int) -> TopicTemplate | None:
        """Return the head that the request begins with; it is the latest from now on."""
        at = begin + HEAD_AT
        for size in self._sizes:
            found = self._by_head.get(bytes(store[at : at + size]))
            if found is not None:
                self._latest = found
                return found
        return None
