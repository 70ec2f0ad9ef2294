"""OffsetForLeaderEpoch (23): where a leader epoch ended in the log.

1 answers with the epoch too, 2 adds the current leader epoch for fencing and throttling, 3 the replica id, 4 is
flexible. Kafka 4 dropped 0 and 1.
"""

from protocol_lib.schema import Int16, Int32, Int64, message, struct, wire


@struct
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = wire("2+", default=-1)
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


@message(api_key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    #: -1 for a consumer, -2 for one that may look past the high watermark
    replica_id: Int32 = wire("3+", default=-2)
    topics: tuple[OffsetForLeaderTopic, ...]


@struct
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = wire("1+", default=-1)
    end_offset: Int64 = wire(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str
    partitions: tuple[EpochEndOffset, ...]


@message(api_key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = wire("2+", default=0)
    topics: tuple[OffsetForLeaderTopicResult, ...]
