"""Templates over every message and version: they recognise and fill the bytes that the codec reads and writes."""

import dataclasses
import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.every_message import MESSAGES, VERSIONS, every_message
from oracles.plain_writer import PlainWriter
from oracles.strategies import messages
from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.errors import DecodeError
from protocol_lib.headers import RequestHeader, decode_request_header, encode_request_header, encode_response_header
from protocol_lib.layout import Array, Nested, carries_references, layout, message_layout
from protocol_lib.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol_lib.schema import Fixed, message_info
from protocol_lib.template import (
    AnswerTemplate,
    RecordsAnswerTemplate,
    RecordsRequestTemplate,
    RequestTemplate,
    read_correlation_id,
)

REQUESTS = {api.request for api in APIS.values()}
PRODUCED = tuple(
    f"responses.partition_responses.{name}"
    for name in ("index", "base_offset", "log_append_time_ms", "log_start_offset")
)
FETCHED = tuple(f"responses.partitions.{name}" for name in ("high_watermark", "last_stable_offset", "log_start_offset"))


def scalar_paths(inside):
    """List the paths of all scalars outside of tagged fields."""
    for place in inside.fields:
        kind = place.kind.element if isinstance(place.kind, Array) else place.kind
        if isinstance(place.kind, Fixed):
            yield place.name
        elif isinstance(kind, Nested):
            for path in scalar_paths(layout(kind.cls, inside.version, inside.flexible)):
                yield f"{place.name}.{path}"


def change(value, inside, paths, draw):
    """Return a copy of a struct with random values of the scalars at these paths, and these values in wire order."""
    changed, values = {}, []
    for place in inside.fields:
        inner = [path.partition(".")[2] for path in paths if path.partition(".")[0] == place.name]
        held = getattr(value, place.name)
        if not inner:
            continue
        if isinstance(place.kind, Fixed):
            packed = draw.randbytes(place.kind.size) if place.kind.format not in "?d" else None
            (new,) = struct.unpack(f">{place.kind.format}", packed) if packed else (draw.random(),)
            new = new > 0.5 if place.kind.format == "?" else new
            changed[place.name] = new
            values.append(new)
        elif held is not None:
            kind = place.kind.element if isinstance(place.kind, Array) else place.kind
            inside_it = layout(kind.cls, inside.version, inside.flexible)
            pairs = [change(each, inside_it, inner, draw) for each in (held if isinstance(held, tuple) else (held,))]
            copies = tuple(copy for copy, _ in pairs)
            changed[place.name] = copies if isinstance(held, tuple) else copies[0]
            values += [each for _, several in pairs for each in several]
    return dataclasses.replace(value, **changed), values


def framed(request, version, correlation_id=7, client_id="c"):
    header = RequestHeader(message_info(type(request)).api_key, version, correlation_id, client_id)
    return encode_request_header(header) + encode(request, version)


def answered(response, version, correlation_id):
    header = encode_response_header(message_info(type(response)).api_key, version, correlation_id)
    body = header + encode(response, version)
    return struct.pack(">i", len(body)) + body


class MarkingWriter(PlainWriter):
    """A writer that notes the places of the scalars at some paths."""

    def __init__(self, paths):
        super().__init__()
        self.paths = paths
        self.names = []
        self.opened = set()

    def place(self, value, place, inside):
        self.names.append(place.name)
        super().place(value, place, inside)
        self.names.pop()

    def value(self, value, kind, place, inside):
        start = len(self.data)
        super().value(value, kind, place, inside)
        if isinstance(kind, Fixed) and ".".join(self.names) in self.paths:
            self.opened.update(range(start, len(self.data)))


def constant_positions(frame, request, version, paths):
    """Return the positions of the bytes that stay the same."""
    writer = MarkingWriter(paths)
    writer.message(request, version)
    body_at = len(frame) - len(writer.data)
    return [at for at in range(len(frame)) if at not in range(4, 8) and at - body_at not in writer.opened]


def checks_template(request, version, paths, draw):
    inside = message_layout(type(request), version)
    frame = framed(request, version)
    template = RequestTemplate.learn(decode(type(request), version, encode(request, version)), version, frame, paths)
    assert template is not None
    assert template.size == len(frame)
    other, values = change(request, inside, paths, draw)
    number = draw.randrange(-(2**31), 2**31)
    store = bytearray(b"earlier" + framed(other, version, number) + b"later")
    begin, end = 7, len(store) - 5
    for each in (store, bytes(store), memoryview(store)):
        assert template.matches(each, begin, end)
        assert template.values(each, begin) == tuple(values)
        assert read_correlation_id(each, begin) == number
    assert not template.matches(store, begin, end + 1)
    assert not template.matches(store, begin, end - 1)
    assert not template.matches(store, begin + 1, end + 1)
    constant = constant_positions(frame, request, version, paths)
    for at in constant if len(constant) < 400 else draw.sample(constant, 400):
        store[begin + at] ^= 1 << draw.randrange(8)
        assert not template.matches(store, begin, end), at
        store[begin:end] = framed(other, version, number)


