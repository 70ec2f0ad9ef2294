"""DescribeShareGroupOffsets (90): where share groups start in their partitions (KIP-932).

1 adds the lag (KIP-1226).
"""

from protocol_lib.schema import Int16, Int32, Int64, Uuid, message, struct, wire


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: tuple[Int32, ...]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str
    #: null for all
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = wire("1+", default=-1)
    error_code: Int16
    error_message: str | None = wire(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...]
    error_code: Int16
    error_message: str | None = wire(default=None)


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...]
