"""Apache Kafka's own message classes and ours read each other's bytes and write the same.

The table at the end says which libraries every version of every API was compared with.
"""

import random
import struct
from collections import defaultdict

import pytest
from oracles.every_message import VERSIONS, every_message
from oracles.kafka_java import KAFKAS, ask, echo, header_versions, make
from oracles.libraries import LIBRARIES, WRONG_IN_AIOKAFKA, known_to
from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode, encode
from protocol_lib.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from protocol_lib.schema import message_info
from support.maven import need_java

SEEDS = range(6)
#: Fields that only a newer peer knows, kept and written again.
UNKNOWN_TAGS = ((), ((5000, b""), (1_000_000, b"future")))


@pytest.fixture(scope="session")
def round_trips(fill):
    """The questions by message and version, with the answers of each Kafka that has the message."""
    need_java(compiler=True)
    questions = []
    for cls, version in VERSIONS:
        for seed in SEEDS:
            message = fill(cls, version, random.Random(seed), plain=True)
            message.unknown_tagged_fields = UNKNOWN_TAGS[seed % 2]
            questions.append(echo(cls.__name__, version, encode(message, version)))
            questions.append(make(cls.__name__, version, seed))
        questions.append(header_versions(cls.__name__, message_info(cls).api_key, version))
    found = defaultdict(list)
    for question, answered in zip(questions, ask(questions), strict=True):
        found[question.name, question.version].append((question, answered))
    return found


@every_message
def test_kafka_reads_what_we_write_and_writes_it_again(round_trips, cls, version):
    for question, answers in round_trips[cls.__name__, version]:
        if question.kind == b"E":
            assert answers
            for answer in answers:
                assert answer.bytes.hex() == question.value.hex(), f"Kafka {answer.kafka}"


@every_message
def test_we_read_what_kafka_writes_and_write_it_again(round_trips, cls, version):
    for question, answers in round_trips[cls.__name__, version]:
        if question.kind == b"M":
            assert answers
            for answer in answers:
                assert encode(decode(cls, version, answer.bytes), version).hex() == answer.bytes.hex()


def test_headers_are_those_that_kafka_has_for_each_api(round_trips):
    headers = []
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            (answers,) = [got for asked, got in round_trips[api.request.__name__, version] if asked.kind == b"H"]
            request_version, response_version = struct.unpack(">hh", answers[0].bytes)
            request = encode_request_header(RequestHeader(api.key, version, -5, "größer"))
            response = encode_response_header(api.key, version, 77)
            assert decode_request_header(request) == (RequestHeader(api.key, version, -5, "größer"), len(request))
            assert decode_response_header(api.key, version, response) == (77, len(response))
            assert (api.key, response_version) != (ApiKey.API_VERSIONS, 1)
            headers += [
                echo("RequestHeader", request_version, request),
                echo("ResponseHeader", response_version, response),
            ]
    headers.append(echo("RequestHeader", 0, encode_request_header(RequestHeader(7, 0, 3, None))))
    assert {(header.name, header.version) for header in headers} == {
        *(("RequestHeader", version) for version in (0, 1, 2)),
        *(("ResponseHeader", version) for version in (0, 1)),
    }
    for header, answered in zip(headers, ask(headers), strict=True):
        assert [answer.bytes for answer in answered] == [header.value] * len(answered)
        assert answered


def spelled(versions):
    """Write [0, 1, 2, 5] as 0-2,5."""
    runs = []
    for version in versions:
        if runs and version == runs[-1][1] + 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or "-"


def test_every_version_of_every_api_was_compared(round_trips, capsys):
    columns = (*(f"kafka-clients {kafka}" for kafka in KAFKAS), *LIBRARIES)
    rows, pairs, compared = [], 0, 0
    for api in APIS.values():
        versions = range(api.min_version, api.max_version + 1)
        by_column = defaultdict(list)
        for version in versions:
            both = [round_trips[cls.__name__, version] for cls in (api.request, api.response)]
            known = [
                *(k for k in KAFKAS if all(k in [a.kafka for a in answers] for each in both for _, answers in each)),
                *(n for n in LIBRARIES if all(known_to(n, cls, version) for cls in (api.request, api.response))),
            ]
            pairs += 1
            compared += any(kafka in known for kafka in KAFKAS)
            for name, column in zip((*KAFKAS, *LIBRARIES), columns, strict=True):
                if name in known:
                    by_column[column].append(version)
        rows.append([api.name, spelled(versions), *(spelled(by_column[column]) for column in columns)])
    with capsys.disabled():
        print()
        for row in [["API", "declared", *columns], *rows]:
            print("  {:38} {:9}{:21}{:21}{:21}{:13}{:7}{}".format(*row))
        for (name, version), reason in WRONG_IN_AIOKAFKA.items():
            print(f"  {name} {version} is not compared with aiokafka: {reason}")
        print(f"  {compared} of {pairs} (API, version) pairs are byte for byte Kafka's, requests and responses")
    assert compared == pairs == 300
