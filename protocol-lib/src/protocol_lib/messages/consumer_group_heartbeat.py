"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, owns, acknowledges and leaves (KIP-848).

1 adds subscription by pattern and leaves it to the member to make its id (KIP-1082). A null in the request means: as in
the heartbeat before.
"""

from protocol_lib.schema import Int16, Int32, Uuid, message, struct, wire


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: tuple[Int32, ...]


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    #: 0 joins, -1 leaves, -2 leaves for a while (a static member)
    member_epoch: Int32
    instance_id: str | None = wire(default=None)
    rack_id: str | None = wire(default=None)
    #: -1: as before
    rebalance_timeout_ms: Int32 = wire(default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire(default=None)
    subscribed_topic_regex: str | None = wire("1+", default=None)
    server_assignor: str | None = wire(default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(default=None)


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...]


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    member_id: str | None = wire(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = wire(default=None)
