"""FindCoordinator (10): which broker coordinates a group or a transactional id.

1 adds the key type, 3 is flexible, 4 asks for many keys at once, 6 allows share partitions as keys.
"""

from enum import IntEnum

from protocol_lib.schema import Int8, Int16, Int32, message, struct, wire


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    #: a group id, a transactional id, or "group:topic id:partition" of a share group
    key: str = wire("0-3", default="")
    #: a KeyType
    key_type: Int8 = wire("1+", default=0)
    coordinator_keys: tuple[str, ...] = wire("4+", default=())


@struct
class Coordinator:
    key: str
    #: -1 after an error
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16
    error_message: str | None


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    error_code: Int16 = wire("0-3", default=0)
    error_message: str | None = wire("1-3", default="")
    node_id: Int32 = wire("0-3", default=0)
    host: str = wire("0-3", default="")
    port: Int32 = wire("0-3", default=0)
    coordinators: tuple[Coordinator, ...] = wire("4+", default=())
