"""TxnOffsetCommit (28): commit a group's offsets as part of a transaction.

2 adds leader epochs, 3 is flexible and names the group member, 4 may answer TRANSACTION_ABORTABLE, 5 stands for
AddOffsetsToTxn as well (KIP-890), 6 names topics by id (KIP-1319).
"""

from protocol_lib.schema import ZERO_UUID, Int16, Int32, Int64, Uuid, message, struct, wire


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire("2+", default=-1)
    committed_metadata: str | None


@struct
class TxnOffsetCommitRequestTopic:
    name: str = wire("0-5", default="")
    topic_id: Uuid = wire("6+", default=ZERO_UUID)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    #: -1 with an empty member id: the broker does not check the owner of the partitions (before KIP-447)
    generation_id_or_member_epoch: Int32 = wire("3+", default=-1)
    member_id: str = wire("3+", default="")
    group_instance_id: str | None = wire("3+", default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class TxnOffsetCommitResponseTopic:
    name: str = wire("0-5", default="")
    topic_id: Uuid = wire("6+", default=ZERO_UUID)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32
    topics: tuple[TxnOffsetCommitResponseTopic, ...]
