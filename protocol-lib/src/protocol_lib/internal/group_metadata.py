"""A classic group and its members: key 2 of __consumer_offsets.

Kafka writes value 3. Value 1 adds rebalance timeouts, 2 the time of the last state change (KIP-211), 3 static members
(KIP-345); 4 is flexible (KIP-915).
"""

from protocol_lib.schema import Bytes, Int32, Int64, message, struct, wire


@message(api_key=None, versions="2", flexible=None)
class GroupMetadataKey:
    group: str


@struct
class MemberMetadata:
    """A member. Timeouts are in milliseconds; a missing rebalance timeout is the session timeout."""

    member_id: str
    group_instance_id: str | None = wire("3+", default=None)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = wire("1+", default=-1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(api_key=None, versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A group; it is empty without members."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Int64 = wire("2+", default=-1)
    members: tuple[MemberMetadata, ...]
