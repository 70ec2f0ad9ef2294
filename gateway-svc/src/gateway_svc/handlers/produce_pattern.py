"""Produce requests that follow each other and differ only in correlation id, partition and records, served as one.

A producer's requests begin with the same bytes. What was decoded once (`KnownHeads.learn`) is recognised by comparing
them, so that of a run of such requests only lengths and partitions are read and record batches cut out; the run takes
one place in its connection's order, is appended by one call and answered by one write. A request is known by

    length i32 │ api key i16, version i16 │ correlation id i32 │ client id … acks, timeout, topic │ partition │ records
               └────────── start ─────────┘                    └───────────── head ──────────────┘

where records are `length i32, batch`, or `length + 1 as unsigned varint, batch, no tagged fields (three times 0)` in
flexible versions. Heads of several topics are one run where client id, version, acks and timeout are the same. Whatever
differs (several partitions in a request, no records, transactions, formats before v2, tagged fields) is no part of a
run and goes the general way, handlers/produce.py. What a batch holds is storage's to check, as ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from broker_contract.data import (
    Append,
    AppendOutcome,
    AppendResponse,
    TopicIdPartition,
)
from protocol_lib.codec import encode, encode_parts
from protocol_lib.errors import DecodeError
from protocol_lib.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol_lib.records.header import HEADER_SIZE, MAGIC, TRANSACTIONAL
from protocol_lib.varint import read_unsigned, write_unsigned

from gateway_svc.clients.pipeline import Kind, Pending
from gateway_svc.clients.slices import Part
from gateway_svc.handlers import produce
from gateway_svc.requests.call import Call, Client, Route, Services

#: Heads that one connection is known by; producers to more topics than this name them in one request.
HEADS_MAX: Final = 64
#: Longer heads (names may be long) are not worth remembering.
HEAD_BYTES_MAX: Final = 512
#: The first version whose answers hold a log start offset, and the first flexible one.
_VERSION_MIN: Final = 5
_FLEXIBLE: Final = 9
#: Where the head begins: behind api key, version and correlation id.
_HEAD_AT: Final = 8
_PARTITION_BYTES: Final = 4
_MAGIC_AT, _ATTRIBUTES_AT, _RECORD_COUNT_AT = 16, 22, 57
_NO_TAGS: Final = bytes(3)

_length = Struct(">i").unpack_from
_start = Struct(">ii").unpack_from
#: What an answer says of its partition: index, error code, three offsets.
_ANSWERED: Final = Struct(">ihqqq")
#: Stands for it when an answer is encoded once for all; no name and no id contains it.
_PLACEHOLDER: Final = (-1, 0, -2, -3, -4)

Store = bytes | bytearray


class KnownHead:
    """What all requests with this start and head have in common."""

    __slots__ = ("acks", "answer", "client_id", "head", "route", "start", "timeout_ms", "topic", "topic_id")

    def __init__(self, call: Call, request: ProduceRequest, start: int, head: bytes) -> None:
        (topic,) = request.topic_data
        self.start = start
        self.head = head
        self.route: Route = call.route
        self.client_id = call.client_id
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.topic = topic.name
        self.topic_id = topic.topic_id
        #: How an answer without errors is put together: its length, what follows the correlation id, what follows the
        #: offsets.
        self.answer: tuple[Struct, bytes, bytes, bytes] = self._answer()

    def goes_with(self, other: KnownHead) -> bool:
        """Whether requests with either head may be one run."""
        return (
            self.start == other.start
            and self.acks == other.acks
            and self.timeout_ms == other.timeout_ms
            and self.client_id == other.client_id
        )

    def _answer(self) -> tuple[Struct, bytes, bytes, bytes]:
        index, error_code, base_offset, log_append_time_ms, log_start_offset = _PLACEHOLDER
        partition = PartitionProduceResponse(
            index=index,
            error_code=error_code,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
        topic = TopicProduceResponse(name=self.topic, topic_id=self.topic_id, partition_responses=(partition,))
        body = self.route.header_tail + encode(ProduceResponse(responses=(topic,)), self.route.version)
        before, after = body.split(_ANSWERED.pack(*_PLACEHOLDER))
        layout = Struct(f">4si{len(before)}si2xqqq{len(after)}s")
        return layout, (len(body) + 4).to_bytes(4, "big"), before, after


#: A request of a run: head, partition, correlation id.
RunRequest = tuple[KnownHead, int, int]
#: Requests of a run where they were received, where the batch of each begins and ends, and the end of the last request.
Taken = tuple[list[RunRequest], list[tuple[int, int]], int]


class ProduceRun(Pending):
    """Requests with heads that go together, in the order they came, and their batches. Answered as one."""

    __slots__ = ("_batches", "_client", "_requests", "_services", "_started_at")

    def __init__(
        self,
        client: Client,
        services: Services,
        requests: list[RunRequest],
        batches: Sequence[memoryview],
        size: int,
    ) -> None:
        super().__init__(Kind.APPEND, size, count=len(batches))
        self._client = client
        self._services = services
        self._requests = requests
        self._batches = batches
        self._started_at = time.perf_counter()

    def start(self) -> None:
        known, partition, correlation_id = self._requests[0]
        said = (correlation_id, known.client_id, known.route.version, known.acks, known.timeout_ms)
        if len(self._requests) == 1 or all(each[1] == partition and each[0] is known for each in self._requests):
            partitions = [TopicIdPartition(known.topic, partition, known.topic_id)]
        else:
            partitions = self._partitions()
        self._services.storage.records.append(Append(*said, partitions, self._batches), self._done)

    def _partitions(self) -> list[TopicIdPartition]:
        return [TopicIdPartition(known.topic, partition, known.topic_id) for known, partition, _ in self._requests]

    def _done(self, response: AppendResponse) -> None:
        try:
            offsets = response.offsets()
            if offsets is None:
                self._answer_one_by_one(response.outcomes)
                return
            answer = self._answer(offsets) if self._requests[0][0].acks else b""
            self._client.answered(self, (answer,) if answer else ())
        except Exception as error:
            self._call(0).failed(error)
        else:
            self._count(len(answer))

    def _answer(self, offsets: Iterable[tuple[int, ...]]) -> bytes:
        """To all requests, of base offset, append time and log start offset for each."""
        answers: list[bytes] = []
        latest: KnownHead | None = None
        for (known, index, correlation_id), (base, time_ms, start) in zip(self._requests, offsets, strict=True):
            if known is not latest:
                latest = known
                layout, length, before, after = known.answer
                pack = layout.pack
            answers.append(pack(length, correlation_id, before, index, base, time_ms, start, after))
        return b"".join(answers)

    def _count(self, answered: int) -> None:
        """Behind the answer, which need not wait for it."""
        first = self._requests[0][0]
        seconds = time.perf_counter() - self._started_at
        first.route.counts.count(first.route.version, "NONE", seconds, self.size, answered, len(self._batches))
        metrics = self._services.metrics
        latest: KnownHead | None = None
        for (known, _, _), batch in zip(self._requests, self._batches, strict=True):
            if known is not latest:
                latest = known
                counts = metrics.topic_by(known.topic, known.topic_id)
            counts.produces += 1
            counts.bytes_in += len(batch)
            counts.records_in += _length(batch, _RECORD_COUNT_AT)[0]

    def _answer_one_by_one(self, outcomes: Sequence[AppendOutcome]) -> None:
        """As produce.py does: each request answered, counted and, if it was refused, logged by itself."""
        parts = list[Part]()
        acks = self._requests[0][0].acks
        appended = zip(self._partitions(), self._batches, outcomes, strict=True)
        for number, (partition, batch, outcome) in enumerate(appended):
            call = self._call(number)
            data = PartitionProduceData(index=partition.partition, records=batch)
            topic = TopicProduceData(name=partition.topic, topic_id=partition.topic_id, partition_data=(data,))
            response, error = produce.told(call, (topic,), self._services, [partition], [batch], [outcome])
            parts += call.encoded(response, error) if acks else ()
        if acks:
            self._client.answered(self, parts)
        else:
            self._client.abort()

    def _call(self, number: int) -> Call:
        """One of the requests by itself."""
        known, _, correlation_id = self._requests[number]
        size = len(self._batches[number])
        call = Call(self._client, known.route, correlation_id, known.client_id, size)
        call.started_at = self._started_at
        return call


class KnownHeads:
    """What one connection's producers begin their requests with. Owned by its connection."""

    __slots__ = ("_by_head", "_latest", "_sizes")

    def __init__(self) -> None:
        self._by_head: dict[tuple[int, bytes], KnownHead] = {}
        #: Lengths of all heads: few, as a rule one.
        self._sizes: tuple[int, ...] = ()
        self._latest: KnownHead | None = None

    def learn(self, call: Call, request: ProduceRequest, frame: bytes | memoryview) -> None:
        """A request was decoded: remember its head, if it is written the way everybody writes it."""
        version = call.route.version
        if version < _VERSION_MIN or request.transactional_id is not None or len(self._by_head) >= HEADS_MAX:
            return
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        records = request.topic_data[0].partition_data[0].records
        if not records:
            return
        before, _, *after = encode_parts(request, version)
        assert isinstance(before, bytes)
        body_at = len(frame) - len(before) - len(records) - sum(map(len, after))
        head_end = body_at + len(before) - (len(write_unsigned(len(records) + 1)) if version >= _FLEXIBLE else 4)
        head = bytes(frame[_HEAD_AT : head_end - _PARTITION_BYTES])
        if len(head) > HEAD_BYTES_MAX or after != ([_NO_TAGS] if version >= _FLEXIBLE else []):
            return
        if frame[body_at : body_at + len(before)] != before or (after and frame[-len(_NO_TAGS) :] != _NO_TAGS):
            return
        (start,) = _length(frame)
        if (start, head) in self._by_head:
            return
        self._by_head[start, head] = KnownHead(call, request, start, head)
        self._sizes = tuple({len(each) for _, each in self._by_head})

    def take(self, store: Store, begin: int, frame_end: int, end: int, most: int) -> Taken | None:
        """The run that begins with the request at `begin`, as far as it has arrived whole; None when it is no run."""
        (start,) = _length(store, begin)
        known = self._latest
        if known is None or known.start != start or not store.startswith(known.head, begin + _HEAD_AT):
            known = self._known(store, begin)
            if known is None:
                return None
        first = known
        head, records_at = known.head, _HEAD_AT + len(known.head) + _PARTITION_BYTES
        find = _span_flexible if known.route.version >= _FLEXIBLE else _span
        requests: list[RunRequest] = []
        spans: list[tuple[int, int]] = []
        behind = begin
        while True:
            found_start, correlation_id = _start(store, begin)
            if found_start != start:
                break
            if not store.startswith(head, begin + _HEAD_AT):
                known = self._known(store, begin)
                if known is None or not known.goes_with(first):
                    break
                head, records_at = known.head, _HEAD_AT + len(known.head) + _PARTITION_BYTES
            span = find(store, begin + records_at, frame_end)
            if span is None:
                break
            batch = span[0]
            if store[batch + _MAGIC_AT] != MAGIC or store[batch + _ATTRIBUTES_AT] & TRANSACTIONAL:
                break
            requests.append((known, _length(store, begin + records_at - _PARTITION_BYTES)[0], correlation_id))
            spans.append(span)
            behind = frame_end
            begin = frame_end + 4
            if begin > end or len(spans) == most:
                break
            (size,) = _length(store, frame_end)
            frame_end = begin + size
            if size < _HEAD_AT or frame_end > end:
                break
        return (requests, spans, behind) if spans else None

    def _known(self, store: Store, begin: int) -> KnownHead | None:
        """The head that the request begins with, the latest from now on."""
        (start,) = _length(store, begin)
        for size in self._sizes:
            found = self._by_head.get((start, bytes(store[begin + _HEAD_AT : begin + _HEAD_AT + size])))
            if found is not None:
                self._latest = found
                return found
        return None


def _span(store: Store, position: int, end: int) -> tuple[int, int] | None:
    """Where the records whose length is at `position` begin and end; None unless they are all that follows."""
    begin = position + 4
    if end - begin < HEADER_SIZE or _length(store, position)[0] != end - begin:
        return None
    return begin, end


def _span_flexible(store: Store, position: int, end: int) -> tuple[int, int] | None:
    """As `_span`, in flexible versions."""
    end -= len(_NO_TAGS)
    if end - position < HEADER_SIZE:
        return None
    try:
        length, begin = read_unsigned(store, position)
    except DecodeError:
        return None
    if end - begin < HEADER_SIZE or length - 1 != end - begin or store[end : end + len(_NO_TAGS)] != _NO_TAGS:
        return None
    return begin, end
