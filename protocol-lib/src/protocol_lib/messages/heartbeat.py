"""Heartbeat (12): a member says it is alive, and learns whether the group rebalances.

3 adds static members, 4 is flexible.
"""

from protocol_lib.schema import Int16, Int32, message, wire


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = wire("3+", default=None)


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    error_code: Int16
