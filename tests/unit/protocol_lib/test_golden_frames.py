"""Requests of real clients and Kafka's responses.

One line per API and version, with both frames in hex and their content. golden_frames.jsonl has today's clients (Java
4.3, librdkafka, kcat, aiokafka, kafka-python) and Apache Kafka 4.3; old_frames.jsonl has kafka-python 2.0.2 and
aiokafka 0.8.1 as they speak to brokers of 0.8 to 0.10, and Apache Kafka 3.9.1, which is the last that answers.
"""

import json
from pathlib import Path

import pytest
from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.headers import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from protocol_lib.layout import layout
from protocol_lib.records.batch import crc_matches, read_batch_header, read_batches
from protocol_lib.records.compression import Codec
from protocol_lib.records.conversion import down_convert, up_convert
from protocol_lib.records.legacy import read_message_set, read_messages
from protocol_lib.records.record import Record, read_records


def frames(name):
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text().splitlines()]


FRAMES, OLD_FRAMES = frames("golden_frames.jsonl"), frames("old_frames.jsonl")
APIS_BY_NAME = {api.name: api for api in APIS.values()}


def readable(value, version, flexible):
    """Return a message as the table spells it: the fields its version has."""
    if isinstance(value, bytes | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, tuple):
        return [readable(item, version, flexible) for item in value]
    if hasattr(value, "unknown_tagged_fields"):
        assert value.unknown_tagged_fields == ()
        inside = layout(type(value), version, flexible)
        return {
            place.name: readable(getattr(value, place.name), version, flexible)
            for place in inside.fields + inside.tagged
        }
    return value


def test_there_are_frames_of_every_client_and_of_what_clients_do_most():
    assert sorted({APIS_BY_NAME[frame["api"]].key for frame in FRAMES}) == [
        *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 22, 32)
    ]
    assert {frame["client"] for frame in FRAMES} == {"java", "librdkafka", "kcat", "aiokafka", "kafka-python"}


def test_there_are_frames_of_every_version_that_only_old_clients_speak():
    assert sorted({(frame["api"], frame["version"]) for frame in OLD_FRAMES}) == [
        *(("Fetch", version) for version in range(4)),
        ("ListOffsets", 0),
        *(("OffsetCommit", version) for version in range(2)),
        *(("Produce", version) for version in range(3)),
    ]


@pytest.mark.parametrize(
    "frame",
    FRAMES + OLD_FRAMES,
    ids=lambda frame: f"{frame['client']}-{frame['api']}-{frame['version']}-{frame.get('codec', '')}",
)
def test_frame(frame):
    api, version, correlation_id = APIS_BY_NAME[frame["api"]], frame["version"], frame["correlation_id"]
    sent, answered = bytes.fromhex(frame["request"]), bytes.fromhex(frame["response"])

    header, position = decode_request_header(sent)
    assert header == RequestHeader(api.key, version, correlation_id, frame["client_id"])
    request = decode_request(header, sent, position)
    assert readable(request, version, api.is_flexible(version)) == frame["request_body"]
    assert encode_request_header(header) + encode(request, version) == sent

    assert decode_response_header(api.key, version, answered)[0] == correlation_id
    response = decode(api.response, version, answered, decode_response_header(api.key, version, answered)[1])
    assert readable(response, version, api.is_flexible(version)) == frame["response_body"]
    assert encode_response_header(api.key, version, correlation_id) + encode(response, version) == answered


@pytest.mark.parametrize(
    "frame", [frame for frame in FRAMES if frame["api"] == "Fetch"], ids=lambda frame: frame["client"]
)
def test_the_records_of_a_fetch(frame):
    partition = frame["response_body"]["responses"][0]["partitions"][0]
    batches = list(read_batches(bytes.fromhex(partition["records"][2:])))
    assert [crc_matches(batch) for _, batch in batches] == [True]
    ((header, batch),) = batches
    headers = (("h", b"x"),) if frame["client"] in ("kcat", "librdkafka", "kafka-python") else ()
    assert list(read_records(batch)) == [Record(0, header.base_timestamp, b"k", b"v", headers)]


@pytest.mark.parametrize(
    "frame",
    [frame for frame in OLD_FRAMES if frame["api"] in ("Produce", "Fetch")],
    ids=lambda frame: f"{frame['client']}-{frame['api']}-{frame['version']}-{frame['codec']}",
)
def test_the_records_of_old_clients(frame):
    if frame["api"] == "Produce":
        records = frame["request_body"]["topic_data"][0]["partition_data"][0]["records"]
    else:
        records = frame["response_body"]["responses"][0]["partitions"][0]["records"]
    message_set, magic = bytes.fromhex(records[2:]), 1 if frame["version"] >= 2 else 0
    # Kafka fills the bytes that a conversion saved with part of a message
    messages = list(read_messages(message_set, partial=frame["api"] == "Fetch"))
    codec = Codec[frame["codec"].upper()]
    assert {(message.magic, message.codec) for message in messages} == {(magic, codec)}
    expected = [
        Record(index, 1_700_000_000_000 + index if magic else -1, b"k", b"value value value value")
        for index in range(2)
    ]
    assert list(read_message_set(message_set, partial=True)) == expected
    batch = up_convert(message_set, partial=True)
    assert read_batch_header(batch).codec == codec
    assert list(read_records(batch)) == expected
    again = down_convert(batch, magic)
    assert list(read_message_set(again)) == expected
    if codec is Codec.NONE:
        assert message_set.startswith(again)
