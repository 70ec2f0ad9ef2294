"""OffsetDelete (47): delete committed offsets of topics the group is not subscribed to (KIP-496)."""

from protocol_lib.schema import Int16, Int32, message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


@message(api_key=47, versions="0", flexible=None)
class OffsetDeleteRequest:
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


@message(api_key=47, versions="0", flexible=None)
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Int32
    topics: tuple[OffsetDeleteResponseTopic, ...]
