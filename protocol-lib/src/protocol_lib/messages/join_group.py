"""JoinGroup (11): become a member of a group, or stay one through a rebalance.

1 adds the rebalance timeout, 4 makes new members ask twice (MEMBER_ID_REQUIRED), 5 adds static members, 6 is flexible,
7 answers with the protocol type, 8 adds a reason, 9 lets the leader skip the assignment.
"""

from protocol_lib.schema import Boolean, Bytes, Int16, Int32, message, struct, wire


@struct
class JoinGroupRequestProtocol:
    """An assignor the member can use, and its subscription for that assignor."""

    name: str
    #: a Subscription (consumer_protocol) when the protocol type is "consumer"
    metadata: Bytes


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str
    #: a member without a heartbeat for this time is removed
    session_timeout_ms: Int32
    #: longest time that a rebalance waits for this member; in version 0 the session timeout
    rebalance_timeout_ms: Int32 = wire("1+", default=-1)
    #: empty the first time
    member_id: str
    group_instance_id: str | None = wire("5+", default=None)
    #: "consumer", or another name for other groups (Connect)
    protocol_type: str
    #: the most wanted first; the group uses one that every member has
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
    #: counts rebalances; -1 after an error
    generation_id: Int32 = wire(default=-1)
    protocol_type: str | None = wire("7+", default=None)
    protocol_name: str | None = wire(nullable="7+")
    #: the id of the member that makes the assignment
    leader: str
    #: the leader is a static member that came back: the assignment stays (KIP-814)
    skip_assignment: Boolean = wire("9+", default=False)
    member_id: str
    #: all members, for the leader; empty for the others
    members: tuple[JoinGroupResponseMember, ...]
