"""ListPartitionReassignments (46): the moves that are under way (KIP-455)."""

from protocol_lib.schema import Int16, Int32, message, struct, wire


@struct
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: tuple[Int32, ...]


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = wire(default=60000)
    #: null for all
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: tuple[Int32, ...]
    adding_replicas: tuple[Int32, ...]
    removing_replicas: tuple[Int32, ...]


@struct
class OngoingTopicReassignment:
    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    topics: tuple[OngoingTopicReassignment, ...]
