"""AlterReplicaLogDirs (34): move replicas to other log directories of their broker.

1 is the same as 0, 2 is flexible. Kafka 4 dropped 0.
"""

from protocol_lib.schema import Int16, Int32, message, struct


@struct
class AlterReplicaLogDirTopic:
    name: str
    partitions: tuple[Int32, ...]


@struct
class AlterReplicaLogDir:
    #: absolute, one of log.dirs
    path: str
    topics: tuple[AlterReplicaLogDirTopic, ...]


@message(api_key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: tuple[AlterReplicaLogDir, ...]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


@message(api_key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32
    results: tuple[AlterReplicaLogDirTopicResult, ...]
