"""SyncGroup (14): the leader hands in the assignment, every member gets its own.

3 adds static members, 4 is flexible, 5 adds the protocol type and name.
"""

from protocol_lib.schema import Bytes, Int16, Int32, message, struct, wire


@struct
class SyncGroupRequestAssignment:
    member_id: str
    #: an Assignment (consumer_protocol) when the protocol type is "consumer"
    assignment: Bytes


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = wire("3+", default=None)
    protocol_type: str | None = wire("5+", default=None)
    protocol_name: str | None = wire("5+", default=None)
    #: all assignments from the leader; empty from the others
    assignments: tuple[SyncGroupRequestAssignment, ...]


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    error_code: Int16
    protocol_type: str | None = wire("5+", default=None)
    protocol_name: str | None = wire("5+", default=None)
    assignment: Bytes
