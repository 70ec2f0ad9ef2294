"""DescribeProducers (61): the producers that wrote to partitions of late (KIP-664)."""

from protocol_lib.schema import Int16, Int32, Int64, message, struct, wire


@struct
class TopicRequest:
    name: str
    partition_indexes: tuple[Int32, ...]


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...]


@struct
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = wire(default=-1)
    last_timestamp: Int64 = wire(default=-1)
    coordinator_epoch: Int32
    #: -1 when none is open
    current_txn_start_offset: Int64 = wire(default=-1)


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    active_producers: tuple[ProducerState, ...]


@struct
class TopicResponse:
    name: str
    partitions: tuple[PartitionResponse, ...]


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32
    topics: tuple[TopicResponse, ...]
