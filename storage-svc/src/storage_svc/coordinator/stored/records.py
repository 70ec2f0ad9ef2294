"""The records that the group coordinator keeps in `__consumer_offsets`: their versions, and the errors of an append.

Keys and values are declared in protocol_lib.internal. Ours are the committed offsets (keys 0 and 1), the metadata of
classic groups (key 2) and consumer groups (keys 3 to 8 and 16, see `consumer.records`). Other keys belong to other
group types and are skipped. Metadata is written in version 3, as Kafka does. Committed offsets are written in version
4, which has the topic's id, and in version 1 when the commit named a retention time.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.internal import record
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.records.record import write_tail

from storage_svc.coordinator.consumer.records import CONSUMER_KEYS, KEY_VERSIONS, VALUE_VERSION
from storage_svc.coordinator.machine.outcome import Record

OFFSETS_TOPIC: Final = "__consumer_offsets"
#: The keys this coordinator reads.
OWN_KEYS: Final = {version: record.OFFSETS_TOPIC[version] for version in (0, 1, 2, *CONSUMER_KEYS)}
#: Longest string the format can hold.
STRING_BYTES_MAX: Final = 32_767

#: Bytes of a value of version 4 with empty metadata, without its tagged fields.
_TAGLESS_SIZE: Final = 2 + 8 + 4 + 1 + 8
_INT64: Final = Struct(">q")
_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_VALUE_VERSION: Final = 3
_OFFSET_VALUE_VERSION: Final = 4
_VALUE_VERSION_WITH_EXPIRY: Final = 1

#: Codes of a failed append, and the codes that members get instead: retry, look for the coordinator, or give up.
_GROUP_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def group_error(code: int) -> ErrorCode:
    """Return the code for members when the append of their group's metadata, or of offsets, ended with `code`."""
    error = ErrorCode(code)
    return _GROUP_ERRORS.get(error, error)


def partition_of(group_id: str, partition_count: int) -> int:
    """Return the partition that holds a group: abs(String.hashCode) % count, as Java computes both. "my-group" of 50 is
    12."""
    value = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    return 0 if value == 0x80000000 else value % partition_count


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return record.write(OffsetCommitKey(group=group_id, topic=topic, partition=partition), _OFFSET_KEY_VERSION)


def encode_offset_value(value: OffsetCommitValue) -> bytes:
    return record.write(value, _OFFSET_VALUE_VERSION if value.expire_timestamp < 0 else _VALUE_VERSION_WITH_EXPIRY)


class OffsetTail:
    """The record (`write_tail`) of a committed offset again and again: only the offset and its time differ.

    value = version i16, offset i64, leader epoch i32, metadata string, commit timestamp i64, tagged fields
    """

    __slots__ = ("_offset_at", "_tail", "_time_at")

    def __init__(self, group_id: str, partition: tuple[str, int], like: OffsetCommitValue) -> None:
        """Begin the record; `like` names no time to expire."""
        value = encode_offset_value(like)
        self._tail = bytearray(write_tail(encode_offset_key(group_id, *partition), value))
        end = len(self._tail) - 1  # the number of headers follows
        self._offset_at = end - len(value) + record.VERSION_SIZE
        tagged = len(encode_offset_value(replace(like, metadata=""))) - _TAGLESS_SIZE
        self._time_at = end - tagged - _INT64.size

    def at(self, offset: int, now_ms: int) -> bytes:
        _INT64.pack_into(self._tail, self._offset_at, offset)
        _INT64.pack_into(self._tail, self._time_at, now_ms)
        return bytes(self._tail)


def encode(entry: Record) -> tuple[bytes, bytes | None]:
    """Return the key and value of a group's record, of either protocol, as they are written."""
    key, value = entry
    if isinstance(key, GroupMetadataKey):
        return encode_group_key(key.group), None if value is None else encode_group_value(value)
    return record.write(key, KEY_VERSIONS[type(key)]), None if value is None else record.write(value, VALUE_VERSION)


def encode_group_key(group_id: str) -> bytes:
    return record.write(GroupMetadataKey(group=group_id), _GROUP_KEY_VERSION)


def encode_group_value(value: GroupMetadataValue) -> bytes:
    return record.write(value, _VALUE_VERSION)
