"""DescribeTopicPartitions (75): topics page by page, with the replicas that may become leader (KIP-966)."""

from protocol_lib.schema import Boolean, Int16, Int32, Uuid, message, struct, wire


@struct
class TopicRequest:
    name: str


@struct
class Cursor:
    """The first partition of a page."""

    topic_name: str
    partition_index: Int32


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    #: empty for all of them
    topics: tuple[TopicRequest, ...]
    response_partition_limit: Int32 = wire(default=2000)
    cursor: Cursor | None = wire(default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = wire(default=-1)
    replica_nodes: tuple[Int32, ...]
    isr_nodes: tuple[Int32, ...]
    #: replicas not in sync that are known to have everything that was committed
    eligible_leader_replicas: tuple[Int32, ...] | None = wire(default=None)
    last_known_elr: tuple[Int32, ...] | None = wire(default=None)
    offline_replicas: tuple[Int32, ...]


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: str | None
    topic_id: Uuid
    is_internal: Boolean = wire(default=False)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...]
    topic_authorized_operations: Int32 = wire(default=-(2**31))


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...]
    #: null on the last page
    next_cursor: Cursor | None = wire(default=None)
