"""DeleteGroups (42): delete groups that have no members.

1 is the same as 0, 2 is flexible, 3 adds error messages.
"""

from protocol_lib.schema import Int16, Int32, message, struct, wire


@message(api_key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: tuple[str, ...]


@struct
class DeletableGroupResult:
    group_id: str
    error_code: Int16
    error_message: str | None = wire("3+", default=None)


@message(api_key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32
    results: tuple[DeletableGroupResult, ...]