@every_message
def test_a_request_is_known_by_all_bytes_but_its_open_fields(cls, version, fill):
    if cls not in REQUESTS:
        return
    inside = message_layout(cls, version)
    draw = random.Random(version)
    paths = tuple(scalar_paths(inside))
    for opened in ((), *((path,) for path in paths), paths):
        checks_template(fill(cls, version, draw, small=True), version, opened, draw)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_a_template_comes_of_any_request_without_tags_from_the_future(data):
    cls, version = data.draw(st.sampled_from([each for each in VERSIONS if each[0] in REQUESTS]))
    request = data.draw(messages(cls, version))
    opened = tuple(scalar_paths(message_layout(cls, version)))
    if "unknown_tagged_fields=((" in tagged(request):
        assert RequestTemplate.learn(request, version, framed(request, version), opened) is None
    else:
        checks_template(request, version, opened, random.Random(data.draw(st.integers())))


def tagged(value):
    """Return the unknown tags of all structs in a value, as text."""
    if dataclasses.is_dataclass(value):
        inner = "".join(tagged(getattr(value, name)) for name in value.__slots__)
        return f"unknown_tagged_fields={value.unknown_tagged_fields!r} {inner}"
    return "".join(map(tagged, value)) if isinstance(value, tuple) else ""


@every_message
def test_a_filled_answer_is_the_encoded_one(cls, version, fill):
    if cls in REQUESTS:
        return
    inside = message_layout(cls, version)
    every = tuple(scalar_paths(inside))
    throttle = ("throttle_time_ms",) if "throttle_time_ms" in every else ()
    for opened in ((), throttle, *((path,) for path in every), every):
        draw = random.Random(f"{version} {opened}")
        response = fill(cls, version, draw, small=True)
        template = AnswerTemplate(response, version, opened)
        for _ in range(2):
            other, values = change(response, inside, opened, draw)
            number = draw.randrange(-(2**31), 2**31)
            assert template.fill(number, *values) == answered(other, version, number)


def test_every_throttle_time_is_a_top_level_int32():
    responses = [cls for cls in MESSAGES if cls not in REQUESTS]
    with_throttle = [cls for cls in responses if "throttle_time_ms" in cls.__slots__]
    assert len(with_throttle) >= 60
    assert all(cls.__annotations__["throttle_time_ms"].__metadata__[0] == Fixed("i", 4) for cls in with_throttle)


# -- fields that a version does not send -------------------------------------------------------------------------------


def test_an_answer_takes_the_same_values_in_every_version():
    for version in range(5):
        fill = AnswerTemplate(HeartbeatResponse(error_code=27), version, ("throttle_time_ms",)).fill
        assert fill(9, 300) == answered(HeartbeatResponse(throttle_time_ms=300, error_code=27), version, 9)
        with pytest.raises(TypeError):
            fill(9)


def produce_response(version, index, base, time_ms, start, throttle):
    partition = PartitionProduceResponse(
        index=index, error_code=0, base_offset=base, log_append_time_ms=time_ms, log_start_offset=start
    )
    topic = TopicProduceResponse(name="orders", topic_id=bytes(range(16)), partition_responses=(partition,))
    return ProduceResponse(responses=(topic,), throttle_time_ms=throttle)


@pytest.mark.parametrize("version", range(14))
def test_a_produce_answer_is_one_pack_of_five_values(version):
    values = (3, 2**40, -1, 17, 250)
    fill = AnswerTemplate(produce_response(version, 0, 0, 0, 0, 0), version, (*PRODUCED, "throttle_time_ms")).fill
    assert fill(-5, *values) == answered(produce_response(version, *values), version, -5)
    with pytest.raises(struct.error):
        fill(1, 2**31, *values[1:])


# -- records -----------------------------------------------------------------------------------------------------------


def produce_request(records, index=3, topics=1):
    data = (PartitionProduceData(index=index, records=records),)
    topic = TopicProduceData(name="orders", topic_id=bytes(range(16)), partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=(topic,) * topics)


