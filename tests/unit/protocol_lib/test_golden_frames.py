"""Requests of real clients (Java 4.3, librdkafka, kcat, aiokafka, kafka-python) and Apache Kafka 4.3's responses.

One line of golden_frames.jsonl per API and version: both frames in hex, and what they say.
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
from protocol_lib.records.batch import crc_matches, read_batches
from protocol_lib.records.record import Record, read_records

FRAMES = [json.loads(line) for line in Path(__file__).with_name("golden_frames.jsonl").read_text().splitlines()]
APIS_BY_NAME = {api.name: api for api in APIS.values()}


def readable(value, version, flexible):
    """A message as the table spells it: the fields its version has."""
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


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame['client']}-{frame['api']}-{frame['version']}")
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
