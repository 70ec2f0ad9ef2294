"""Fetch (1): read record batches from partitions, waiting for a while if there are too few.

Versions 0-3 answer with message sets of formats 0 and 1. 4 adds the isolation level, 5 the log start offset, 7 fetch
sessions (KIP-227), 9 the leader epoch, 10 allows zstd, 11 adds the consumer's rack, 12 is flexible and reports
divergence, 13 names topics by id, 15 moves the replica's state into a tag, 16 answers with leader endpoints (KIP-951),
17 and 18 add fields that only replicas send.
"""

from protocol_lib.schema import ZERO_UUID, Int8, Int16, Int32, Int64, Records, Uuid, message, struct, wire


@struct
class ReplicaState:
    replica_id: Int32 = wire(default=-1)
    replica_epoch: Int64 = wire(default=-1)


@struct
class FetchPartition:
    partition: Int32
    #: epoch that the client knows: a broker that knows another refuses; -1 not to check
    current_leader_epoch: Int32 = wire("9+", default=-1)
    #: offset of the first record wanted; the answer begins with the batch that has it
    fetch_offset: Int64
    #: epoch of the record before, for the broker to find where the logs differ; -1 not to check
    last_fetched_epoch: Int32 = wire("12+", default=-1)
    #: log start of a follower's own log; -1 from consumers
    log_start_offset: Int64 = wire("5+", default=-1)
    #: limit of this partition; the first batch of the answer is sent even when it is larger (KIP-74)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = wire("17+", tag=0, default=ZERO_UUID)
    high_watermark: Int64 = wire("18+", tag=1, default=2**63 - 1)


@struct
class FetchTopic:
    topic: str = wire("0-12", default="")
    topic_id: Uuid = wire("13+", default=ZERO_UUID)
    partitions: tuple[FetchPartition, ...]


@struct
class ForgottenTopic:
    """Partitions to take out of the fetch session."""

    topic: str = wire("7-12", default="")
    topic_id: Uuid = wire("13+", default=ZERO_UUID)
    partitions: tuple[Int32, ...]


@message(api_key=1, versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = wire("12+", tag=0, default=None)
    #: a follower's; -1 from consumers
    replica_id: Int32 = wire("0-14", default=-1)
    replica_state: ReplicaState | None = wire("15+", tag=1, default=None)
    #: longest time that the broker may wait for `min_bytes`
    max_wait_ms: Int32
    min_bytes: Int32
    #: limit of the whole answer, with the same exception for the first batch
    max_bytes: Int32 = wire("3+", default=2**31 - 1)
    #: 0 read_uncommitted, 1 read_committed: up to the last stable offset, with a list of aborted transactions
    isolation_level: Int8 = wire("4+", default=0)
    #: 0 for none yet
    session_id: Int32 = wire("7+", default=0)
    #: 0 opens a session, -1 closes it or goes without, else one more than before
    session_epoch: Int32 = wire("7+", default=-1)
    #: all partitions, or in a session the new and changed ones
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire("7+", default=())
    rack_id: str = wire("11+", default="")


@struct
class EpochEndOffset:
    epoch: Int32 = wire(default=-1)
    end_offset: Int64 = wire(default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = wire(default=-1)
    leader_epoch: Int32 = wire(default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = wire(default=-1)
    epoch: Int32 = wire(default=-1)


@struct
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    """The records of one partition, or its error."""

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    #: first offset of the oldest open transaction, or the high watermark
    last_stable_offset: Int64 = wire("4+", default=-1)
    log_start_offset: Int64 = wire("5+", default=-1)
    #: point where the requester's log leaves the leader's: truncate to here
    diverging_epoch: EpochEndOffset | None = wire("12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = wire("12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = wire("12+", tag=2, default=None)
    #: transactions of these records, at read_committed; null at read_uncommitted
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire("4+", default=None)
    #: a replica nearer to `rack_id`, to be asked instead (KIP-392); -1 for none
    preferred_read_replica: Int32 = wire("11+", default=-1)
    #: batches back to back; the last one may be cut short
    records: Records | None


@struct
class FetchableTopicResponse:
    topic: str = wire("0-12", default="")
    topic_id: Uuid = wire("13+", default=ZERO_UUID)
    partitions: tuple[PartitionData, ...]


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(default=None)


@message(api_key=1, versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    error_code: Int16 = wire("7+", default=0)
    #: 0 when the broker keeps no session
    session_id: Int32 = wire("7+", default=0)
    responses: tuple[FetchableTopicResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...] = wire("16+", tag=0, default=())
