"""The records in __consumer_offsets: versions written, keys read, partitions, errors of appends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.internal.record import read_key
from protocol_lib.records.record import write_tail
from storage_svc.coordinator.stored.records import (
    OWN_KEYS,
    OffsetTail,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    group_error,
    partition_of,
)

NOW = 1_700_000_000_000


def test_what_is_written() -> None:
    assert encode_offset_key("g1", "orders", 5) == bytes.fromhex("0001 0002 6731 0006 6f7264657273 00000005")
    assert encode_group_key("g1") == bytes.fromhex("0002 0002 6731")
    topic_id = bytes(range(16))
    committed = OffsetCommitValue(offset=258, leader_epoch=7, metadata="md", commit_timestamp=NOW, topic_id=topic_id)
    assert encode_offset_value(committed) == bytes.fromhex(
        f"0004 0000000000000102 00000007 03 6d64 0000018bcfe56800 01 00 10 {topic_id.hex()}"
    )
    committed.expire_timestamp = NOW + 1000
    assert encode_offset_value(committed) == bytes.fromhex(
        "0001 0000000000000102 0002 6d64 0000018bcfe56800 0000018bcfe56be8"
    )
    group = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol=None, leader=None, current_state_timestamp=NOW, members=()
    )
    assert encode_group_value(group) == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000004 ffff ffff 0000018bcfe56800 00000000"
    )


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.text(max_size=40), st.integers(-1, 2**31 - 1), st.lists(st.tuples(INT64, INT64), min_size=1, max_size=3))
def test_an_offset_written_again_is_the_record_it_would_be(
    name: str, epoch: int, written: list[tuple[int, int]]
) -> None:
    topic_id = bytes(range(16))
    like = OffsetCommitValue(offset=0, leader_epoch=epoch, metadata=name, commit_timestamp=0, topic_id=topic_id)
    tail = OffsetTail(name, (name, 3), like)
    for offset, now_ms in written:
        value = replace(like, offset=offset, commit_timestamp=now_ms)
        assert tail.at(offset, now_ms) == write_tail(encode_offset_key(name, name, 3), encode_offset_value(value))


def test_the_keys_that_are_read() -> None:
    key = OffsetCommitKey(group="g1", topic="orders", partition=5)
    assert read_key(OWN_KEYS, encode_offset_key("g1", "orders", 5)) == key
    assert read_key(OWN_KEYS, b"\0\0" + encode_offset_key("g1", "orders", 5)[2:]) == key
    assert read_key(OWN_KEYS, encode_group_key("g1")) == GroupMetadataKey(group="g1")


@pytest.mark.parametrize("version", [*range(9, 16), *range(17, 20)])
def test_keys_of_other_kinds_of_groups_are_not_ours(version: int) -> None:
    assert read_key(OWN_KEYS, version.to_bytes(2, "big") + b"whatever") is None


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
    ("code", "expected"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_append_errors_as_clients_see_them(code: ErrorCode, expected: ErrorCode) -> None:
    assert group_error(code) is expected
