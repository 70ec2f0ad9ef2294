"""OffsetCommit (8): a group saves its positions.

1 adds the generation and a timestamp, 2-4 a retention time, 6 leader epochs, 7 static members; 8 is flexible, 9 serves
KIP-848 members, 10 names topics by id.
"""

from protocol_lib.schema import ZERO_UUID, Int16, Int32, Int64, Uuid, message, struct, wire


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    #: offset of the next record to read
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire("6+", default=-1)
    commit_timestamp: Int64 = wire("1", default=-1)
    #: any text of the committer, up to offset.metadata.max.bytes
    committed_metadata: str | None


@struct
class OffsetCommitRequestTopic:
    name: str = wire("0-9", default="")
    topic_id: Uuid = wire("10+", default=ZERO_UUID)
    partitions: tuple[OffsetCommitRequestPartition, ...]


@message(api_key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str
    #: -1 from a client that is no member and commits for a group without members
    generation_id_or_member_epoch: Int32 = wire("1+", default=-1)
    member_id: str = wire("1+", default="")
    group_instance_id: str | None = wire("7+", default=None)
    #: -1 for the broker's own
    retention_time_ms: Int64 = wire("2-4", default=-1)
    topics: tuple[OffsetCommitRequestTopic, ...]


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    name: str = wire("0-9", default="")
    topic_id: Uuid = wire("10+", default=ZERO_UUID)
    partitions: tuple[OffsetCommitResponsePartition, ...]


@message(api_key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Int32 = wire("3+", default=0)
    topics: tuple[OffsetCommitResponseTopic, ...]
