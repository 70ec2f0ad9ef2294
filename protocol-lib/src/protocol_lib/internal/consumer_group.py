"""A consumer group of KIP-848: keys 3 to 8 and 16 of __consumer_offsets. Values are flexible from version 0 on."""

from protocol_lib.schema import Bytes, Int8, Int32, Int64, Uuid, message, struct, wire


@message(api_key=None, versions="3", flexible=None)
class ConsumerGroupMetadataKey:
    group_id: str


@message(api_key=None, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The group's epoch; since 4.1 with a hash of the topics it reads (KIP-1101), in place of their partitions."""

    epoch: Int32
    metadata_hash: Int64 = wire("0+", tag=0, default=0)


@message(api_key=None, versions="4", flexible=None)
class ConsumerGroupPartitionMetadataKey:
    group_id: str


@struct
class PartitionMetadata:
    partition: Int32
    racks: tuple[str, ...]


@struct
class TopicMetadata:
    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: tuple[PartitionMetadata, ...]


@message(api_key=None, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The topics the group reads, as Kafka 4.0 wrote them."""

    topics: tuple[TopicMetadata, ...]


@message(api_key=None, versions="5", flexible=None)
class ConsumerGroupMemberMetadataKey:
    group_id: str
    member_id: str


@struct
class ClassicProtocol:
    name: str
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    """The timeouts and protocols of a member that speaks the classic protocol; milliseconds."""

    session_timeout_ms: Int32
    supported_protocols: tuple[ClassicProtocol, ...]


@message(api_key=None, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = wire("0+", tag=0, default=None, nullable="0+")


@message(api_key=None, versions="6", flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str


@message(api_key=None, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of the assignment that members move to; since 4.3 with when it was computed (KIP-1263)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = wire("0+", tag=0, default=0)


@message(api_key=None, versions="7", flexible=None)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str
    member_id: str


@struct
class TargetTopicPartitions:
    topic_id: Uuid
    partitions: tuple[Int32, ...]


@message(api_key=None, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TargetTopicPartitions, ...]


@message(api_key=None, versions="8", flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str
    member_id: str


@struct
class CurrentTopicPartitions:
    topic_id: Uuid
    partitions: tuple[Int32, ...]
    #: the epoch each partition was assigned in, in the order of `partitions` (KIP-1251, since 4.3)
    assignment_epochs: tuple[Int32, ...] | None = wire("0+", tag=0, default=())


@message(api_key=None, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions of a member. `state`: 0 stable, 1 unrevoked partitions, 2 unreleased partitions."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: tuple[CurrentTopicPartitions, ...]
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...]


@message(api_key=None, versions="16", flexible=None)
class ConsumerGroupRegularExpressionKey:
    group_id: str
    regular_expression: str


@message(api_key=None, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics an expression matched, in which version of the cluster's metadata, and when."""

    topics: tuple[str, ...]
    version: Int64
    timestamp: Int64
