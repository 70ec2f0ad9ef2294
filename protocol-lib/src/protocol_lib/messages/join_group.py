"""JoinGroup (11): become a member of a group, or stay one through a rebalance.

1 adds the rebalance timeout, 4 makes new members ask twice (MEMBER_ID_REQUIRED), 5 adds static members, 6 is flexible,
7 answers with the protocol type, 8 adds a reason, 9 lets the leader skip the assignment.
"""

from protocol_lib.schema import Boolean, Bytes, Int16, Int32, message, struct, wire


@struct
class JoinGroupRequestProtocol:
    """An assignor the member can use, and what it tells that assignor."""

    name: str
    metadata: Bytes


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = wire("1+", default=-1)
    member_id: str
    group_instance_id: str | None = wire("5+", default=None)
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    reason: str | None = wire("8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None = wire("5+", default=None)
    metadata: Bytes


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Int32 = wire("2+", default=0)
    error_code: Int16
    generation_id: Int32 = wire(default=-1)
    protocol_type: str | None = wire("7+", default=None)
    protocol_name: str | None = wire(nullable="7+")
    leader: str
    skip_assignment: Boolean = wire("9+", default=False)
    member_id: str
    members: tuple[JoinGroupResponseMember, ...]
