"""Produce (0): append record batches to partitions.

Versions 0-2 carry message sets of formats 0 and 1; from 3 on record batches. 3 adds the transactional id, 7 allows
zstd, 8 answers with errors per record (KIP-467), 9 is flexible, 10 answers with the current leader (KIP-951), 12 adds
partitions to the transaction by itself (KIP-890), 13 names topics by id.
With acks 0 there is no response at all.
"""

from protocol_lib.schema import ZERO_UUID, Int16, Int32, Int64, RecordBytes, Uuid, message, struct, wire


@struct
class PartitionProduceData:
    index: Int32
    #: null and empty are refused by brokers
    records: RecordBytes | None


@struct
class TopicProduceData:
    name: str = wire("0-12", default="")
    topic_id: Uuid = wire("13+", default=ZERO_UUID)
    partition_data: tuple[PartitionProduceData, ...]


@message(api_key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    #: null outside of transactions
    transactional_id: str | None = wire("3+", default=None)
    #: replicas that must have the records before the answer: 0 none (there is no answer), 1 the leader, -1 all in sync
    acks: Int16
    #: longest time that the broker waits for those replicas
    timeout_ms: Int32
    topic_data: tuple[TopicProduceData, ...]


@struct
class BatchIndexAndErrorMessage:
    """One record that made its batch be refused."""

    #: index of the record in its batch, from 0
    batch_index: Int32
    batch_index_error_message: str | None = wire(default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = wire(default=-1)
    leader_epoch: Int32 = wire(default=-1)


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    #: offset of the first record; -1 after an error
    base_offset: Int64
    #: the broker's time, which every record has; -1 when they keep their own (CreateTime)
    log_append_time_ms: Int64 = wire("2+", default=-1)
    log_start_offset: Int64 = wire("5+", default=-1)
    #: records for which the batch was refused
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire("8+", default=())
    error_message: str | None = wire("8+", default=None)
    #: sent with NOT_LEADER_OR_FOLLOWER only; its address is in `node_endpoints`
    current_leader: LeaderIdAndEpoch | None = wire("10+", tag=0, default=None)


@struct
class TopicProduceResponse:
    name: str = wire("0-12", default="")
    topic_id: Uuid = wire("13+", default=ZERO_UUID)
    partition_responses: tuple[PartitionProduceResponse, ...]


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(default=None)


@message(api_key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...]
    throttle_time_ms: Int32 = wire("1+", default=0)
    node_endpoints: tuple[NodeEndpoint, ...] = wire("10+", tag=0, default=())
