"""ShareFetch (78): acquire records of a share group's partitions and acknowledge earlier ones (KIP-932).

Version 1 is the first stable one; 0 was an early access of Kafka 4.0. 2 adds the acquire mode (KIP-1206) and renewal of
acquired records (KIP-1222).
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, Int64, Records, Uuid, message, struct, wire


@struct
class AcknowledgementBatch:
    """One acknowledge type for the whole range, or one for each of its offsets."""

    first_offset: Int64
    #: inclusive
    last_offset: Int64
    #: 0 gap, 1 accept, 2 release, 3 reject, 4 renew
    acknowledge_types: tuple[Int8, ...]


@struct
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: tuple[AcknowledgementBatch, ...]


@struct
class FetchTopic:
    topic_id: Uuid
    partitions: tuple[FetchPartition, ...]


@struct
class ForgottenTopic:
    topic_id: Uuid
    partitions: tuple[Int32, ...]


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = wire(default=None)
    member_id: str | None
    #: 0 opens a session, -1 closes it, else one more than before
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = wire(default=2**31 - 1)
    max_records: Int32
    batch_size: Int32
    #: 0 whole batches, 1 no more than max_records
    share_acquire_mode: Int8 = wire("2+", default=0)
    is_renew_ack: Boolean = wire("2+", default=False)
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: tuple[ForgottenTopic, ...]


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: str | None = wire(default=None)
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: tuple[AcquiredRecords, ...]


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: tuple[PartitionData, ...]


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(default=None)


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    acquisition_lock_timeout_ms: Int32
    responses: tuple[ShareFetchableTopicResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...]
