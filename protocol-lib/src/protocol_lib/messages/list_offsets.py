"""ListOffsets (2): the offset at a timestamp, or at one of the special timestamps below.

Version 0 answers with up to `max_num_offsets` segment starts, 1 with one offset and its timestamp; 2 adds the isolation
level, 4 leader epochs, 6 is flexible, 10 adds a timeout for remote look-ups.
"""

from enum import IntEnum

from protocol_lib.schema import Int8, Int16, Int32, Int64, message, struct, wire


class SpecialTimestamp(IntEnum):
    """Timestamps that mean a place in the log."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # version 7
    EARLIEST_LOCAL = -4  # version 8
    LATEST_TIERED = -5  # version 9
    EARLIEST_PENDING_UPLOAD = -6  # version 11


@struct
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = wire("4+", default=-1)
    #: milliseconds since 1970, or a SpecialTimestamp
    timestamp: Int64
    max_num_offsets: Int32 = wire("0", default=1)


@struct
class ListOffsetsTopic:
    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@message(api_key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    #: a follower's; -1 from clients
    replica_id: Int32
    #: 0 LATEST is the high watermark, 1 the last stable offset
    isolation_level: Int8 = wire("2+", default=0)
    topics: tuple[ListOffsetsTopic, ...]
    timeout_ms: Int32 = wire("10+", default=0)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    #: newest first
    old_style_offsets: tuple[Int64, ...] = wire("0", default=())
    timestamp: Int64 = wire("1+", default=-1)
    #: offset of the first record at or after the timestamp; -1 when there is none
    offset: Int64 = wire("1+", default=-1)
    leader_epoch: Int32 = wire("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


@message(api_key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Int32 = wire("2+", default=0)
    topics: tuple[ListOffsetsTopicResponse, ...]