def learn_produce(request, version, frame=None):
    frame = framed(request, version) if frame is None else frame
    return RecordsRequestTemplate.learn(request, version, frame, ("topic_data.partition_data.index",))


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("size", [61, 126, 127, 16_382, 16_383, 300_000])
def test_records_of_any_length_are_found(version, size):
    template = learn_produce(produce_request(b"x" * 70), version)
    frame = framed(produce_request(b"y" * size, index=2**31 - 1), version, 11)
    store = b"earlier" + frame + b"later"
    begin, end = 7, 7 + len(frame)
    assert template.matches(store, begin, end)
    assert template.values(store, begin) == (2**31 - 1,)
    assert store.startswith(template.head, begin + 8)
    assert struct.unpack_from(">i", store, begin) == (template.start,) == (version,)
    first, last = template.find_records(store, begin + template.records_at, end)
    assert store[first:last] == b"y" * size
    assert end - last == (3 if version >= 9 else 0)
    assert not template.matches(store, begin, end + 1)
    assert not template.matches(store, begin, end - 1)
    assert template.find_records(store, begin + template.records_at, end + 1) is None


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_byte_of_a_request_with_records_counts_but_index_records_and_correlation_id(version):
    template = learn_produce(produce_request(b"x" * 61), version)
    frame = bytearray(framed(produce_request(b"x" * 61), version))
    length_size = 1 if version >= 9 else 4
    index_at = template.records_at - 4
    opened = {*range(4, 8), *range(index_at, index_at + 4)}
    opened |= set(range(template.records_at + length_size, template.records_at + length_size + 61))
    assert index_at - 8 == len(template.head)
    for at in range(len(frame)):
        frame[at] ^= 0x11
        assert template.matches(frame, 0, len(frame)) == (at in opened), at
        frame[at] ^= 0x11


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_shorter_than_a_batch_header_or_none_are_not_found(version):
    for records in (None, b"", b"x" * 60):
        assert learn_produce(produce_request(records), version) is None
        frame = framed(produce_request(records), version)
        assert not learn_produce(produce_request(b"x" * 61), version).matches(frame, 0, len(frame))


def test_records_with_a_length_written_in_another_way_are_not_learned():
    request = produce_request(b"x" * 61)
    frame = framed(request, 9)
    at = learn_produce(request, 9, frame).records_at
    longer = frame[:at] + b"\xbe\x00" + frame[at + 1 :]
    assert decode(ProduceRequest, 9, longer[12:]).topic_data[0].partition_data[0].records == b"x" * 61
    assert learn_produce(request, 9, longer) is None


def test_no_template_where_records_are_not_once_or_not_last():
    for version in (3, 9, 13):
        assert learn_produce(produce_request(b"x" * 70, topics=2), version) is None
        assert learn_produce(produce_request(b"x" * 70, topics=0), version) is None
    first, last = produce_request(b"x" * 70).topic_data[0], produce_request(None).topic_data[0]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=(first, last))
    assert learn_produce(request, 9) is None
    with pytest.raises(ValueError, match="after the records"):
        RecordsAnswerTemplate(fetch_response(b"x", preferred=1, more=(None,)), 11, ("responses.partitions.error_code",))


def fetch_response(records, throttle=0, offsets=(0, 0, 0), preferred=-1, more=()):
    partitions = tuple(
        PartitionData(
            partition_index=4,
            error_code=0,
            high_watermark=offsets[0],
            last_stable_offset=offsets[1],
            log_start_offset=offsets[2],
            aborted_transactions=(),
            preferred_read_replica=preferred,
            records=each,
        )
        for each in (records, *more)
    )
    topic = FetchableTopicResponse(topic="orders", topic_id=bytes(range(16)), partitions=partitions)
    return FetchResponse(throttle_time_ms=throttle, session_id=77, responses=(topic,))


@pytest.mark.parametrize("version", range(19))
@pytest.mark.parametrize("size", [1, 126, 127, 16_383, 70_000])
def test_a_fetch_answer_is_its_head_the_records_and_what_follows(version, size):
    template = RecordsAnswerTemplate(fetch_response(b"\0"), version, ("throttle_time_ms", *FETCHED))
    records = b"r" * size
    answer = template.head(-3, size, 40, 2**50, -1, 8) + records + template.after
    sent = decode(FetchResponse, version, encode(fetch_response(records, 40, (2**50, -1, 8)), version))
    assert answer == answered(sent, version, -3)


@every_message
def test_records_are_open_in_every_answer_that_holds_them_once(cls, version, fill):
    inside = message_layout(cls, version)
    if cls in REQUESTS or not carries_references(inside) or "throttle_time_ms" not in scalar_paths(inside):
        return
    found = 0
    for seed in range(60):
        response = fill(cls, version, random.Random(seed), small=True)
        try:
            template = RecordsAnswerTemplate(response, version, ("throttle_time_ms",))
        except ValueError:
            continue
        found += 1
        (records,) = filter(None, records_in(response))
        answer = template.head(5, len(records), 99) + records + template.after
        assert answer == answered(dataclasses.replace(response, throttle_time_ms=99), version, 5)
    assert found


