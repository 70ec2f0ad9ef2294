"""CreatePartitions (37): raise the number of a topic's partitions.

1 is the same as 0, 2 is flexible, 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from protocol_lib.schema import Boolean, Int16, Int32, message, struct, wire


@struct
class CreatePartitionsAssignment:
    broker_ids: tuple[Int32, ...]


@struct
class CreatePartitionsTopic:
    name: str
    #: the new total
    count: Int32
    #: replicas of the added partitions; null leaves them to the controller
    assignments: tuple[CreatePartitionsAssignment, ...] | None


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: Int32
    validate_only: Boolean


@struct
class CreatePartitionsTopicResult:
    name: str
    error_code: Int16
    error_message: str | None = wire(default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32
    results: tuple[CreatePartitionsTopicResult, ...]
