"""ShareGroupDescribe (77): the members of share groups and their assignments (KIP-932).

Version 1 is the first stable one; 0 was an early access of Kafka 4.0.
"""

from protocol_lib.schema import Boolean, Int16, Int32, Uuid, message, struct, wire


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
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
    rack_id: str | None = wire(default=None)
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: Assignment


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


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: tuple[DescribedGroup, ...]
