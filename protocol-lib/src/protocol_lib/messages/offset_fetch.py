"""OffsetFetch (9): the committed offsets of a group, from version 8 of many groups.

2 lets null topics mean all of them, 5 adds leader epochs, 6 is flexible, 7 can insist on stable offsets, 9 serves
KIP-848 members, 10 names topics by id.
"""

from protocol_lib.schema import ZERO_UUID, Boolean, Int16, Int32, Int64, Uuid, message, struct, wire


@struct
class OffsetFetchRequestTopic:
    name: str
    partition_indexes: tuple[Int32, ...]


@struct
class OffsetFetchRequestTopics:
    """A topic of one group, from version 8."""

    name: str = wire("8-9", default="")
    topic_id: Uuid = wire("10+", default=ZERO_UUID)
    partition_indexes: tuple[Int32, ...]


@struct
class OffsetFetchRequestGroup:
    group_id: str
    member_id: str | None = wire("9+", default=None)
    member_epoch: Int32 = wire("9+", default=-1)
    topics: tuple[OffsetFetchRequestTopics, ...] | None


@message(api_key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = wire("0-7", default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire("0-7", nullable="2-7", default=())
    groups: tuple[OffsetFetchRequestGroup, ...] = wire("8+", default=())
    #: error: UNSTABLE_OFFSET_COMMIT while a transaction is about to commit one of them (KIP-447)
    require_stable: Boolean = wire("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32
    #: -1 when there is none
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire("5-7", default=-1)
    metadata: str | None
    error_code: Int16


@struct
class OffsetFetchResponseTopic:
    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


@struct
class OffsetFetchResponsePartitions:
    """A partition of one group, from version 8."""

    partition_index: Int32
    #: -1 when there is none
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(default=-1)
    metadata: str | None
    error_code: Int16


@struct
class OffsetFetchResponseTopics:
    """A topic of one group, from version 8."""

    name: str = wire("8-9", default="")
    topic_id: Uuid = wire("10+", default=ZERO_UUID)
    partitions: tuple[OffsetFetchResponsePartitions, ...]


@struct
class OffsetFetchResponseGroup:
    group_id: str
    topics: tuple[OffsetFetchResponseTopics, ...]
    error_code: Int16 = wire(default=0)


@message(api_key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Int32 = wire("3+", default=0)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire("0-7", default=())
    error_code: Int16 = wire("2-7", default=0)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire("8+", default=())
