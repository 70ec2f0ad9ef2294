"""ShareAcknowledge (79): acknowledge records that ShareFetch acquired (KIP-932).

Version 1 is the first stable one; 0 was an early access of Kafka 4.0. 2 adds renewal of acquired records (KIP-1222).
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, Int64, Uuid, message, struct, wire


@struct
class AcknowledgementBatch:
    """One acknowledge type for the whole range, or one for each of its offsets."""

    first_offset: Int64
    #: inclusive
    last_offset: Int64
    #: 0 gap, 1 accept, 2 release, 3 reject, 4 renew
    acknowledge_types: tuple[Int8, ...]


@struct
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: tuple[AcknowledgementBatch, ...]


@struct
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: tuple[AcknowledgePartition, ...]


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = wire(default=None)
    member_id: str | None
    #: -1 closes the session, else one more than before
    share_session_epoch: Int32
    is_renew_ack: Boolean = wire("2+", default=False)
    topics: tuple[AcknowledgeTopic, ...]


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: tuple[PartitionData, ...]


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(default=None)


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    acquisition_lock_timeout_ms: Int32 = wire("2+", default=0)
    responses: tuple[ShareAcknowledgeTopicResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...]
