"""A share group (KIP-932): keys 10 to 15 of __consumer_offsets (9 was given up). Values are flexible from 0 on."""

from protocol_lib.schema import Int8, Int32, Int64, Uuid, message, struct, wire


@message(api_key=None, versions="10", flexible=None)
class ShareGroupMemberMetadataKey:
    group_id: str
    member_id: str


@message(api_key=None, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


@message(api_key=None, versions="11", flexible=None)
class ShareGroupMetadataKey:
    group_id: str


@message(api_key=None, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64


@message(api_key=None, versions="12", flexible=None)
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str


@message(api_key=None, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = wire("0+", tag=0, default=0)


@message(api_key=None, versions="13", flexible=None)
class ShareGroupTargetAssignmentMemberKey:
    group_id: str
    member_id: str


@struct
class ShareTopicPartitions:
    topic_id: Uuid
    partitions: tuple[Int32, ...]


@message(api_key=None, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[ShareTopicPartitions, ...]


@message(api_key=None, versions="14", flexible=None)
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str
    member_id: str


@message(api_key=None, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: tuple[ShareTopicPartitions, ...]


@message(api_key=None, versions="15", flexible=None)
class ShareGroupStatePartitionMetadataKey:
    group_id: str


@struct
class TopicPartitionsInfo:
    topic_id: Uuid
    topic_name: str
    partitions: tuple[Int32, ...]


@struct
class TopicInfo:
    topic_id: Uuid
    topic_name: str


@message(api_key=None, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The progress of the share coordinator's state of the group's partitions."""

    initializing_topics: tuple[TopicPartitionsInfo, ...]
    initialized_topics: tuple[TopicPartitionsInfo, ...]
    deleting_topics: tuple[TopicInfo, ...]
