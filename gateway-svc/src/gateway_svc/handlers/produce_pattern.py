"""Produce requests that follow each other and differ only in correlation id, partition and records, served as one run.

A producer's requests begin with the same bytes, their head. Of a run only lengths and partitions are read, and record
batches cut out. The run takes one position in its connection's order of answers, is appended by one call and answered
by one write. A request is known by

    api key i16, version i16 │ correlation id i32 │ client id … acks, timeout, topic │ partition │ records
                                                  └───────────── head ──────────────┘

(`RecordsRequestTemplate`). Heads of several topics are one run where client id, acks and timeout are the same. Every
other request ends the run and is decoded: several partitions in a request, no records, transactions, formats before v2,
tagged fields. Storage checks the batches, as it does for decoded requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

from gateway_svc.clients.pipeline import IN_FLIGHT_MAX, Pipeline
from gateway_svc.clients.slices import Part
from gateway_svc.handlers.produce_answer import conclude, count_appended, response_of
from gateway_svc.requests.call import Call, Client
from gateway_svc.requests.patterns import Store
from gateway_svc.requests.services import Services

#: Heads that one connection is known by; producers to more topics than this name them in one request.
HEADS_MAX: Final = 64
#: Longer heads (names may be long) are not worth remembering.
HEAD_BYTES_MAX: Final = 512
#: The first version whose answers hold a log start offset.
_VERSION_MIN: Final = 5

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
_start: Final = Struct(">ii").unpack_from


class Head:
    """What all requests to one topic have in common."""

    __slots__ = ("acks", "bytes", "fill", "find_records", "records_at", "subject", "timeout_ms", "topic", "topic_id")

    def __init__(self, call: Call, request: ProduceRequest, template: RecordsRequestTemplate) -> None:
        (topic,) = request.topic_data
        self.bytes = template.head
        self.records_at = template.records_at
        self.find_records = template.find_records
        self.subject = call.subject
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.topic = topic.name
        self.topic_id = bytes(topic.topic_id)
        partition = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=(partition,))
        #: Returns an answer without errors.
        self.fill = AnswerTemplate(ProduceResponse(responses=(answer,)), call.version, _ANSWERED).fill

    def goes_with(self, other: Head) -> bool:
        """Return whether requests with either head may be one run."""
        return (
            self.acks == other.acks
            and self.timeout_ms == other.timeout_ms
            and self.subject.client_id == other.subject.client_id
        )


#: A request of a run: head, partition, correlation id, bytes without its length.
RunRequest = tuple[Head, int, int, int]


class CallRun(Call):
    """Requests with heads that go together, in the order they came, and their batches."""

    __slots__ = ("_services", "batches", "requests")

    def __init__(
        self,
        client: Client,
        services: Services,
        requests: list[RunRequest],
        batches: Sequence[memoryview],
        size: int,
    ) -> None:
        """`size`: the distance from the begin of the first request to the end of the last one."""
        head, _, correlation_id, _ = requests[0]
        super().__init__(client, services.admission, head.subject, correlation_id, size, count=len(requests))
        self._services = services
        self.requests = requests
        self.batches = batches

    @property
    def correlation_ids(self) -> Iterable[int]:
        return [request[2] for request in self.requests]

    def append(self) -> None:
        """Append the batches; the requests are answered when storage has answered."""
        head, partition, correlation_id, _ = self.requests[0]
        if self.count == 1 or all(each[1] == partition and each[0] is head for each in self.requests):
            partitions = [TopicIdPartition(head.topic, partition, head.topic_id)]
        else:
            partitions = [TopicIdPartition(head.topic, index, head.topic_id) for head, index, _, _ in self.requests]
        append = Append(
            correlation_id, self.client_id, self.version, head.acks, head.timeout_ms, partitions, self.batches
        )
        self._services.storage.records.append(append, self._done)

    def _done(self, response: AppendResponse) -> None:
        try:
            offsets = response.offsets()
            if offsets is None:
                self._answer_one_by_one(response.outcomes)
                return
            answers = self._answers(offsets) if self.requests[0][0].acks else []
            self.client.answered(self, (b"".join(answers),) if answers else ())
        except Exception as error:
            self.failed(error)
        else:
            self._finish_all(answers)

    def _answers(self, offsets: Iterable[tuple[int, ...]]) -> list[bytes]:
        """Return an answer to each request, of its base offset, append time and log start offset."""
        throttle_ms = self.throttle_ms()
        return [
            head.fill(correlation_id, index, base, time_ms, start, throttle_ms)
            for (head, index, correlation_id, _), (base, time_ms, start) in zip(self.requests, offsets, strict=True)
        ]

    def _finish_all(self, answers: list[bytes]) -> None:
        """Finish all requests without an error, after the answer, which need not wait for it."""
        first, is_one_topic = self.requests[0][0], True
        for (head, _, _, _), batch in zip(self.requests, self.batches, strict=True):
            count_appended(self._services, head.topic, head.topic_id, batch)
            is_one_topic = is_one_topic and head is first
        if is_one_topic:
            self.finish(0, sum(map(len, answers)) - 4 * len(answers))
            return
        self.finished = True
        for number, call in enumerate(self._calls()):
            call.finish(0, len(answers[number]) - 4 if answers else 0)

    def _answer_one_by_one(self, outcomes: Sequence[AppendOutcome]) -> None:
        """Answer, count and log each request by itself."""
        errors = []
        for call, request, batch, outcome in zip(self._calls(), self.requests, self.batches, outcomes, strict=True):
            head, index, _, _ = request
            partition = TopicIdPartition(head.topic, index, head.topic_id)
            errors.append(conclude(call, self._services, [partition], [batch], [outcome]))
        self._answer_errors(outcomes, errors)

    def refuse_all(self, error: int) -> None:
        """Answer each request with the error; with acks=0 close the connection."""
        self._answer_errors([AppendedPartition(error)] * self.count, [error] * self.count)

    def _answer_errors(self, outcomes: Sequence[AppendOutcome], errors: Sequence[int]) -> None:
        self.finished = True
        has_answers = bool(self.requests[0][0].acks)
        parts = list[Part]()
        for call, (head, index, _, _), outcome, error in zip(
            self._calls(), self.requests, outcomes, errors, strict=True
        ):
            if has_answers:
                data = PartitionProduceData(index=index, records=None)
                topic = TopicProduceData(name=head.topic, topic_id=head.topic_id, partition_data=(data,))
                parts += call.encoded(response_of((topic,), (outcome,), call.version), error)
            else:
                call.finish(error, 0)
        if has_answers:
            self.client.answered(self, parts)
        else:
            self.client.abort()

    def _calls(self) -> Iterator[Call]:
        """Return a call for each of the requests by itself."""
        for head, _, correlation_id, size in self.requests:
            call = Call(self.client, self.ring, head.subject, correlation_id, size)
            call.started_at = self.started_at
            call.recognised = True
            yield call


class ProducePattern:
    """Implements `patterns.Pattern`: the heads that one connection's producers begin their requests with."""

    __slots__ = ("_by_head", "_client", "_latest", "_pipeline", "_services", "_shared", "_sizes", "revision")

    is_quiet = False

    def __init__(self, client: Client, services: Services, pipeline: Pipeline, shared: bytearray) -> None:
        self._client = client
        self._services = services
        self._pipeline = pipeline
        self._shared = shared
        self.revision = -1
        self._by_head: dict[bytes, Head] = {}
        #: Lengths of all heads: few, as a rule one.
        self._sizes: tuple[int, ...] = ()
        self._latest: Head | None = None

    def open(self, store: Store, begin: int, frame_end: int, end: int) -> CallRun | None:
        """Return the run that begins with the request at `begin`, as far as it has arrived whole."""
        first = self._latest
        if first is None or not store.startswith(first.bytes, begin + HEAD_AT):
            first = self._find(store, begin)
            if first is None:
                return None
        most = IN_FLIGHT_MAX - self._pipeline.requests
        run_begin = behind = begin
        head, head_bytes, records_at, find_records = first, first.bytes, first.records_at, first.find_records
        start, correlation_id = _start(store, begin)
        requests: list[RunRequest] = []
        spans: list[tuple[int, int]] = []
        while True:
            span = find_records(store, begin + records_at, frame_end)
            if span is None:
                break
            batch = span[0]
            if store[batch + MAGIC_AT] != MAGIC or store[batch + ATTRIBUTES_AT] & TRANSACTIONAL:
                break
            requests.append((head, _length(store, begin + records_at - 4)[0], correlation_id, frame_end - begin))
            spans.append(span)
            behind = frame_end
            begin = frame_end + 4
            if begin > end or len(spans) == most:
                break
            (size,) = _length(store, frame_end)
            frame_end = begin + size
            if size < HEAD_AT or frame_end > end:
                break
            found_start, correlation_id = _start(store, begin)
            if found_start != start:
                break
            if not store.startswith(head_bytes, begin + HEAD_AT):
                found = self._find(store, begin)
                if found is None or not found.goes_with(first):
                    break
                head, head_bytes, records_at = found, found.bytes, found.records_at
        if not spans:
            return None
        view, shift = memoryview(store), 0
        if store is self._shared:
            view, shift = memoryview(view[run_begin:behind].tobytes()), run_begin
        batches = [view[begin - shift : end - shift] for begin, end in spans]
        return CallRun(self._client, self._services, requests, batches, behind - run_begin)

    def serve(self, call: Call) -> None:
        assert isinstance(call, CallRun)
        call.append()

    def refuse(self, call: Call, error: int) -> None:
        assert isinstance(call, CallRun)
        call.refuse_all(error)

    def learn(self, call: Call, request: Any, frame: bytes | memoryview, kept: object) -> None:  # noqa: ARG002
        """Remember the head of a decoded request, if it is written the way most clients write it."""
        if call.subject.revision != self.revision:
            self.forget()
            self.revision = call.subject.revision
        if call.version < _VERSION_MIN or request.transactional_id is not None or len(self._by_head) >= HEADS_MAX:
            return
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        if not request.topic_data[0].partition_data[0].records:
            return
        template = RecordsRequestTemplate.learn(request, call.version, frame, (_PARTITION,))
        if template is None or len(template.head) > HEAD_BYTES_MAX or template.head in self._by_head:
            return
        self._by_head[template.head] = Head(call, request, template)
        self._sizes = tuple({len(each) for each in self._by_head})

    def forget(self) -> None:
        self._by_head.clear()
        self._sizes = ()
        self._latest = None

    def _find(self, store: Store, begin: int) -> Head | None:
        """Return the head that the request begins with; it is the latest from now on."""
        at = begin + HEAD_AT
        for size in self._sizes:
            found = self._by_head.get(bytes(store[at : at + size]))
            if found is not None:
                self._latest = found
                return found
        return None
