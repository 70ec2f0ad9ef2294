"""DescribeQuorum (55): the leader, voters and observers of the metadata quorum (KIP-595).

1 adds times (KIP-836), 2 error messages, directory ids and the nodes' listeners (KIP-853).
"""

from protocol_lib.schema import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid, message, struct, wire


@struct
class PartitionRequest:
    partition_index: Int32


@struct
class TopicRequest:
    topic_name: str
    partitions: tuple[PartitionRequest, ...]


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    #: __cluster_metadata, partition 0, is the only one there is
    topics: tuple[TopicRequest, ...]


@struct
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = wire("2+", default=ZERO_UUID)
    log_end_offset: Int64
    #: time by the leader's clock; -1 for not known
    last_fetch_timestamp: Int64 = wire("1+", default=-1)
    last_caught_up_timestamp: Int64 = wire("1+", default=-1)


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = wire("2+", default="")
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]


@struct
class TopicData:
    topic_name: str
    partitions: tuple[PartitionData, ...]


@struct
class Listener:
    name: str
    host: str
    port: UInt16


@struct
class Node:
    node_id: Int32
    listeners: tuple[Listener, ...]


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16
    error_message: str | None = wire("2+", default="")
    topics: tuple[TopicData, ...]
    nodes: tuple[Node, ...] = wire("2+", default=())
