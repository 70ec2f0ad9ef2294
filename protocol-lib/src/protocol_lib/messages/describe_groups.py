"""DescribeGroups (15): state, protocol and members of classic groups.

3 can ask for authorized operations, 4 names static members, 5 is flexible, 6 answers GROUP_ID_NOT_FOUND with a message
for a group that is not there (KIP-1043); before, such a group is described as Dead.
"""

from protocol_lib.schema import Boolean, Bytes, Int16, Int32, message, struct, wire


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...]
    include_authorized_operations: Boolean = wire("3+", default=False)


@struct
class DescribedGroupMember:
    """member_metadata and member_assignment are in the format of the group's protocol: see consumer_protocol."""

    member_id: str
    group_instance_id: str | None = wire("4+", default=None)
    client_id: str
    client_host: str
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    error_code: Int16
    error_message: str | None = wire("6+", default=None)
    group_id: str
    #: one of Empty, PreparingRebalance, CompletingRebalance, Stable and Dead
    group_state: str
    protocol_type: str
    #: the name of the assignor; empty unless the group is stable
    protocol_data: str
    members: tuple[DescribedGroupMember, ...]
    authorized_operations: Int32 = wire("3+", default=-(2**31))


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    groups: tuple[DescribedGroup, ...]
