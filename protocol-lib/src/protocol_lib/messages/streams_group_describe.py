"""StreamsGroupDescribe (89): the members, tasks and topology of streams groups (KIP-1071).

1 adds the topology's description (KIP-1331) and the assignor (KIP-1357).
"""

from protocol_lib.messages.streams_group_topology_description_update import TopologyDescription
from protocol_lib.schema import Boolean, Int8, Int16, Int32, Int64, UInt16, message, struct, wire


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: tuple[str, ...]
    include_authorized_operations: Boolean
    include_topology_description: Boolean = wire("1+", default=False)


@struct
class KeyValue:
    key: str
    value: str


@struct
class TopicInfo:
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: tuple[KeyValue, ...]


@struct
class Subtopology:
    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_source_topics: tuple[TopicInfo, ...]


@struct
class Topology:
    epoch: Int32
    subtopologies: tuple[Subtopology, ...] | None = wire(default=None)


@struct
class Endpoint:
    host: str
    port: UInt16


@struct
class TaskOffset:
    subtopology_id: str
    partition: Int32
    offset: Int64


@struct
class TaskIds:
    subtopology_id: str
    partitions: tuple[Int32, ...]


@struct
class Assignment:
    active_tasks: tuple[TaskIds, ...]
    standby_tasks: tuple[TaskIds, ...]
    warmup_tasks: tuple[TaskIds, ...]


@struct
class Member:
    """A member that is_classic has not moved from the classic protocol yet."""

    member_id: str
    member_epoch: Int32
    instance_id: str | None = wire(default=None)
    rack_id: str | None = wire(default=None)
    client_id: str
    client_host: str
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = wire(default=None)
    client_tags: tuple[KeyValue, ...]
    task_offsets: tuple[TaskOffset, ...]
    task_end_offsets: tuple[TaskOffset, ...]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Boolean


@struct
class DescribedGroup:
    error_code: Int16
    error_message: str | None = wire(default=None)
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None = wire(default=None)
    members: tuple[Member, ...]
    authorized_operations: Int32 = wire(default=-(2**31))
    topology_description: TopologyDescription | None = wire("1+", default=None)
    #: 0 not requested, 1 none stored, 2 could not be read, 3 there
    topology_description_status: Int8 = wire("1+", default=0)
    assignor_name: str | None = wire("1+", default=None)


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: tuple[DescribedGroup, ...]
