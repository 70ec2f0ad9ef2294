"""Runs of Produce requests say what decoding each request says, and what is no plain request is no part of one."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
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
from gateway_svc.errors import RequestRefused
from gateway_svc.handlers import HANDLERS
from gateway_svc.handlers.produce_pattern import HEADS_MAX, KnownHeads, ProduceRun, Taken
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.call import Call
from gateway_svc.requests.dispatch import Dispatcher
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.codec import decode, encode
from protocol_lib.headers import RequestHeader, decode_request_header, decode_response_header, encode_request_header
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record

DISPATCHER = Dispatcher(HANDLERS, GatewayMetrics())
BATCHES = [build_batch([Record(n, 1000, None, b"v" * size) for n in range(3)]) for size in (1, 20, 200, 20_000)]
TRANSACTIONAL = bytearray(BATCHES[0])
TRANSACTIONAL[22] |= 0x10
RECORDS = [*BATCHES, bytes(TRANSACTIONAL), BATCHES[0][:60], BATCHES[0][:16] + b"\1" + BATCHES[0][17:], b"", None]


class NoClient:
    connection_id = 0
    peer = host = listener = ""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def answered(self, _pending: object, parts: Any) -> None:
        self.answers += parts

    def refuse(self, refusal: RequestRefused) -> None:
        raise refusal


def requests(
    topic: str = "t", partition: int = 0, records: Any = BATCHES[0], acks: int = 1, **more: Any
) -> ProduceRequest:
    data = (PartitionProduceData(index=partition, records=records),)
    topics = (TopicProduceData(name=topic, topic_id=bytes(16), partition_data=data),)
    return ProduceRequest(**{"acks": acks, "timeout_ms": 5000, "topic_data": topics, **more})


def framed(request: ProduceRequest, version: int, correlation_id: int, client_id: str | None = "c") -> bytes:
    header = encode_request_header(RequestHeader(0, version, correlation_id, client_id))
    body = header + encode(request, version)
    return struct.pack(">i", len(body)) + body


def learned(*frames: bytes) -> KnownHeads:
    heads = KnownHeads()
    for frame in frames:
        heads.learn(*DISPATCHER.open(NoClient(), frame[4:]), frame[4:])
    return heads


def taken(heads: KnownHeads, stream: bytes, most: int = 1000, position: int = 0, behind: bytes = b"") -> Taken | None:
    """`behind` is what a buffer holds from earlier: it belongs to nothing."""
    (size,) = struct.unpack_from(">i", stream, position)
    return heads.take(stream + behind, position + 4, position + 4 + size, len(stream), most)


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
def test_what_a_run_says_is_what_decoding_says(sent: list[bytes], rest: bytes, behind: bytes, kind: type) -> None:
    heads, stream, position = learned(*sent), kind(b"".join(sent) + rest), 0
    for number in range(len(sent)):
        found = taken(heads, stream, position=position, behind=behind)
        requests_found, spans, _ = found or ([], [], 0)
        for index, (known, partition, correlation_id) in enumerate(requests_found):
            frame, (begin, end) = sent[number + index], spans[index]
            header, body_at = decode_request_header(frame[4:])
            assert (known.route.version, known.client_id) == (header.api_version, header.client_id)
            assert correlation_id == header.correlation_id
            said = requests(known.topic, partition, stream[begin:end], known.acks, timeout_ms=known.timeout_ms)
            assert said == decode(ProduceRequest, header.api_version, frame, body_at + 4)
        position += len(sent[number])


@pytest.mark.parametrize("version", range(5, 14))
def test_requests_that_differ_in_id_partition_and_records_are_one_run(version: int) -> None:
    sent = [framed(requests(records=records, partition=n % 3), version, 7 + n) for n, records in enumerate(BATCHES)]
    stream = b"".join(sent)
    found = taken(learned(sent[0]), stream)
    assert found is not None
    assert [request[1:] for request in found[0]] == [(0, 7), (1, 8), (2, 9), (0, 10)]
    assert [stream[begin:end] for begin, end in found[1]] == BATCHES
    assert found[2] == len(stream)


@pytest.mark.parametrize("version", [7, 9, 12])
def test_requests_to_several_topics_are_one_run(version: int) -> None:
    sent = [framed(requests(topic, partition), version, 1) for topic, partition in (("a", 0), ("bb", 3), ("a", 1))]
    found = taken(learned(*sent), b"".join(sent))
    assert found is not None
    assert [(known.topic, partition) for known, partition, _ in found[0]] == [("a", 0), ("bb", 3), ("a", 1)]
    found = taken(learned(sent[0]), b"".join(sent))
    assert found is not None
    assert len(found[0]) == 1


@pytest.mark.parametrize("version", [7, 9, 13])
def test_a_run_ends_where_requests_stop_being_alike(version: int) -> None:
    plain = framed(requests(), version, 1)
    others = {
        "acks": framed(requests(acks=0), version, 1),
        "timeout": framed(requests(timeout_ms=1), version, 1),
        "client": framed(requests(), version, 1, "d"),
        "version": framed(requests(), version - 1, 1),
        "transaction": framed(requests(records=bytes(TRANSACTIONAL)), version, 1),
        "bytes behind": struct.pack(">i", len(plain) - 4 + 1) + plain[4:] + b"\0",
        "cut": struct.pack(">i", 10) + plain[4:14],
        "not whole": plain[:-1],
        "no length": plain[:3],
    }
    heads = learned(plain, *[others[name] for name in ("acks", "timeout", "client", "version")])
    for name, other in others.items():
        found = taken(heads, plain + plain + other + plain)
        if name.startswith("no"):
            found = taken(heads, plain + plain + other)
        assert found is not None, name
        assert (len(found[1]), found[2]) == (2, 2 * len(plain)), name
    at_most = taken(heads, plain * 5, most=3)
    assert at_most is not None
    assert len(at_most[1]) == 3


def test_what_is_not_remembered() -> None:
    for version in (3, 4):
        frame = framed(requests(), version, 1)
        assert taken(learned(frame), frame) is None
    for request in (requests(transactional_id="x"), requests(records=None), requests(topic="t" * 600)):
        frame = framed(request, 9, 1)
        assert taken(learned(frame), frame) is None
    many = [framed(requests(f"topic-{n}"), 9, 1) for n in range(HEADS_MAX + 1)]
    heads = learned(*many)
    assert taken(heads, many[HEADS_MAX - 1]) is not None
    assert taken(heads, many[HEADS_MAX]) is None


@dataclasses.dataclass
class Store:
    """Stands where storage is, and what the services of a gateway are asked for on the way."""

    outcomes: Sequence[AppendedPartition] | PackedOutcomes
    metrics: GatewayMetrics = dataclasses.field(default_factory=GatewayMetrics)

    @property
    def storage(self) -> Store:
        return self

    @property
    def records(self) -> Store:
        return self

    @property
    def refusals(self) -> Store:
        return self

    def append(self, append: Append, done: Any) -> None:
        self.appended = append
        done(AppendResponse(self.outcomes))

    def request(self, reason: str, **fields: Any) -> None:
        self.refused = reason, fields["topic"], fields["partition"], fields["correlation_id"]


def answered(version: int, places: list[tuple[str, int]], store: Store) -> list[tuple[int, ProduceResponse]]:
    """What a run of requests to these topics and partitions is answered, each with its correlation id, from 40 on."""
    sent = [
        framed(requests(topic, partition, records), version, 40 + n)
        for n, ((topic, partition), records) in enumerate(zip(places, BATCHES, strict=True))
    ]
    stream = b"".join(sent)
    found = taken(learned(*sent), stream)
    assert found is not None
    client = NoClient()
    batches = [memoryview(stream)[begin:end] for begin, end in found[1]]
    ProduceRun(client, store, found[0], batches, len(stream)).start()
    answer, position, answers = b"".join(client.answers), 0, []
    while position < len(answer):
        (size,) = struct.unpack_from(">i", answer, position)
        frame = answer[position + 4 : position + 4 + size]
        correlation_id, body_at = decode_response_header(0, version, frame)
        response = decode(ProduceResponse, version, frame, body_at)
        assert frame[body_at:] == encode(response, version)
        answers.append((correlation_id, response))
        position += 4 + size
    return answers


ONE = [("t", 0)] * 4
SEVERAL = [("t", 2), ("t", 0), ("u", 2), ("t", 2)]


@pytest.mark.parametrize("version", range(5, 14))
@pytest.mark.parametrize("places", [ONE, SEVERAL])
@pytest.mark.parametrize("travelled", [False, True])
def test_answers_are_those_that_encoding_gives(version: int, places: list[tuple[str, int]], travelled: bool) -> None:
    outcomes = [AppendedPartition(0, 10 * n, 123, 4) for n in range(4)]
    packed = PackedOutcomes(b"".join(OUTCOME.pack(10 * n, 123, 4) for n in range(4)))
    assert packed == outcomes
    store = Store(packed if travelled else outcomes)
    answers = answered(version, places, store)
    assert [correlation_id for correlation_id, _ in answers] == [40, 41, 42, 43]
    named = [(topic if version < 13 else "", partition) for topic, partition in places]
    for (_, response), (name, index), offset in zip(answers, named, (0, 10, 20, 30), strict=True):
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        assert (topic.name, partition.index, partition.error_code) == (name, index, 0)
        assert (partition.base_offset, partition.log_append_time_ms, partition.log_start_offset) == (offset, 123, 4)
    appended = store.appended
    assert (appended.acks, appended.version, appended.correlation_id) == (1, version, 40)
    assert appended.batches == BATCHES
    partitions = [TopicIdPartition(*each) for each in named]
    assert appended.partitions == (partitions[:1] if places == ONE else partitions)
    for name in {name for name, _ in named}:
        counts = store.metrics.topics[name or "_other"]
        sizes = [len(batch) for batch, (other, _) in zip(BATCHES, named, strict=True) if other == name]
        assert (counts.produces, counts.records_in, counts.bytes_in) == (len(sizes), 3 * len(sizes), sum(sizes))


def test_one_refused_batch_of_a_run_is_told_to_its_request() -> None:
    store = Store([AppendedPartition(0, 5), AppendedPartition(2, error_message="no"), *[AppendedPartition(0, 6)] * 2])
    answers = answered(9, SEVERAL, store)
    told = [response.responses[0].partition_responses[0] for _, response in answers]
    assert [(each.index, each.error_code, each.base_offset) for each in told] == [
        (2, 0, 5),
        (0, 2, -1),
        (2, 0, 6),
        (2, 0, 6),
    ]
    assert told[1].error_message == "no"
    assert store.refused == ("CORRUPT_MESSAGE", "t", 0, 41)
    assert (store.metrics.topics["t"].produces, store.metrics.topics["u"].produces) == (2, 1)


def test_a_call_of_a_run_is_counted_as_its_requests() -> None:
    frame = framed(requests(), 9, 1)
    call, _ = DISPATCHER.open(NoClient(), frame[4:])
    assert isinstance(call, Call)
    assert call.count == 1
    found = taken(learned(frame), frame * 3)
    assert found is not None
    assert ProduceRun(NoClient(), Store([]), found[0], [memoryview(b"")] * 3, 0).count == 3


def test_outcomes_of_other_than_all_batches_are_no_answer() -> None:
    store = Store(PackedOutcomes(bytes(3 * OUTCOME.size)))
    with pytest.raises(RequestRefused, match="failed"):
        answered(9, ONE, store)
