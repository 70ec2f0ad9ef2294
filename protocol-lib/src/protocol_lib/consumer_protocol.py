"""Subscriptions and assignments: group members exchange them through the coordinator, which does not look inside.

A subscription is the `metadata` of a JoinGroup protocol. SyncGroup hands out an assignment. Both start with their
version as i16; versions are never flexible. A version newer than we know is read as the newest one we know, and bytes
after its known fields are ignored, as Kafka's own reader does.

The user data of the sticky assignors has no version in front: `StickyUserData` (assignor "sticky") has had a generation
at its end since Kafka 2.3, `CooperativeStickyUserData` ("cooperative-sticky") is one. From version 2 on, subscriptions
have a separate field for it, too (KIP-792).
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


@message(api_key=None, versions="0-1", flexible=None)
class StickyUserData:
    """The partitions that a member of an eagerly rebalancing group had before, and their generation; -1 for none."""

    previous_assignment: tuple[TopicPartitions, ...]
    generation: Int32 = wire("1+", default=-1)


@message(api_key=None, versions="0", flexible=None)
class CooperativeStickyUserData:
    """The generation in which the member got its partitions; -1 for none."""

    generation: Int32


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    return _encode(subscription, version)


def decode_subscription(data: Buffer) -> Subscription:
    return _decode(Subscription, data)


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    return _encode(assignment, version)


def decode_assignment(data: Buffer) -> Assignment:
    return _decode(Assignment, data)


def encode_sticky(data: StickyUserData) -> bytes:
    return encode(data, 1)


def decode_sticky(user_data: Buffer) -> StickyUserData:
    """Read either form; raise DecodeError for other bytes, which Kafka reads as no earlier partitions."""
    try:
        return decode_prefix(StickyUserData, 1, user_data)
    except DecodeError:
        return decode_prefix(StickyUserData, 0, user_data)


def encode_cooperative_sticky(data: CooperativeStickyUserData) -> bytes:
    return encode(data, 0)


def decode_cooperative_sticky(user_data: Buffer) -> CooperativeStickyUserData:
    return decode_prefix(CooperativeStickyUserData, 0, user_data)


def _encode(value: Any, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def _decode(cls: type[T], data: Buffer) -> T:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise DecodeError(f"{cls.__name__}: version {version}")
    return decode_prefix(cls, min(version, VERSION_MAX), data, 2)
