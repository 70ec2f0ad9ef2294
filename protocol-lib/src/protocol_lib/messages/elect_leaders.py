"""ElectLeaders (43): have leaders elected for partitions.

1 can hold unclean elections (KIP-460), 2 is flexible.
"""

from protocol_lib.schema import Int8, Int16, Int32, message, struct, wire


@struct
class TopicPartitions:
    topic: str
    partitions: tuple[Int32, ...]


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    #: 0 preferred, 1 unclean
    election_type: Int8 = wire("1+", default=0)
    #: null for all
    topic_partitions: tuple[TopicPartitions, ...] | None
    timeout_ms: Int32 = wire(default=60000)


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: str | None


@struct
class ReplicaElectionResult:
    topic: str
    partition_result: tuple[PartitionResult, ...]


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32
    error_code: Int16 = wire("1+", default=0)
    replica_election_results: tuple[ReplicaElectionResult, ...]
