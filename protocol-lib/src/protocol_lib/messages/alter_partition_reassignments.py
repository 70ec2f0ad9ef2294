"""AlterPartitionReassignments (45): move partitions to other replicas (KIP-455).

1 can forbid a change of the replication factor (KIP-860).
"""

from protocol_lib.schema import Boolean, Int16, Int32, message, struct, wire


@struct
class ReassignablePartition:
    """Null replicas cancel a reassignment that is under way."""

    partition_index: Int32
    replicas: tuple[Int32, ...] | None = wire(default=None)


@struct
class ReassignableTopic:
    name: str
    partitions: tuple[ReassignablePartition, ...]


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = wire(default=60000)
    #: false refuses replicas of another number than there are
    allow_replication_factor_change: Boolean = wire("1+", default=True)
    topics: tuple[ReassignableTopic, ...]


@struct
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None


@struct
class ReassignableTopicResponse:
    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32
    allow_replication_factor_change: Boolean = wire("1+", default=True)
    error_code: Int16
    error_message: str | None
    responses: tuple[ReassignableTopicResponse, ...]
