"""Headers: the version that goes with each API version, and the errors of broken ones."""

import pytest
from protocol_lib.api import APIS, ApiKey, find_api
from protocol_lib.errors import DecodeError, UnknownApiKey, UnsupportedVersion
from protocol_lib.headers import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from protocol_lib.messages.api_versions import ApiVersionsRequest

CASES = [
    (RequestHeader(3, 8, 7, "abc"), "0003 0008 00000007 0003 616263"),
    (RequestHeader(3, 9, 7, "abc"), "0003 0009 00000007 0003 616263 00"),
    (RequestHeader(3, 9, 7, None), "0003 0009 00000007 ffff 00"),
    (RequestHeader(18, 3, -1, ""), "0012 0003 ffffffff 0000 00"),
    (RequestHeader(7, 0, 5, None), "0007 0000 00000005"),
    (RequestHeader(7, 1, 5, "größe"), "0007 0001 00000005 0007 6772c3b6c39f65"),
    (RequestHeader(999, 40, 5, "x"), "03e7 0028 00000005 0001 78"),
    (RequestHeader(18, 99, 5, "x"), "0012 0063 00000005 0001 78 00"),
]


@pytest.mark.parametrize(("header", "frame"), CASES)
def test_request_header(header, frame):
    frame = bytes.fromhex(frame)
    assert encode_request_header(header) == frame
    assert decode_request_header(frame + b"body") == (header, len(frame))
    assert decode_request_header(memoryview(frame + b"body")) == (header, len(frame))
    for end in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_request_header(frame[:end])


@pytest.mark.parametrize(
    "frame",
    [
        "0003 0009 00000007 fffe 00",
        "0003 0009 00000007 7fff 00",
        "0003 0009 00000007 ffff 7f",
        "0003 0009 00000007 ffff 01 05 7f",
        "0003 0009 00000007 ffff ffffffffff",
    ],
)
def test_a_broken_request_header_is_a_decode_error(frame):
    with pytest.raises(DecodeError, match=r"^request header: "):
        decode_request_header(bytes.fromhex(frame))


def test_a_client_id_that_is_not_utf_8_is_read_as_kafka_reads_it():
    frame = bytes.fromhex("0003 0008 00000007 0003 61ff62")
    assert decode_request_header(frame) == (RequestHeader(3, 8, 7, "a\ufffdb"), len(frame))


def test_tagged_fields_of_a_header_are_skipped():
    frame = bytes.fromhex("0003 0009 00000007 ffff 02 00 01 aa 05 00") + b"body"
    assert decode_request_header(frame) == (RequestHeader(3, 9, 7, None), len(frame) - 4)
    assert decode_response_header(3, 9, bytes.fromhex("00000007 01 00 01 aa")) == (7, 8)
    with pytest.raises(DecodeError, match="longer than the frame"):
        decode_response_header(3, 9, bytes.fromhex("00000007 01 00 02 aa"))


def test_the_body_of_what_is_not_declared_is_refused_by_name():
    for key, version, fault in ((999, 0, UnknownApiKey), (18, 99, UnsupportedVersion), (3, -1, UnsupportedVersion)):
        frame = encode_request_header(RequestHeader(key, version, 1, None))
        header, position = decode_request_header(frame)
        with pytest.raises(fault):
            decode_request(header, frame, position)


def test_the_body_follows_the_header():
    frame = bytes.fromhex("0012 0003 00000001 0001 78 00 02 61 02 62 00")
    header, position = decode_request_header(frame)
    assert decode_request(header, frame, position) == ApiVersionsRequest(
        client_software_name="a", client_software_version="b"
    )


def test_response_headers_are_flexible_when_the_body_is_but_never_for_api_versions():
    for api in APIS.values():
        for version in range(api.max_version + 1):
            flexible = version >= api.flexible_from and api.key != ApiKey.API_VERSIONS
            expected = bytes.fromhex("01020304") + (b"\0" if flexible else b"")
            assert encode_response_header(api.key, version, 0x01020304) == expected
            assert decode_response_header(api.key, version, expected + b"body") == (0x01020304, len(expected))
            for end in range(len(expected)):
                with pytest.raises(DecodeError):
                    decode_response_header(api.key, version, expected[:end])


