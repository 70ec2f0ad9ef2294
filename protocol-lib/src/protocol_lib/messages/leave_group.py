"""LeaveGroup (13): members leave their group.

3 lets an administrator remove many members at once, 4 is flexible, 5 adds reasons.
"""

from protocol_lib.schema import Int16, Int32, message, struct, wire


@struct
class MemberIdentity:
    #: empty to remove a static member by its name alone
    member_id: str
    group_instance_id: str | None = wire(default=None)
    reason: str | None = wire("5+", default=None)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str
    member_id: str = wire("0-2", default="")
    members: tuple[MemberIdentity, ...] = wire("3+", default=())


@struct
class MemberResponse:
    member_id: str
    group_instance_id: str | None
    error_code: Int16


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    error_code: Int16
    members: tuple[MemberResponse, ...] = wire("3+", default=())