def records_in(response):
    for topic in response.responses:
        for partition in topic.partitions:
            yield partition.records


# -- frames that are not learned ---------------------------------------------------------------------------------------


def commit(partitions=2, metadata=""):
    rows = tuple(
        OffsetCommitRequestPartition(partition_index=n, committed_offset=n * 1000, committed_metadata=metadata)
        for n in range(partitions)
    )
    return OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="orders", partitions=rows),))


OFFSETS = ("topics.partitions.committed_offset",)


def test_a_frame_written_in_another_way_is_not_learned():
    request, frame = commit(), framed(commit(), 8)
    assert RequestTemplate.learn(request, 8, frame, OFFSETS) is not None
    assert RequestTemplate.learn(request, 8, frame + b"\0", OFFSETS) is None
    assert RequestTemplate.learn(request, 8, frame[:-1], OFFSETS) is None
    assert RequestTemplate.learn(request, 7, frame, OFFSETS) is None
    assert RequestTemplate.learn(commit(metadata="x"), 8, frame, OFFSETS) is None
    long_length = frame.replace(b"\x02g", b"\x82\x00g", 1)
    assert decode(OffsetCommitRequest, 8, long_length[12:]) == request
    assert RequestTemplate.learn(request, 8, long_length, OFFSETS) is None
    tag_in_header = frame[:11] + b"\1\0\0" + frame[12:]
    assert RequestTemplate.learn(request, 8, tag_in_header, OFFSETS) is None
    other_api = struct.pack(">h", 9) + frame[2:]
    assert RequestTemplate.learn(request, 8, other_api, OFFSETS) is None
    request.unknown_tagged_fields = ((5, b"new"),)
    assert RequestTemplate.learn(request, 8, framed(request, 8), OFFSETS) is None


@given(st.binary(max_size=80) | st.binary(max_size=40).map(lambda more: framed(commit(), 8)[:20] + more))
def test_hostile_frames_give_no_template(frame):
    for buffer in (frame, memoryview(frame)):
        assert RequestTemplate.learn(commit(), 8, buffer, OFFSETS) is None
        assert learn_produce(produce_request(b"x" * 61), 9, buffer) is None


@every_message
def test_a_request_that_was_tampered_with_is_decoded_and_learned_or_not_but_raises_nothing_else(cls, version, fill):
    if cls not in REQUESTS:
        return
    draw = random.Random(version)
    paths = tuple(scalar_paths(message_layout(cls, version)))
    frame = bytearray(framed(fill(cls, version, draw, small=True), version))
    for _ in range(60):
        tampered = frame.copy()
        tampered[draw.randrange(len(frame))] = draw.choice((0, 1, 2, 127, 128, 255))
        request = decoded(cls, version, tampered)
        if request is None:
            continue
        template = RequestTemplate.learn(request, version, bytes(tampered), paths)
        assert template is None or template.matches(tampered, 0, len(tampered))
        RecordsRequestTemplate.learn(request, version, bytes(tampered))


def decoded(cls, version, frame):
    try:
        return decode(cls, version, frame, decode_request_header(frame)[1])
    except DecodeError:
        return None


def test_a_heartbeat_has_nothing_open_but_its_correlation_id():
    request = HeartbeatRequest(group_id="g", generation_id=4, member_id="m")
    template = RequestTemplate.learn(request, 3, framed(request, 3))
    assert template.matches(framed(request, 3, -1), 0, template.size)
    assert template.values(framed(request, 3), 0) == ()
    request.generation_id = 5
    assert not template.matches(framed(request, 3), 0, template.size)


def test_names_that_look_like_values_are_constant():
    marker = struct.pack(">q", 1000).decode("latin-1")
    request = commit(metadata=marker * 2)
    template = RequestTemplate.learn(request, 8, framed(request, 8), OFFSETS)
    assert template.values(framed(request, 8), 0) == (0, 1000)


@pytest.mark.parametrize(
    "path", ["nothing", "topics", "topics.partitions", "topics.name", "group_id", "topics.partitions.nothing", ""]
)
def test_a_path_that_is_no_scalar_is_a_bug_of_the_caller(path):
    with pytest.raises(TypeError, match="OffsetCommit"):
        RequestTemplate.learn(commit(), 8, framed(commit(), 8), (path,))


def test_a_tagged_field_cannot_be_open():
    with pytest.raises(TypeError, match="node_endpoints"):
        AnswerTemplate(produce_response(10, 0, 0, 0, 0, 0), 10, ("node_endpoints.node_id",))
