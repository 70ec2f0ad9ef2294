"""DescribeLogDirs (35): how large the partitions in each log directory are.

1 is the same as 0, 2 is flexible, 3 adds a top-level error, 4 the size of the volume, 5 cordoned directories. Kafka 4
dropped 0.
"""

from protocol_lib.schema import Boolean, Int16, Int32, Int64, message, struct, wire


@struct
class DescribableLogDirTopic:
    topic: str
    partitions: tuple[Int32, ...]


@message(api_key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    #: null for all
    topics: tuple[DescribableLogDirTopic, ...] | None


@struct
class DescribeLogDirsPartition:
    """A future replica is one that AlterReplicaLogDirs is filling."""

    partition_index: Int32
    partition_size: Int64
    #: distance from the log end offset to the high watermark; of a future replica, to the current replica
    offset_lag: Int64
    is_future_key: Boolean


@struct
class DescribeLogDirsTopic:
    name: str
    partitions: tuple[DescribeLogDirsPartition, ...]


@struct
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: str
    topics: tuple[DescribeLogDirsTopic, ...]
    #: bytes of the directory's volume
    total_bytes: Int64 = wire("4+", default=-1)
    usable_bytes: Int64 = wire("4+", default=-1)
    is_cordoned: Boolean = wire("5+", default=False)


@message(api_key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32
    error_code: Int16 = wire("3+", default=0)
    results: tuple[DescribeLogDirsResult, ...]
