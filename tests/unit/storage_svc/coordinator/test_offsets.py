"""Records of __consumer_offsets byte for byte: golden hex written down by hand from Kafka's own message definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.offsets import (
    BrokenRecordError,
    CommittedOffset,
    GroupKey,
    OffsetKey,
    StoredGroup,
    StoredMember,
    commit_error,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    group_error,
    partition_of,
)

OFFSET_KEY = "0001 0002 6731 0006 6f7264657273 00000005"
GROUP_KEY = "0002 0002 6731"
#: version 3: offset 258, leader epoch 7, metadata "md", commit timestamp 1_700_000_000_000
OFFSET_VALUE_3 = "0003 0000000000000102 00000007 0002 6d64 0000018bcfe56800"
#: version 1 adds the expire timestamp and has no leader epoch
OFFSET_VALUE_1 = "0001 0000000000000102 0002 6d64 0000018bcfe56800 0000018bcfe56be8"
OFFSET_VALUE_4 = "0004 0000000000000102 00000007 03 6d64 0000018bcfe56800 00"
GROUP_VALUE_3 = (
    "0003 0008 636f6e73756d6572 00000003 0005 72616e6765 0002 6d31 0000018bcfe56800 00000001"
    "0002 6d31 ffff 0003 636c69 000a 2f3132372e302e302e31 00007530 00002710 00000002 aabb 00000001 cc"
)
GROUP_VALUE_0 = (
    "0000 0008 636f6e73756d6572 00000003 0005 72616e6765 0002 6d31 00000001"
    "0002 6d31 0003 636c69 000a 2f3132372e302e302e31 00002710 00000002 aabb 00000001 cc"
)
GROUP_VALUE_4 = (
    "0004 09 636f6e73756d6572 00000003 06 72616e6765 03 6d31 0000018bcfe56800 02"
    "03 6d31 00 04 636c69 0b 2f3132372e302e302e31 00007530 00002710 03 aabb 02 cc 00 00"
)
EMPTY_GROUP_VALUE = "0003 0008 636f6e73756d6572 00000004 ffff ffff 0000018bcfe56800 00000000"

OFFSET = CommittedOffset(258, 7, "md", 1_700_000_000_000)
GROUP = StoredGroup(
    protocol_type="consumer",
    generation_id=3,
    protocol_name="range",
    leader="m1",
    state_timestamp_ms=1_700_000_000_000,
    members=(
        StoredMember(
            member_id="m1",
            instance_id=None,
            client_id="cli",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=30_000,
            session_timeout_ms=10_000,
            subscription=b"\xaa\xbb",
            assignment=b"\xcc",
        ),
    ),
)


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def test_keys() -> None:
    assert encode_offset_key(OffsetKey("g1", "orders", 5)) == raw(OFFSET_KEY)
    assert encode_group_key("g1") == raw(GROUP_KEY)
    assert decode_key(raw(OFFSET_KEY)) == OffsetKey("g1", "orders", 5)
    assert decode_key(raw("0000" + OFFSET_KEY[4:])) == OffsetKey("g1", "orders", 5)
    assert decode_key(raw(GROUP_KEY)) == GroupKey("g1")


@pytest.mark.parametrize("version", range(3, 16))
def test_keys_of_other_kinds_of_groups_are_not_ours(version: int) -> None:
    assert decode_key(version.to_bytes(2, "big") + b"whatever") is None


def test_offset_values() -> None:
    assert encode_offset_value(OFFSET) == raw(OFFSET_VALUE_3)
    assert decode_offset_value(raw(OFFSET_VALUE_3)) == OFFSET
    assert decode_offset_value(raw(OFFSET_VALUE_4)) == OFFSET
    with_expiry = CommittedOffset(258, -1, "md", 1_700_000_000_000, 1_700_000_001_000)
    assert encode_offset_value(with_expiry) == raw(OFFSET_VALUE_1)
    assert decode_offset_value(raw(OFFSET_VALUE_1)) == with_expiry


def test_group_values() -> None:
    assert encode_group_value(GROUP) == raw(GROUP_VALUE_3)
    assert decode_group_value(raw(GROUP_VALUE_3)) == GROUP
    assert decode_group_value(raw(GROUP_VALUE_4)) == GROUP
    oldest = decode_group_value(raw(GROUP_VALUE_0))
    assert oldest.state_timestamp_ms == -1
    assert oldest.members[0].rebalance_timeout_ms == 10_000
    empty = StoredGroup(
        protocol_type="consumer",
        generation_id=4,
        protocol_name=None,
        leader=None,
        state_timestamp_ms=1_700_000_000_000,
    )
    assert encode_group_value(empty) == raw(EMPTY_GROUP_VALUE)
    assert decode_group_value(raw(EMPTY_GROUP_VALUE)) == empty


@pytest.mark.parametrize("whole", [OFFSET_KEY, GROUP_KEY])
def test_a_key_cut_anywhere_is_refused(whole: str) -> None:
    data = raw(whole)
    for length in range(len(data)):
        with pytest.raises(BrokenRecordError):
            decode_key(data[:length])


@pytest.mark.parametrize("whole", [OFFSET_VALUE_1, OFFSET_VALUE_3])
def test_an_offset_value_cut_anywhere_is_refused(whole: str) -> None:
    data = raw(whole)
    for length in range(len(data)):
        with pytest.raises(BrokenRecordError):
            decode_offset_value(data[:length])


@pytest.mark.parametrize("whole", [GROUP_VALUE_0, GROUP_VALUE_3])
def test_a_group_value_cut_anywhere_is_refused(whole: str) -> None:
    data = raw(whole)
    for length in range(len(data)):
        with pytest.raises(BrokenRecordError):
            decode_group_value(data[:length])


@pytest.mark.parametrize(
    "value",
    [
        "0005 0000",
        "ffff 0000",
        "0003 0001 ff 00000000 ffff ffff 0000000000000000 00000000",
        "0003 0000 00000000 ffff ffff 0000000000000000 7fffffff",
        "0003 ffff 00000000",
    ],
)
def test_a_group_value_that_makes_no_sense_is_refused(value: str) -> None:
    with pytest.raises(BrokenRecordError):
        decode_group_value(raw(value))


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        try:
            decode(data)
        except BrokenRecordError:
            continue


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(group: str, topic: str) -> None:
    key = OffsetKey(group, topic, 3)
    assert decode_key(encode_offset_key(key)) == key


@pytest.mark.parametrize(
    ("group_id", "count", "partition"),
    [
        ("my-group", 50, 12),
        ("", 50, 0),
        ("a", 50, 97 % 50),
        ("polygenelubricants", 50, 0),  # hash code -2^31, of which there is no absolute value
        ("\U0001f600", 50, (31 * 0xD83D + 0xDE00) % 50),  # Java hashes UTF-16 units
    ],
)
def test_the_partition_of_a_group_is_kafkas(group_id: str, count: int, partition: int) -> None:
    assert partition_of(group_id, count) == partition


@pytest.mark.parametrize(
    ("code", "for_members", "for_committers"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE, None),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE, None),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, None),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, None),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, None),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_append_errors_as_clients_see_them(
    code: ErrorCode, for_members: ErrorCode, for_committers: ErrorCode | None
) -> None:
    assert group_error(code) is for_members
    assert commit_error(code) is (for_committers or for_members)
