"""ListGroups (16): the groups a broker coordinates.

3 is flexible, 4 filters by state (KIP-518), 5 filters by type (KIP-848).
"""

from protocol_lib.schema import Int16, Int32, message, struct, wire


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    #: empty for every state
    states_filter: tuple[str, ...] = wire("4+", default=())
    #: "classic", "consumer", "share", "streams"; empty for every type
    types_filter: tuple[str, ...] = wire("5+", default=())


@struct
class ListedGroup:
    group_id: str
    #: empty for groups that only commit offsets
    protocol_type: str
    group_state: str = wire("4+", default="")
    group_type: str = wire("5+", default="")


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    error_code: Int16
    groups: tuple[ListedGroup, ...]
