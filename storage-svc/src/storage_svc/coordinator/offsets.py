"""The records of `__consumer_offsets`, in Apache Kafka's format.

A key is `version i16` and fields; big-endian, strings are `length i16 + UTF-8`, bytes `length i32 + bytes`, null is
length -1. Versions 0 and 1 are committed offsets, 2 is a group's metadata; later ones belong to other group types and
are skipped. A null value is a tombstone.

    key 0, 1    group string, topic string, partition i32                                       (written as 1)
    value 0-4   version i16, offset i64, [leader epoch i32: 3+], metadata string, commit timestamp i64,
                [expire timestamp i64: 1 only]; 4 is flexible (compact string, tagged fields at the end)
                (written as 3; as 1 when the commit named a retention time)
    key 2       group string
    value 0-4   version i16, protocol type string, generation i32, protocol nstring, leader nstring,
                [current state timestamp i64: 2+], members count i32, members; 4 is flexible   (written as 3)
    member      member id string, [group instance id nstring: 3+], client id string, client host string,
                [rebalance timeout i32: 1+], session timeout i32, subscription bytes, assignment bytes

Example: group "g", topic "t", partition 5 has the key 0001 0001 67 0001 74 00000005.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from protocol_lib.errors import ErrorCode

OFFSETS_TOPIC: Final = "__consumer_offsets"

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
#: Longest string the format can hold.
STRING_BYTES_MAX: Final = 32_767

#: Codes of a failed append, as members of the group are told them: retry, look for the coordinator, or give up.
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
    """The code group members see when the append of their group's metadata ended with `code`."""
    error = ErrorCode(code)
    return _GROUP_ERRORS.get(error, error)


def commit_error(code: int) -> ErrorCode:
    """The code a committer sees when the append of its offsets ended with `code`."""
    error = group_error(code)
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error is ErrorCode.UNKNOWN_SERVER_ERROR else error


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


@dataclass(slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    #: -1: by the broker's retention.
    expire_timestamp_ms: int = -1


@dataclass(slots=True, kw_only=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True, kw_only=True)
class StoredGroup:
    """A group as the log holds it. Without members it is empty."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...] = ()


class BrokenRecordError(Exception):
    """A record of __consumer_offsets that does not follow this module's format."""


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition that holds a group: abs(String.hashCode) % count, as Java computes both. "my-group" of 50 is 12."""
    value = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    return 0 if value == 0x80000000 else value % partition_count


def _string(value: str) -> bytes:
    raw = value.encode()
    return _I16.pack(len(raw)) + raw


def _nstring(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else _string(value)


def _bytes(value: bytes) -> bytes:
    return _I32.pack(len(value)) + value


def encode_offset_key(key: OffsetKey) -> bytes:
    return b"\x00\x01" + _string(key.group) + _string(key.topic) + _I32.pack(key.partition)


def encode_group_key(group_id: str) -> bytes:
    return b"\x00\x02" + _string(group_id)


def encode_offset_value(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms >= 0:
        head = _I16.pack(1) + _I64.pack(value.offset) + _string(value.metadata)
        return head + _I64.pack(value.commit_timestamp_ms) + _I64.pack(value.expire_timestamp_ms)
    head = _I16.pack(3) + _I64.pack(value.offset) + _I32.pack(value.leader_epoch)
    return head + _string(value.metadata) + _I64.pack(value.commit_timestamp_ms)


def encode_group_value(value: StoredGroup) -> bytes:
    parts = [
        _I16.pack(3),
        _string(value.protocol_type),
        _I32.pack(value.generation_id),
        _nstring(value.protocol_name),
        _nstring(value.leader),
        _I64.pack(value.state_timestamp_ms),
        _I32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _nstring(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _I32.pack(member.rebalance_timeout_ms),
            _I32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


class _Reader:
    """A cursor over one key or value. Every take is checked against what remains."""

    __slots__ = ("_buffer", "_flexible", "_position")

    def __init__(self, buffer: bytes, flexible: bool = False) -> None:
        self._buffer = buffer
        self._position = 0
        self._flexible = flexible

    def _take(self, length: int) -> bytes:
        start = self._position
        end = start + length
        if length < 0 or end > len(self._buffer):
            raise BrokenRecordError(f"{length} bytes wanted at {start} of {len(self._buffer)}")
        self._position = end
        return self._buffer[start:end]

    def number(self, layout: Struct) -> int:
        (value,) = layout.unpack(self._take(layout.size))
        return int(value)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BrokenRecordError("varint longer than 5 bytes")

    def _length(self, layout: Struct) -> int:
        return self.varint() - 1 if self._flexible else self.number(layout)

    def count(self) -> int:
        count = self._length(_I32)
        if not 0 <= count <= len(self._buffer) - self._position:
            raise BrokenRecordError(f"{count} elements announced, {len(self._buffer) - self._position} bytes left")
        return count

    def nstring(self) -> str | None:
        length = self._length(_I16)
        if length == -1:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise BrokenRecordError("string is not UTF-8") from error

    def string(self) -> str:
        value = self.nstring()
        if value is None:
            raise BrokenRecordError("null where a string must be")
        return value

    def bytes(self) -> bytes:
        length = self._length(_I32)
        return b"" if length == -1 else self._take(length)

    def tagged_fields(self) -> None:
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                self._take(self.varint())


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The key, or None when it is of a kind this coordinator does not own.

    Raises:
        BrokenRecordError: not in the format of its version.
    """
    reader = _Reader(key)
    version = reader.number(_I16)
    if version in (0, 1):
        return OffsetKey(reader.string(), reader.string(), reader.number(_I32))
    if version == 2:
        return GroupKey(reader.string())
    return None


def _version(value: bytes) -> int:
    version = _Reader(value).number(_I16)
    if not 0 <= version <= 4:
        raise BrokenRecordError(f"value version {version} is not known")
    return version


def decode_offset_value(value: bytes) -> CommittedOffset:
    """Raises: BrokenRecordError: not in the format of its version."""
    version = _version(value)
    reader = _Reader(value, flexible=version >= 4)
    reader.number(_I16)
    offset = reader.number(_I64)
    leader_epoch = reader.number(_I32) if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp = reader.number(_I64)
    expire_timestamp = reader.number(_I64) if version == 1 else -1
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp)


def decode_group_value(value: bytes) -> StoredGroup:
    """Raises: BrokenRecordError: not in the format of its version."""
    version = _version(value)
    reader = _Reader(value, flexible=version >= 4)
    reader.number(_I16)
    protocol_type = reader.string()
    generation_id = reader.number(_I32)
    protocol_name, leader = reader.nstring(), reader.nstring()
    state_timestamp = reader.number(_I64) if version >= 2 else -1
    members = []
    for _ in range(reader.count()):
        member_id = reader.string()
        instance_id = reader.nstring() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout = reader.number(_I32) if version >= 1 else None
        session_timeout = reader.number(_I32)
        members.append(
            StoredMember(
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host=client_host,
                rebalance_timeout_ms=session_timeout if rebalance_timeout is None else rebalance_timeout,
                session_timeout_ms=session_timeout,
                subscription=reader.bytes(),
                assignment=reader.bytes(),
            )
        )
        reader.tagged_fields()
    return StoredGroup(
        protocol_type=protocol_type,
        generation_id=generation_id,
        protocol_name=protocol_name,
        leader=leader,
        state_timestamp_ms=state_timestamp,
        members=tuple(members),
    )
