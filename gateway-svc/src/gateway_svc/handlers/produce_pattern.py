"""Produce requests that follow each other and differ only in correlation id, partition and records, served as one run.

A producer's requests begin with the same bytes, their head (`produce_template`), by which they are recognised. In a run
only lengths and partitions are read, and the record batches are cut out. The run has one position in its connection's
order of answers, one append and one write of answers.

A run may have heads of several topics, with the same client id, acks and timeout. A request with several partitions, no
records, transactions, formats before v2 or tagged fields ends the run and is decoded. Storage checks the batches, as it
does for decoded requests.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import Any, Final

from protocol_lib.messages.produce import ProduceRequest
from protocol_lib.records.header import ATTRIBUTES_AT, MAGIC, MAGIC_AT, TRANSACTIONAL
from protocol_lib.template import HEAD_AT, RecordsRequestTemplate

from gateway_svc.clients.pipeline import IN_FLIGHT_MAX, Pipeline
from gateway_svc.handlers.produce_append import AcceptedRecords
from gateway_svc.handlers.produce_run import CallRun, FoundRequests
from gateway_svc.handlers.produce_template import TopicTemplate
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
_PARTITION: Final = "topic_data.partition_data.index"

_length: Final = Struct(">i").unpack_from


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
        found = self._scan(first, store, begin, frame_end, end)
        if found is None:
            return None
        view, shift = memoryview(store), 0
        if store is self._shared:
            view, shift = memoryview(view[begin : found.end].tobytes()), begin
        batches = [view[start - shift : stop - shift] for start, stop in found.spans]
        return CallRun(self._client, self._ring, self._context, found, batches, found.end - begin)

    def _scan(self, first: TopicTemplate, store: Store, begin: int, frame_end: int, end: int) -> FoundRequests | None:
        """Return the requests from `begin` on, whose first head is given, as far as one run may have them."""
        most = IN_FLIGHT_MAX - self._pipeline.requests
        run_end = begin
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
        return FoundRequests(first, heads, correlation_ids, partitions, spans, run_end) if spans else None

    def serve(self, call: Call) -> None:
        assert isinstance(call, CallRun)
        call.append()

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
