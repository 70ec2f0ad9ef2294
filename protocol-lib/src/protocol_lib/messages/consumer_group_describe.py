"""ConsumerGroupDescribe (69): the members of consumer groups and their assignments (KIP-848).

1 adds the type of member (KIP-1099).
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, Uuid, message, struct, wire


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...]
    include_authorized_operations: Boolean


@struct
class TopicPartitions:
    topic_id: Uuid
    topic_name: str
    partitions: tuple[Int32, ...]


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...]


@struct
class Member:
    member_id: str
    instance_id: str | None = wire(default=None)
    rack_id: str | None = wire(default=None)
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None = wire(default=None)
    assignment: Assignment
    target_assignment: Assignment
    #: -1 unknown, 0 classic, 1 consumer
    member_type: Int8 = wire("1+", default=-1)


@struct
class DescribedGroup:
    error_code: Int16
    error_message: str | None = wire(default=None)
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: tuple[Member, ...]
    authorized_operations: Int32 = wire(default=-(2**31))


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: tuple[DescribedGroup, ...]
