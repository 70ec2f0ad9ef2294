"""ShareGroupHeartbeat (76): a member of a share group joins, subscribes and leaves (KIP-932).

Version 1 is the first stable one; 0 was an early access of Kafka 4.0. A null in the request means: as in the heartbeat
before.
"""

from protocol_lib.schema import Int16, Int32, Uuid, message, struct, wire


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str
    member_id: str
    #: 0 joins, -1 leaves
    member_epoch: Int32
    rack_id: str | None = wire(default=None)
    subscribed_topic_names: tuple[str, ...] | None = wire(default=None)


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: tuple[Int32, ...]


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...]


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    member_id: str | None = wire(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = wire(default=None)
