"""Runs of Produce requests mean the same as decoded ones; requests that are not plain are no part of a run."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from broker_contract.data import (
    OUTCOME,
    Append,
    AppendedPartition,
    AppendResponse,
    PackedOutcomes,
    TopicIdPartition,
)
from gateway_svc.clients.pipeline import IN_FLIGHT_MAX, Pipeline
from gateway_svc.errors import RequestRefused
from gateway_svc.handlers.produce_append import AcceptedRecords
from gateway_svc.handlers.produce_pattern import TEMPLATE_MEMORY, TEMPLATES_MAX
from gateway_svc.handlers.produce_run import CallRun
from gateway_svc.handlers.produce_template import TopicTemplate
from gateway_svc.requests.patterns import Pattern
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.codec import decode, encode
from protocol_lib.headers import decode_request_header, decode_response_header
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record

from tests.unit.gateway_svc.rig import Rig
from tests.unit.gateway_svc.rig import framed as framed_request

BATCHES = [build_batch([Record(n, 1000, None, b"v" * size) for n in range(3)]) for size in (1, 20, 200, 20_000)]
TRANSACTIONAL = bytearray(BATCHES[0])
TRANSACTIONAL[22] |= 0x10
RECORDS = [*BATCHES, bytes(TRANSACTIONAL), BATCHES[0][:60], BATCHES[0][:16] + b"\1" + BATCHES[0][17:], b"", None]


def requests(
    topic: str = "t", partition: int = 0, records: Any = BATCHES[0], acks: int = 1, **more: Any
) -> ProduceRequest:
    data = (PartitionProduceData(index=partition, records=records),)
    topics = (TopicProduceData(name=topic, topic_id=bytes(16), partition_data=data),)
    return ProduceRequest(**{"acks": acks, "timeout_ms": 5000, "topic_data": topics, **more})


def framed(request: ProduceRequest, version: int, correlation_id: int, client_id: str | None = "c") -> bytes:
    return framed_request(0, version, request, correlation_id, client_id)


class Records:
    """A storage that keeps the appends it receives, and answers with these outcomes."""

    def __init__(self, outcomes: Sequence[AppendedPartition] | PackedOutcomes | None = None) -> None:
        self.outcomes = outcomes
        self.appended: list[Append] = []

    def append(self, append: Append, done: Any) -> None:
        self.appended.append(append)
        if self.outcomes is None:
            done(AppendResponse([AppendedPartition(0) for _ in append.batches]))
        else:
            done(AppendResponse(self.outcomes))


class Learned:
    """A connection that has received these requests, decoded each and learned from it."""

    def __init__(self, *frames: bytes, heads_bytes: int = 1 << 20) -> None:
        self.pipeline = Pipeline()
        self._patterns: dict[int, Pattern] = {}
        self._rig = rig = Rig(records=Records())
        self.templates = rig.parts.topic_templates
        self.templates.limit = heads_bytes
        for frame in frames:
            call, request = rig.dispatcher.open(rig.client, rig.parts.admission, frame[4:])
            handler = rig.dispatcher.handlers[0]
            rig.parts.admission.judge(call.subject, rig.client.host, request, handler, list)
            assert handler.pattern is not None
            (start,) = struct.unpack_from(">i", frame, 4)
            if start not in self._patterns:
                self._patterns[start] = handler.pattern(
                    rig.client, rig.parts.admission, rig.parts.produce_context, self.pipeline, bytearray()
                )
            fate = AcceptedRecords()
            self._patterns[start].learn(call, request, frame[4:], fate)
            fate.accept()

    def close(self) -> None:
        for pattern in self._patterns.values():
            pattern.forget()

    def run(self, stream: bytes, most: int = 1000, position: int = 0, older: bytes = b"") -> CallRun | None:
        """Return the run at a position. `older` are older bytes of the buffer, which belong to no request."""
        (size, start) = struct.unpack_from(">ii", stream, position)
        pattern = self._patterns.get(start)
        if pattern is None:
            return None
        self.pipeline.requests = IN_FLIGHT_MAX - most
        run = pattern.open(stream + older, position + 4, position + 4 + size, len(stream))
        assert run is None or isinstance(run, CallRun)
        return run


def requests_of(run: CallRun) -> list[tuple[TopicTemplate, int, int, memoryview]]:
    """Return head, partition, correlation id and batch of each request."""
    heads = run.templates or [run.template] * run.count
    return list(zip(heads, run.partitions, run.correlation_ids, run.batches, strict=True))


single = st.builds(
    requests,
    topic=st.sampled_from(["t", "other", "t" * 249]),
    partition=st.integers(0, 2),
    records=st.sampled_from(RECORDS),
    acks=st.sampled_from([-1, 0, 1]),
    transactional_id=st.sampled_from([None, None, "x"]),
)
double = single.map(lambda one: dataclasses.replace(one, topic_data=one.topic_data * 2))
frames = st.builds(
    framed,
    single | single | double,
    st.integers(3, 13),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([None, "c", "é"]),
)
repeated = st.lists(st.tuples(frames, st.integers(1, 3)), max_size=6).map(
    lambda pairs: [frame for frame, times in pairs for _ in range(times)]
)


@given(repeated, st.binary(max_size=8), repeated.map(b"".join), st.sampled_from([bytes, bytearray]))
def test_what_a_run_says_is_what_decoding_says(sent: list[bytes], rest: bytes, older: bytes, kind: type) -> None:
    learned, stream, position = Learned(*sent), kind(b"".join(sent) + rest), 0
    for number in range(len(sent)):
        run = learned.run(stream, position=position, older=older)
        found = [] if run is None else requests_of(run)
        for index, (head, partition, correlation_id, batch) in enumerate(found):
            frame, size = sent[number + index], head.request_size(len(batch))
            header, body_at = decode_request_header(frame[4:])
            assert (head.subject.route.version, head.subject.client_id) == (header.api_version, header.client_id)
            assert (correlation_id, size) == (header.correlation_id, len(frame) - 4)
            said = requests(head.topic, partition, bytes(batch), head.acks, timeout_ms=head.timeout_ms)
            assert said == decode(ProduceRequest, header.api_version, frame, body_at + 4)
        position += len(sent[number])


@pytest.mark.parametrize("version", range(5, 14))
def test_requests_that_differ_in_id_partition_and_records_are_one_run(version: int) -> None:
    sent = [framed(requests(records=records, partition=n % 3), version, 7 + n) for n, records in enumerate(BATCHES)]
    stream = b"".join(sent)
    run = Learned(sent[0]).run(stream)
    assert run is not None
    assert [request[1:3] for request in requests_of(run)] == [(0, 7), (1, 8), (2, 9), (0, 10)]
    assert run.correlation_id == 7
    assert [bytes(each) for each in run.batches] == BATCHES
    assert (run.count, run.size) == (4, len(stream) - 4)


@pytest.mark.parametrize("version", [7, 9, 12])
def test_requests_to_several_topics_are_one_run(version: int) -> None:
    sent = [framed(requests(topic, partition), version, 1) for topic, partition in (("a", 0), ("bb", 3), ("a", 1))]
    run = Learned(*sent).run(b"".join(sent))
    assert run is not None
    assert [(head.topic, partition) for head, partition, _, _ in requests_of(run)] == [("a", 0), ("bb", 3), ("a", 1)]
    run = Learned(sent[0]).run(b"".join(sent))
    assert run is not None
    assert run.count == 1


@pytest.mark.parametrize("version", [7, 9, 13])
def test_a_run_ends_where_requests_stop_being_alike(version: int) -> None:
    plain = framed(requests(), version, 1)
    others = {
        "acks": framed(requests(acks=0), version, 1),
        "timeout": framed(requests(timeout_ms=1), version, 1),
        "client": framed(requests(), version, 1, "d"),
        "version": framed(requests(), version - 1, 1),
        "transaction": framed(requests(records=bytes(TRANSACTIONAL)), version, 1),
        "bytes after": struct.pack(">i", len(plain) - 4 + 1) + plain[4:] + b"\0",
        "cut": struct.pack(">i", 10) + plain[4:14],
        "not whole": plain[:-1],
        "no length": plain[:3],
    }
    learned = Learned(plain, *[others[name] for name in ("acks", "timeout", "client", "version")])
    for name, other in others.items():
        run = learned.run(plain + plain + other + plain)
        if name.startswith("no"):
            run = learned.run(plain + plain + other)
        assert run is not None, name
        assert (run.count, run.size) == (2, 2 * len(plain) - 4), name
    at_most = learned.run(plain * 5, most=3)
    assert at_most is not None
    assert at_most.count == 3


def test_what_is_not_remembered() -> None:
    for version in (3, 4):
        frame = framed(requests(), version, 1)
        assert Learned(frame).run(frame) is None
    for request in (requests(transactional_id="x"), requests(records=None), requests(topic="t" * 600)):
        frame = framed(request, 9, 1)
        assert Learned(frame).run(frame) is None
    many = [framed(requests(f"topic-{n}"), 9, 1) for n in range(TEMPLATES_MAX + 1)]
    learned = Learned(*many)
    assert learned.run(many[TEMPLATES_MAX - 1]) is not None
    assert learned.run(many[TEMPLATES_MAX]) is None
    assert learned.templates.used == TEMPLATES_MAX * TEMPLATE_MEMORY
    learned.close()
    assert learned.templates.used == 0


def test_heads_of_all_connections_have_a_budget() -> None:
    many = [framed(requests(f"topic-{n}"), 9, 1) for n in range(3)]
    learned = Learned(*many, heads_bytes=2 * TEMPLATE_MEMORY)
    assert [learned.run(frame) is not None for frame in many] == [True, True, False]


@pytest.mark.parametrize("error", [0, 3])
def test_a_head_is_learned_when_storage_has_accepted_its_records(error: int) -> None:
    """Storage answers after a while: two requests before that are decoded."""
    late: list[Any] = []

    class LateRecords(Records):
        def append(self, append: Append, done: Any) -> None:
            late.append(partial(super().append, append, done))

    rig = Rig(records=LateRecords([AppendedPartition(error)]))
    frame = framed(requests(), 9, 1)
    rig.receive(frame)
    rig.receive(frame)
    assert (rig.recognised("Produce"), rig.parts.topic_templates.used) == (0, 0)
    for answer in late[:]:
        answer()
    assert rig.parts.topic_templates.used == (0 if error else TEMPLATE_MEMORY)
    rig.receive(frame)
    late[2]()
    assert rig.recognised("Produce") == (0 if error else 1)
    rig.receive(frame)
    rig.pipeline.close()
    rig.path.close()
    late[3]()  # after the client is gone
    assert rig.parts.topic_templates.used == 0


def answered(version: int, places: list[tuple[str, int]], records: Records) -> tuple[Rig, list[Any]]:
    """Return the connection, and the answers to a run of requests, each with its correlation id, from 40 on."""
    outcomes, records.outcomes = records.outcomes, None
    rig = Rig(records=records)
    for topic in dict.fromkeys(topic for topic, _ in places):
        rig.receive(framed(requests(topic, 0), version, 1))
    api = rig.parts.metrics.api("Produce")
    api.answers.clear()
    api.recognised = 0
    rig.parts.metrics.topics.clear()
    rig.client.answers.clear()
    records.outcomes = outcomes
    records.appended.clear()
    sent = [
        framed(requests(topic, partition, records), version, 40 + n)
        for n, ((topic, partition), records) in enumerate(zip(places, BATCHES, strict=True))
    ]
    rig.receive(*sent)
    assert api.recognised == len(sent)
    answer, position, answers = b"".join(rig.client.answers), 0, []
    while position < len(answer):
        (size,) = struct.unpack_from(">i", answer, position)
        frame = answer[position + 4 : position + 4 + size]
        correlation_id, body_at = decode_response_header(0, version, frame)
        response = decode(ProduceResponse, version, frame, body_at)
        assert frame[body_at:] == encode(response, version)
        answers.append((correlation_id, response))
        position += 4 + size
    return rig, answers


ONE = [("t", 0)] * 4
SEVERAL = [("t", 2), ("t", 0), ("u", 2), ("t", 2)]


@pytest.mark.parametrize("version", range(5, 14))
@pytest.mark.parametrize("places", [ONE, SEVERAL])
@pytest.mark.parametrize("travelled", [False, True])
def test_answers_are_those_that_encoding_gives(version: int, places: list[tuple[str, int]], travelled: bool) -> None:
    outcomes = [AppendedPartition(0, 10 * n, 123, 4) for n in range(4)]
    packed = PackedOutcomes(b"".join(OUTCOME.pack(10 * n, 123, 4) for n in range(4)))
    assert packed == outcomes
    records = Records(packed if travelled else outcomes)
    rig, answers = answered(version, places, records)
    assert [correlation_id for correlation_id, _ in answers] == [40, 41, 42, 43]
    named = [(topic if version < 13 else "", partition) for topic, partition in places]
    for (_, response), (name, index), offset in zip(answers, named, (0, 10, 20, 30), strict=True):
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        assert (topic.name, partition.index, partition.error_code) == (name, index, 0)
        assert (partition.base_offset, partition.log_append_time_ms, partition.log_start_offset) == (offset, 123, 4)
    (append,) = records.appended
    assert (append.acks, append.version, append.correlation_id) == (1, version, 40)
    assert append.partitions == [TopicIdPartition(*each) for each in (named[:1] if places == ONE else named)]
    assert append.batches == BATCHES
    assert rig.finished("Produce") == {(version, "NONE"): 4}
    for name in {name for name, _ in named}:
        counts = rig.parts.metrics.topics[name or "_other"]
        sizes = [len(batch) for batch, (other, _) in zip(BATCHES, named, strict=True) if other == name]
        assert (counts.produces, counts.records_in, counts.bytes_in) == (len(sizes), 3 * len(sizes), sum(sizes))


@pytest.mark.parametrize("places", [ONE, SEVERAL])
def test_bytes_of_a_run_are_counted(places: list[tuple[str, int]]) -> None:
    rig, answers = answered(7, places, Records())
    api = rig.parts.metrics.api("Produce")
    topics = dict.fromkeys(topic for topic, _ in places)
    learned_from = sum(len(framed(requests(topic, 0), 7, 1)) - 4 for topic in topics)
    sent = sum(
        len(framed(requests(topic, partition, records), 7, 1)) - 4
        for (topic, partition), records in zip(places, BATCHES, strict=True)
    )
    assert api.received_bytes == learned_from + sent + (12 if places is ONE else 0)  # the lengths inside one run
    assert api.answered_bytes == (len(answers) + len(topics)) * (len(encode(answers[0][1], 7)) + 4)


def test_one_refused_batch_of_a_run_is_the_error_of_its_request() -> None:
    outcomes = [AppendedPartition(0, 5), AppendedPartition(2, error_message="no"), *[AppendedPartition(0, 6)] * 2]
    rig, answers = answered(9, SEVERAL, Records(outcomes))
    rows = [response.responses[0].partition_responses[0] for _, response in answers]
    assert [(each.index, each.error_code, each.base_offset) for each in rows] == [
        (2, 0, 5),
        (0, 2, -1),
        (2, 0, 6),
        (2, 0, 6),
    ]
    assert rows[1].error_message == "no"
    metrics = rig.parts.metrics
    assert metrics.refused == {"CORRUPT_MESSAGE": 1}
    assert rig.finished("Produce") == {(9, "NONE"): 3, (9, "CORRUPT_MESSAGE"): 1}
    assert (metrics.topics["t"].produces, metrics.topics["u"].produces) == (2, 1)
    assert metrics.topics["t"].failed_produces == 1


def test_outcomes_of_other_than_all_batches_are_no_answer() -> None:
    rig, answers = answered(9, ONE, Records(PackedOutcomes(bytes(3 * OUTCOME.size))))
    assert answers == []
    assert [str(each) for each in rig.client.refused] == [str(RequestRefused("failed", "ValueError"))]
    assert rig.finished("Produce") == {(9, "UNKNOWN_SERVER_ERROR"): 4}