#: Name, key, versions, flexible versions: Apache Kafka 4.4's, and below them those that Kafka 4 dropped.
REGISTRY = """
    Produce 0 0-13 9+
    Fetch 1 0-18 12+
    ListOffsets 2 0-11 6+
    Metadata 3 0-13 9+
    OffsetCommit 8 0-10 8+
    OffsetFetch 9 0-10 6+
    FindCoordinator 10 0-6 3+
    JoinGroup 11 0-9 6+
    Heartbeat 12 0-4 4+
    LeaveGroup 13 0-5 4+
    SyncGroup 14 0-5 4+
    DescribeGroups 15 0-6 5+
    ListGroups 16 0-5 3+
    SaslHandshake 17 0-1 none
    ApiVersions 18 0-5 3+
    CreateTopics 19 0-7 5+
    DeleteTopics 20 0-6 4+
    DeleteRecords 21 0-2 2+
    InitProducerId 22 0-5 2+
    OffsetForLeaderEpoch 23 0-4 4+
    AddPartitionsToTxn 24 0-5 3+
    AddOffsetsToTxn 25 0-4 3+
    EndTxn 26 0-5 3+
    WriteTxnMarkers 27 0-2 1+
    TxnOffsetCommit 28 0-6 3+
    DescribeAcls 29 0-3 2+
    CreateAcls 30 0-3 2+
    DeleteAcls 31 0-3 2+
    DescribeConfigs 32 0-4 4+
    AlterConfigs 33 0-2 2+
    AlterReplicaLogDirs 34 0-2 2+
    DescribeLogDirs 35 0-5 2+
    SaslAuthenticate 36 0-2 2+
    CreatePartitions 37 0-3 2+
    CreateDelegationToken 38 0-3 2+
    RenewDelegationToken 39 0-2 2+
    ExpireDelegationToken 40 0-2 2+
    DescribeDelegationToken 41 0-3 2+
    DeleteGroups 42 0-3 2+
    ElectLeaders 43 0-2 2+
    IncrementalAlterConfigs 44 0-1 1+
    AlterPartitionReassignments 45 0-1 0+
    ListPartitionReassignments 46 0-0 0+
    OffsetDelete 47 0-0 none
    DescribeClientQuotas 48 0-1 1+
    AlterClientQuotas 49 0-1 1+
    DescribeUserScramCredentials 50 0-0 0+
    AlterUserScramCredentials 51 0-0 0+
    DescribeQuorum 55 0-2 0+
    UpdateFeatures 57 0-2 0+
    DescribeCluster 60 0-2 0+
    DescribeProducers 61 0-0 0+
    UnregisterBroker 64 0-0 0+
    DescribeTransactions 65 0-0 0+
    ListTransactions 66 0-2 0+
    ConsumerGroupHeartbeat 68 0-1 0+
    ConsumerGroupDescribe 69 0-1 0+
    GetTelemetrySubscriptions 71 0-0 0+
    PushTelemetry 72 0-0 0+
    ListConfigResources 74 0-1 0+
    DescribeTopicPartitions 75 0-0 0+
    ShareGroupHeartbeat 76 1-1 0+
    ShareGroupDescribe 77 1-1 0+
    ShareFetch 78 1-2 0+
    ShareAcknowledge 79 1-2 0+
    StreamsGroupHeartbeat 88 0-1 0+
    StreamsGroupDescribe 89 0-1 0+
    DescribeShareGroupOffsets 90 0-1 0+
    AlterShareGroupOffsets 91 0-0 0+
    DeleteShareGroupOffsets 92 0-0 0+
    StreamsGroupTopologyDescriptionUpdate 93 0-0 0+
"""


def test_the_registry_is_what_the_protocol_page_says():
    declared = [
        f"{api.name} {api.key:d} {api.min_version}-{api.max_version} "
        + (f"{api.flexible_from}+" if api.flexible_from <= api.max_version else "none")
        for api in APIS.values()
    ]
    assert declared == [line.strip() for line in REGISTRY.strip().splitlines()]
    assert list(APIS) == sorted(APIS)
    assert [find_api(key) for key in APIS] == list(APIS.values())
