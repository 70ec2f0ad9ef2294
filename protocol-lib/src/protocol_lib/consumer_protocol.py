"""Subscriptions and assignments: group members exchange them through the coordinator, which does not look inside.

A subscription is the `metadata` of a JoinGroup protocol. SyncGroup hands out an assignment. Both start with their
version as i16; versions are never flexible. A version newer than we know is read as the newest one we know, and bytes
after its known fields are ignored, as Kafka's own reader does.
"""

from typing import Any, Final, TypeVar

from protocol_lib.codec import decode_prefix, encode
from protocol_lib.errors import DecodeError
from protocol_lib.schema import Bytes, Int32, message, struct, wire
from protocol_lib.varint import Buffer

VERSION_MAX: Final = 3
PROTOCOL_TYPE: Final = "consumer"

T = TypeVar("T")


@struct
class TopicPartitions:
    topic: str
    partitions: tuple[Int32, ...]


@message(api_key=None, versions="0-3", flexible=None)
class Subscription:
    """The topics that a member wants, and the partitions that it has."""

    topics: tuple[str, ...]
    user_data: Bytes | None = wire(default=None)
    owned_partitions: tuple[TopicPartitions, ...] = wire("1+", default=())
    generation_id: Int32 = wire("2+", default=-1)
    rack_id: str | None = wire("3+", default=None)


@message(api_key=None, versions="0-3", flexible=None)
class Assignment:
    """The partitions that a member gets."""

    assigned_partitions: tuple[TopicPartitions, ...]
    user_data: Bytes | None = wire(default=None)


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    return _encode(subscription, version)


def decode_subscription(data: Buffer) -> Subscription:
    return _decode(Subscription, data)


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    return _encode(assignment, version)


def decode_assignment(data: Buffer) -> Assignment:
    return _decode(Assignment, data)


def _encode(value: Any, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def _decode(cls: type[T], data: Buffer) -> T:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise DecodeError(f"{cls.__name__}: version {version}")
    return decode_prefix(cls, min(version, VERSION_MAX), data, 2)
