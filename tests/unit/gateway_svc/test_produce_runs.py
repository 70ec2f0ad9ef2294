"""Runs of Produce requests say what decoding each request says, and what is no plain request is no part of one."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from broker_contract.data import AppendedPartition, AppendResponse, AppendRun
from gateway_svc.context import Call
from gateway_svc.dispatch import Dispatcher
from gateway_svc.handlers import HANDLERS
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.produce_runs import HEADS_MAX, KnownHeads, ProduceRun, Taken
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
        for index, correlation_id in enumerate(found.correlation_ids if found else ()):
            frame, known, (begin, end) = sent[number + index], found.known, found.spans[index]
            header, body_at = decode_request_header(frame[4:])
            assert (known.route.version, known.client_id) == (header.api_version, header.client_id)
            assert correlation_id == header.correlation_id
            said = requests(known.topic, known.partition, stream[begin:end], known.acks, timeout_ms=known.timeout_ms)
            assert said == decode(ProduceRequest, header.api_version, frame, body_at + 4)
        position += len(sent[number])


@pytest.mark.parametrize("version", range(5, 14))
def test_requests_that_differ_in_id_and_records_are_one_run(version: int) -> None:
    sent = [framed(requests(records=records), version, 7 + n) for n, records in enumerate(BATCHES)]
    found = taken(learned(sent[0]), b"".join(sent))
    assert found is not None
    assert (found.correlation_ids, found.end) == ([7, 8, 9, 10], sum(map(len, sent)))
    stream = b"".join(sent)
    assert [stream[begin:end] for begin, end in found.spans] == BATCHES


@pytest.mark.parametrize("version", [7, 9, 13])
def test_a_run_ends_where_requests_stop_being_alike(version: int) -> None:
    plain = framed(requests(), version, 1)
    heads = learned(plain)
    others = {
        "partition": framed(requests(partition=1), version, 1),
        "acks": framed(requests(acks=0), version, 1),
        "client": framed(requests(), version, 1, "d"),
        "transaction": framed(requests(records=bytes(TRANSACTIONAL)), version, 1),
        "bytes behind": struct.pack(">i", len(plain) - 4 + 1) + plain[4:] + b"\0",
        "not whole": plain[:-1],
        "no length": plain[:3],
    }
    for name, other in others.items():
        found = taken(heads, plain + plain + other + plain)
        if name.startswith("no"):
            found = taken(heads, plain + plain + other)
        assert found is not None, name
        assert (len(found.spans), found.end) == (2, 2 * len(plain)), name
    at_most = taken(heads, plain * 5, most=3)
    assert at_most is not None
    assert len(at_most.spans) == 3


def test_what_is_not_remembered() -> None:
    for version in (3, 4):
        frame = framed(requests(), version, 1)
        assert taken(learned(frame), frame) is None
    for request in (requests(transactional_id="x"), requests(records=None), requests(topic="t" * 600)):
        frame = framed(request, 9, 1)
        assert taken(learned(frame), frame) is None
    many = [framed(requests(partition=n), 9, 1) for n in range(HEADS_MAX + 1)]
    heads = learned(*many)
    assert taken(heads, many[HEADS_MAX - 1]) is not None
    assert taken(heads, many[HEADS_MAX]) is None


@dataclasses.dataclass
class Store:
    """Stands where storage is, and what the services of a gateway are asked for on the way."""

    outcome: AppendedPartition
    metrics: GatewayMetrics = dataclasses.field(default_factory=GatewayMetrics)

    @property
    def storage(self) -> Store:
        return self

    @property
    def records(self) -> Store:
        return self

    def append(self, run: AppendRun, done: Any) -> None:
        self.run = run
        done(AppendResponse([dataclasses.replace(self.outcome, base_offset=10 * n) for n in range(len(run.batches))]))


@pytest.mark.parametrize("version", range(5, 14))
def test_answers_are_those_that_encoding_gives(version: int) -> None:
    sent = [framed(requests(records=records), version, 40 + n) for n, records in enumerate(BATCHES)]
    stream = b"".join(sent)
    found = taken(learned(sent[0]), stream)
    assert found is not None
    store, client = Store(AppendedPartition(0, log_append_time_ms=123, log_start_offset=4)), NoClient()
    batches = [memoryview(stream)[begin:end] for begin, end in found.spans]
    ProduceRun(client, store, found.known, found.correlation_ids, batches, len(stream)).start()
    answer, position = b"".join(client.answers), 0
    for number in range(len(sent)):
        (size,) = struct.unpack_from(">i", answer, position)
        frame = answer[position + 4 : position + 4 + size]
        correlation_id, body_at = decode_response_header(0, version, frame)
        response = decode(ProduceResponse, version, frame, body_at)
        (partition,) = response.responses[0].partition_responses
        assert correlation_id == 40 + number
        assert (partition.base_offset, partition.log_append_time_ms, partition.log_start_offset) == (
            10 * number,
            123,
            4,
        )
        assert frame[body_at:] == encode(response, version)
        position += 4 + size
    assert position == len(answer)
    assert (store.run.topic, store.run.acks, store.run.version) == ("t" if version < 13 else "", 1, version)
    counts = store.metrics.topics["t" if version < 13 else "_other"]
    assert (counts.produces, counts.records_in, counts.bytes_in) == (4, 12, sum(map(len, BATCHES)))


def test_a_call_of_a_run_is_counted_as_its_requests() -> None:
    frame = framed(requests(), 9, 1)
    call, _ = DISPATCHER.open(NoClient(), frame[4:])
    assert isinstance(call, Call)
    assert call.count == 1
    found = taken(learned(frame), frame * 3)
    assert found is not None
    assert (
        ProduceRun(NoClient(), Store(AppendedPartition(0)), found.known, [1, 2, 3], [memoryview(b"")] * 3, 0).count == 3
    )
