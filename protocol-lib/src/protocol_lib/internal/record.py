"""Keys and values of the records in Kafka's own topics, to bytes and back.

    write(GroupMetadataKey(group="g"), 2) -> 0002 0001 67
    read_key(OFFSETS_TOPIC, key)          -> OffsetCommitKey(...); None for a kind the table does not have
    read_value(OffsetCommitValue, value)  -> OffsetCommitValue(...)

Readers ignore the bytes after the fields they know, as Kafka's own does.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from protocol_lib.codec import decode_prefix, encode
from protocol_lib.errors import DecodeError
from protocol_lib.internal import consumer_group, group_metadata, offset_commit, share_group, transaction_log
from protocol_lib.schema import message_info
from protocol_lib.varint import Buffer

T = TypeVar("T")
#: The class of a key by its version, and the class of the values under it.
Kinds = Mapping[int, tuple[type, type]]

VERSION_SIZE: Final = 2


def _kinds(*pairs: tuple[type, type]) -> Kinds:
    found: dict[int, tuple[type, type]] = {}
    for key, value in pairs:
        versions = message_info(key).versions
        for version in range(versions.first, versions.last + 1):
            if version in found:
                raise TypeError(f"{key.__name__} and {found[version][0].__name__} have key {version} both")
            found[version] = key, value
    return MappingProxyType(found)


OFFSETS_TOPIC: Final = _kinds(
    (offset_commit.OffsetCommitKey, offset_commit.OffsetCommitValue),
    (group_metadata.GroupMetadataKey, group_metadata.GroupMetadataValue),
    *(
        (getattr(module, f"{noun}Key"), getattr(module, f"{noun}Value"))
        for module, nouns in (
            (
                consumer_group,
                (
                    "ConsumerGroupMetadata",
                    "ConsumerGroupPartitionMetadata",
                    "ConsumerGroupMemberMetadata",
                    "ConsumerGroupTargetAssignmentMetadata",
                    "ConsumerGroupTargetAssignmentMember",
                    "ConsumerGroupCurrentMemberAssignment",
                    "ConsumerGroupRegularExpression",
                ),
            ),
            (
                share_group,
                (
                    "ShareGroupMemberMetadata",
                    "ShareGroupMetadata",
                    "ShareGroupTargetAssignmentMetadata",
                    "ShareGroupTargetAssignmentMember",
                    "ShareGroupCurrentMemberAssignment",
                    "ShareGroupStatePartitionMetadata",
                ),
            ),
        )
        for noun in nouns
    ),
)
TRANSACTIONS_TOPIC: Final = _kinds((transaction_log.TransactionLogKey, transaction_log.TransactionLogValue))


def write(message: Any, version: int) -> bytes:
    """Write a key or a value, its version in front."""
    return encode(message, version, version.to_bytes(VERSION_SIZE, "big"))


def read_version(data: Buffer) -> int:
    if len(data) < VERSION_SIZE:
        raise DecodeError(f"a key or value of {len(data)} bytes")
    return int.from_bytes(data[:VERSION_SIZE], "big", signed=True)


def read_key(kinds: Kinds, key: Buffer) -> Any | None:
    """Read a key as one of the table's classes; None when it is of a kind that came after the table."""
    version = read_version(key)
    if version not in kinds:
        return None
    return decode_prefix(kinds[version][0], version, key, VERSION_SIZE)


def read_value(cls: type[T], value: Buffer) -> T:
    """Read a value as the class that goes with its key; raise DecodeError for a version that is not declared."""
    version = read_version(value)
    if version not in message_info(cls).versions:
        raise DecodeError(f"{cls.__name__} of version {version}")
    return decode_prefix(cls, version, value, VERSION_SIZE)
