"""StreamsGroupHeartbeat (88): a member of a streams group joins, reports its tasks and leaves (KIP-1071).

1 can ask the member for its topology's description (KIP-1331). A null in the request means: as in the heartbeat before.
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, Int64, UInt16, message, struct, wire


@struct
class KeyValue:
    key: str
    value: str


@struct
class TopicInfo:
    """0 partitions or replicas: no number is asked for."""

    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: tuple[KeyValue, ...]


@struct
class CopartitionGroup:
    """Topics that need the same number of partitions, as indexes into the lists of their subtopology."""

    source_topics: tuple[Int16, ...]
    source_topic_regex: tuple[Int16, ...]
    repartition_source_topics: tuple[Int16, ...]


@struct
class Subtopology:
    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]


@struct
class Topology:
    epoch: Int32
    subtopologies: tuple[Subtopology, ...]


@struct
class TaskIds:
    subtopology_id: str
    partitions: tuple[Int32, ...]


@struct
class Endpoint:
    host: str
    port: UInt16


@struct
class TaskOffset:
    subtopology_id: str
    partition: Int32
    offset: Int64


@message(api_key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str
    member_id: str
    #: 0 joins, -1 leaves, -2 leaves for a while (a static member)
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: str | None = wire(default=None)
    rack_id: str | None = wire(default=None)
    #: -1: as before
    rebalance_timeout_ms: Int32 = wire(default=-1)
    topology: Topology | None = wire(default=None)
    active_tasks: tuple[TaskIds, ...] | None = wire(default=None)
    standby_tasks: tuple[TaskIds, ...] | None = wire(default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = wire(default=None)
    process_id: str | None = wire(default=None)
    user_endpoint: Endpoint | None = wire(default=None)
    client_tags: tuple[KeyValue, ...] | None = wire(default=None)
    task_offsets: tuple[TaskOffset, ...] | None = wire(default=None)
    task_end_offsets: tuple[TaskOffset, ...] | None = wire(default=None)
    shutdown_application: Boolean = wire(default=False)


@struct
class Status:
    status_code: Int8
    status_detail: str


@struct
class TopicPartition:
    topic: str
    partitions: tuple[Int32, ...]


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: tuple[TopicPartition, ...]
    standby_partitions: tuple[TopicPartition, ...]


@message(api_key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    member_id: str
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag_legacy: Int32 = wire("0", default=0)
    task_offset_interval_ms: Int32
    acceptable_recovery_lag: Int64 = wire("1+", default=-1)
    status: tuple[Status, ...] | None
    active_tasks: tuple[TaskIds, ...] | None = wire(default=None)
    standby_tasks: tuple[TaskIds, ...] | None = wire(default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = wire(default=None)
    topology_description_required: Boolean = wire("1+", default=False)
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = wire(default=None)
